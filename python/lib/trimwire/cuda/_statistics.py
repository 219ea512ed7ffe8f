# SPDX-License-Identifier: Apache-2.0
"""A packet's statistics in the binding order of sums (docs/reference/wire-format.md, §4): a tile of [packets, 16 lanes]."""

import triton
import triton.language as tl

from ._rotate import folded


@triton.jit
def place_of(packet, D: tl.constexpr, K: tl.constexpr):
    """First coordinate within the row, and how many, of a row's packets: those of one block more come first."""
    EACH: tl.constexpr = D // 32 // K
    LONGER: tl.constexpr = D // 32 % K
    return (packet * EACH + tl.minimum(packet, LONGER)) * 32, (EACH + (packet < LONGER).to(tl.int32)) * 32


@triton.jit
def packet_of(block, D: tl.constexpr, K: tl.constexpr):
    """Which of a row's packets has a block of it."""
    EACH: tl.constexpr = D // 32 // K
    LONGER: tl.constexpr = D // 32 % K
    return tl.where(block < LONGER * (EACH + 1), block // (EACH + 1), (block - LONGER) // EACH)


@triton.jit
def sums(values, D: tl.constexpr, K: tl.constexpr, KP: tl.constexpr):
    """Q, A and M of the K packets of a row whose working values lie at `values`; KP is a power of two, at least K."""
    packet = tl.arange(0, KP)
    start, n = place_of(packet, D, K)
    n = tl.where(packet < K, n, 0)
    lane = tl.arange(0, 16)[None, :]
    squares = tl.zeros((KP, 16), tl.float32)
    magnitudes = tl.zeros((KP, 16), tl.float32)
    most = tl.zeros((KP, 16), tl.float32)
    # A packet is longer than another of its row by 32 coordinates at most.
    for step in range(0, (D // 32 + K - 1) // K * 2):
        here = (step * 16 < n)[:, None] & (lane >= 0)
        v = tl.abs(tl.load(values + start[:, None] + step * 16 + lane, mask=here, other=0.0))
        squares += v * v
        magnitudes += v
        most = tl.maximum(most, v)
    return folded(squares, KP), folded(magnitudes, KP), tl.max(most, axis=1)


@triton.jit
def statistics(q, a, m, n, gain, peaks):
    """σ (f32), κ, peak and s of packets with the sums Q, A and M over n values; `gain` is 2^e · G, `peaks` the table of 2^(k/32)."""
    width = tl.full((), 17 / 32, tl.float64)
    count = tl.where(n > 0, n, 1).to(tl.float64)
    sigma = (tl.sqrt(q.to(tl.float64) / count) / gain).to(tl.float32)
    smallest = tl.full(sigma.shape, 1, tl.int32).to(tl.float32, bitcast=True)
    sigma = tl.where((sigma == 0.0) & (q > 0.0), smallest, sigma)
    there = sigma > 0.0
    divisor = tl.where(there, sigma.to(tl.float64), 1.0) * gain * width
    scale = tl.where(there, (1.0 / divisor).to(tl.float32), 0.0)
    share = 255.0 * (a.to(tl.float64) / count * scale.to(tl.float64) * width)
    below = tl.floor(share)
    kappa = tl.minimum(below + tl.where(share - below >= 0.5, 1.0, 0.0), 255.0).to(tl.int32)
    # The smallest k with a table's entry that is not below the ratio, by halves.
    ratio = (m * scale) * (17 / 32)
    peak = tl.zeros(sigma.shape, tl.int32)
    for level in tl.static_range(8):
        half = 128 >> level
        peak = tl.where(tl.load(peaks + peak + (half - 1)) < ratio, peak + half, peak)
    return sigma, kappa, tl.minimum(peak, 255), scale
