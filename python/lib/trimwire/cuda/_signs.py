# SPDX-License-Identifier: Apache-2.0
"""The diagonals of signs (docs/reference/wire-format.md, §3): words of a counter-based generator, no state."""

import triton
import triton.language as tl

#: What tells the second rotation's words from the first one's: on top of the rank.
SECOND = tl.constexpr(1 << 17)


@triton.jit
def draw(words, seed, row, message, rank, D: tl.constexpr):
    """Writes the words of a row's D coordinates, a bit each, to D/32 places; the program's other threads see them behind its next barrier."""
    # A Philox block has the signs of 128 coordinates.
    block = tl.arange(0, D // 128)
    drawn = tl.philox(seed, block.to(tl.uint32), row.to(tl.uint32), message.to(tl.uint32), rank.to(tl.uint32))
    for place in tl.static_range(4):
        tl.store(words + block * 4 + place, drawn[place].to(tl.int32, bitcast=True))


@triton.jit
def flipped(x, signs):
    """x with the sign bits flipped that are set in `signs`, those of zeros as well."""
    return (x.to(tl.int32, bitcast=True) ^ signs).to(tl.float32, bitcast=True)


@triton.jit
def flipped_in_eights(xs, words, used, D: tl.constexpr):
    """The same of a row in eight tensors, of which number c has coordinates c, c + 8, …; of the first `used` coordinates."""
    group = tl.arange(0, D // 8)
    signs = tl.load(words + group // 4) >> (group % 4 * 8)
    if used < D:
        signs &= (1 << tl.minimum(tl.maximum(used - group * 8, 0), 8)) - 1
    ys = ()
    for c in tl.static_range(8):
        ys = ys + (flipped(xs[c], signs << (31 - c) & -2147483648),)
    return ys


@triton.jit
def flipped_in_fours(x, words, D: tl.constexpr):
    """The same of a row as a tensor [D/4, 4]."""
    four = tl.arange(0, D // 4)
    signs = tl.load(words + four // 8) >> (four % 8 * 4)
    return flipped(x, signs[:, None] << (31 - tl.arange(0, 4))[None, :] & -2147483648)
