# SPDX-License-Identifier: Apache-2.0
"""A packet's statistics in the binding order of sums (docs/reference/wire-format.md, §4): a tile of [packets, 16 lanes]."""

import triton
import triton.language as tl

from ._header import mask_bytes
from ._rotate import folded
from ._rows import HEADER_BYTES

_HEADER = tl.constexpr(HEADER_BYTES)


@triton.jit
def length_of(line):
    """log2 of a row's coordinates, and its packets, of its line of the table (`_rows.table_of`)."""
    both = tl.load(line + 9).to(tl.int32)
    return both & 0xFF, both >> 8


@triton.jit
def place_of(packet, d, k):
    """First coordinate within the row, and how many, of a row's packets: those of one block more come first."""
    each = d // 32 // k
    longer = d // 32 % k
    return (packet * each + tl.minimum(packet, longer)) * 32, (each + (packet < longer).to(tl.int32)) * 32


@triton.jit
def packet_of(block, d, k):
    """Which of a row's packets has a block of it."""
    each = d // 32 // k
    longer = d // 32 % k
    return tl.where(block < longer * (each + 1), block // (each + 1), (block - longer) // each)


@triton.jit
def head_of(packet, d, k, width):
    """Where a packet of a row begins, in bytes from the first one's header; `width` is the bits a coordinate of the planes."""
    each = d // 32 // k
    longer = tl.minimum(packet, d // 32 % k)
    masks = longer * mask_bytes(each + 1) + (packet - longer) * mask_bytes(each)
    return packet * _HEADER + masks + (packet * each + longer) * 4 * width


@triton.jit
def _add(v, squares, magnitudes, most):
    v = tl.abs(v)
    return squares + v * v, magnitudes + v, tl.maximum(most, v)


@triton.jit
def sums(values, d, k, KP: tl.constexpr):
    """Q, A and M of the k packets of a row whose working values lie at `values`; KP is a power of two, at least k."""
    packet = tl.arange(0, KP)
    # Behind the last packet there is none: the last one again, and nobody looks.
    start, n = place_of(tl.minimum(packet, k - 1), d, k)
    lane = tl.arange(0, 16)[None, :]
    at = values + start[:, None] + lane
    squares = tl.zeros((KP, 16), tl.float32)
    magnitudes = tl.zeros((KP, 16), tl.float32)
    most = tl.zeros((KP, 16), tl.float32)
    # Seven blocks at a time: their loads are under way together.
    for some in range(0, d // 32 // k // 7):
        for half in tl.static_range(14):
            squares, magnitudes, most = _add(tl.load(at + some * 224 + half * 16), squares, magnitudes, most)
    for place in range(0, d // 32 // k % 7 * 2):
        squares, magnitudes, most = _add(tl.load(at + (d // 32 // k // 7 * 224 + place * 16)), squares, magnitudes, most)
    # A packet is longer than another of its row by 32 coordinates at most.
    here = (packet < d // 32 % k)[:, None] & (lane >= 0)
    for last in tl.static_range(2):
        v = tl.load(at + (d // 32 // k * 32 + last * 16), mask=here, other=0.0)
        squares, magnitudes, most = _add(v, squares, magnitudes, most)
    there = packet < k
    q, a = tl.where(there, folded(squares, KP), 0.0), tl.where(there, folded(magnitudes, KP), 0.0)
    return q, a, tl.where(there, tl.max(most, axis=1), 0.0)


@triton.jit
def statistics(q, a, m, n, gain, peaks):
    """σ (of a header), κ, peak and s of packets with the sums Q, A and M over n values; `gain` is 2^e · G, `peaks` the table of 2^(k/32)."""
    width = tl.full((), 17 / 32, tl.float64)
    count = tl.where(n > 0, n, 1).to(tl.float64)
    sigma = (tl.sqrt(q.to(tl.float64) / count) / gain).to(tl.float32)
    # To 11 bits of fraction, ties to even; none is so small that it becomes 0.
    bits = sigma.to(tl.int32, bitcast=True)
    bits = (bits + 0x7FF + ((bits >> 12) & 1)) & ~0xFFF
    bits = tl.where((bits == 0) & (q > 0.0), 0x1000, bits)
    sigma = bits.to(tl.float32, bitcast=True)
    there = sigma > 0.0
    divisor = tl.where(there, sigma.to(tl.float64), 1.0) * gain * width
    scale = tl.where(there, (1.0 / divisor).to(tl.float32), 0.0)
    share = 255.0 * (a.to(tl.float64) / count * scale.to(tl.float64) * width)
    below = tl.floor(share)
    kappa = tl.minimum(below + tl.where(share - below >= 0.5, 1.0, 0.0), 255.0).to(tl.int32)
    # The smallest k with a table's entry that is not below the ratio: within three of an estimate, as the logarithm of 1 + f is within 1/100 of f (1.3465 - 0.3465 f).
    ratio = (m * scale) * (17 / 32)
    bits = ratio.to(tl.int32, bitcast=True)
    part = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True) - 1.0
    within = (32.0 * (part * (1.3465 - 0.3465 * part))).to(tl.int32)
    guess = ((bits >> 23) - 127) * 32 + within
    low = tl.minimum(tl.maximum(guess, 0), 254)
    peak = low + (tl.load(peaks + low) < ratio).to(tl.int32) + (tl.load(peaks + low + 1) < ratio).to(tl.int32)
    peak = tl.where(guess < -1, 0, peak)
    return sigma, kappa, tl.minimum(peak, 255), scale
