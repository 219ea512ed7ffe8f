"""The k largest magnitudes, the same on every machine (docs/reference/wire-format.md, §13): a threshold, then what is not below it, in order.

Whoever launches these finds the k-th largest magnitude, and adds up what `count` says of chunks in front of `take`.
"""

import triton
import triton.language as tl

_LARGEST = tl.constexpr(0x7F7FFFFF)


@triton.jit
def level_of(magnitude, unsent):
    """The level of a finite magnitude (the bits of an f32 without its sign), `unsent` of whose bits are not sent."""
    # Of no unsent bits nothing is rounded: the shift by −1 is not taken.
    odd = (magnitude >> unsent) & 1
    half = tl.where(unsent > 0, (1 << tl.maximum(unsent - 1, 0)) - 1 + odd, 0)
    return tl.minimum((magnitude + half) >> unsent, _LARGEST >> unsent)


@triton.jit
def _classified(wide, threshold, chunk, coordinates, unsent, CHUNK: tl.constexpr):
    """Coordinates of a chunk, their bits, which are above the threshold and which at it. Those of level 0 are neither."""
    at = chunk.to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    bits = tl.load(wide + at, mask=at < coordinates, other=0)
    magnitude = bits & 0x7FFFFFFF
    least = tl.load(threshold)
    there = level_of(magnitude, unsent) > 0
    return at, bits, (magnitude > least) & there, (magnitude == least) & there


@triton.jit(do_not_specialize=["coordinates", "unsent"])
def count(wide, threshold, counts, coordinates, unsent, CHUNK: tl.constexpr):
    """Of each chunk, how many are above the threshold, and how many at it: `counts`, two a chunk."""
    chunk = tl.program_id(0)
    _, _, above, equal = _classified(wide, threshold, chunk, coordinates, unsent, CHUNK)
    tl.store(counts + 2 * chunk, tl.sum(above.to(tl.int32), axis=0).to(tl.int64))
    tl.store(counts + 2 * chunk + 1, tl.sum(equal.to(tl.int32), axis=0).to(tl.int64))


@triton.jit(do_not_specialize=["coordinates", "unsent"])
def take(wide, threshold, before, left, places, values, coordinates, unsent, CHUNK: tl.constexpr):
    """Writes what is chosen, in ascending order of coordinates: places, and values as they are sent (bits of f32s). Of those at the threshold the first `left` of the message are.

    `before`: how many are above and at the threshold in the chunks in front of each.
    """
    chunk = tl.program_id(0)
    at, bits, above, equal = _classified(wide, threshold, chunk, coordinates, unsent, CHUNK)
    most = tl.load(left)
    above_before, equal_before = tl.load(before + 2 * chunk), tl.load(before + 2 * chunk + 1)
    rank = equal_before + tl.cumsum(equal.to(tl.int32), axis=0) - 1
    chosen = above | (equal & (rank < most))
    to = above_before + tl.minimum(equal_before, most) + tl.cumsum(chosen.to(tl.int32), axis=0) - 1
    sent = (level_of(bits & 0x7FFFFFFF, unsent) << unsent) | (bits & -2147483648)
    tl.store(places + to, at, mask=chosen)
    tl.store(values + to, sent, mask=chosen)
