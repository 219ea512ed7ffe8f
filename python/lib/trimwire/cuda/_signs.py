"""The diagonals of signs (docs/wire-format.md, §3): words of a counter-based generator, no state."""

import triton
import triton.language as tl


@triton.jit
def flips(seed, row, message, rank, D: tl.constexpr):
    """The sign bits to flip of a row's D coordinates, as [D/32, 32] words of which only bit 31 may be set."""
    # Every 32 coordinates make their own Philox block, of which they need one word: four times the work of a thousandth.
    block = tl.arange(0, D // 32)
    w0, w1, w2, w3 = tl.philox(seed, (block // 4).to(tl.uint32), row.to(tl.uint32), message.to(tl.uint32), rank.to(tl.uint32))
    place = block % 4
    word = tl.where(place == 0, w0, tl.where(place == 1, w1, tl.where(place == 2, w2, w3)))
    bits = (word[:, None] >> tl.arange(0, 32)[None, :].to(tl.uint32)) & 1
    return (bits << 31).to(tl.int32, bitcast=True)


@triton.jit
def flipped(x, signs):
    """x with the sign bits flipped that are set in `signs`, those of zeros as well."""
    return (x.to(tl.int32, bitcast=True) ^ signs).to(tl.float32, bitcast=True)
