# SPDX-License-Identifier: Apache-2.0
"""The diagonals of signs (docs/reference/wire-format.md, §3): words of a counter-based generator, no state."""

import triton
import triton.language as tl

#: What tells the second rotation's words from the first one's: on top of the rank.
SECOND = tl.constexpr(1 << 17)


@triton.jit
def draw(words, seed, row, message, rank, D: tl.constexpr):
    """Writes the words of a row's D coordinates, a bit each, to D/32 places; the program's other threads see them behind its next barrier."""
    # Every 32 coordinates make their own Philox block, of which they need one word: four times the work of a thousandth.
    block = tl.arange(0, D // 32)
    w0, w1, w2, w3 = tl.philox(seed, (block // 4).to(tl.uint32), row.to(tl.uint32), message.to(tl.uint32), rank.to(tl.uint32))
    place = block % 4
    word = tl.where(place == 0, w0, tl.where(place == 1, w1, tl.where(place == 2, w2, w3)))
    tl.store(words + block, word.to(tl.int32, bitcast=True))


@triton.jit
def flips(words, at):
    """The sign bits to flip of the coordinates `at`, of which the words are drawn: 0, or bit 31."""
    # From memory: as a broadcast the compiler would move 32 times as much through shared memory.
    return tl.load(words + at // 32) << (31 - at % 32) & -2147483648


@triton.jit
def flipped(x, signs):
    """x with the sign bits flipped that are set in `signs`, those of zeros as well."""
    return (x.to(tl.int32, bitcast=True) ^ signs).to(tl.float32, bitcast=True)
