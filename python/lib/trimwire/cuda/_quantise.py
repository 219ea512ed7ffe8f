# SPDX-License-Identifier: Apache-2.0
"""The embedded quantiser (docs/reference/wire-format.md, §5): its tables, and magnitudes to codes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import triton
import triton.language as tl

ZONE_STARTS = tuple(start << 13 for start in (0, 257, 493, 682, 822, 916, 972, 1004))
CODES = 1 << 23
#: Where the last zone ends, in zone widths, unless the packet's peak lies beyond.
USUAL_END = 8.625
#: A zone's width, in σ.
ZONE_WIDTH = 17 / 32

#: S_z and I_z of the zones but the last, whose line follows from the packet's peak. All are whole numbers below 2^24.
_SLOPES = [b - a for a, b in zip(ZONE_STARTS, ZONE_STARTS[1:], strict=False)]
_OFFSETS = [CODES + start - zone * slope for zone, (start, slope) in enumerate(zip(ZONE_STARTS, _SLOPES, strict=False))]
_I0, _I1, _I2, _I3, _I4, _I5, _I6 = (tl.constexpr(float(offset)) for offset in _OFFSETS)
_R0, _R1, _R2, _R3, _R4, _R5, _R6 = (tl.constexpr(float(np.float32(1 / slope))) for slope in _SLOPES)
_O1, _O2, _O3, _O4, _O5, _O6 = (tl.constexpr(float(np.float32((CODES - offset) / slope))) for slope, offset in zip(_SLOPES[1:], _OFFSETS[1:], strict=True))
_B1, _B2, _B3, _B4, _B5, _B6, _B7 = (tl.constexpr(start) for start in ZONE_STARTS[1:])


def peaks() -> npt.NDArray[np.float32]:
    """2^(k/32) for every peak k."""
    return np.array([2.0 ** (k / 32) for k in range(256)], dtype=np.float32)


def last_lines() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """S_7 and I_7 for every peak."""
    ends = np.maximum(USUAL_END, peaks().astype(np.float64) * 32 / 17)
    slopes = ((CODES - ZONE_STARTS[7]) / (ends - 7)).astype(np.float32)
    offsets = (CODES + ZONE_STARTS[7] - 7 * slopes.astype(np.float64)).astype(np.float32)
    return slopes, offsets


def lines() -> npt.NDArray[np.int64]:
    """S_z and I_z of the eight zones for every peak, [256, 8]: an f32 in the lower and one in the upper half."""
    slopes, offsets = np.empty((256, 8), np.float32), np.empty((256, 8), np.float32)
    slopes[:, :7], offsets[:, :7] = _SLOPES, _OFFSETS
    slopes[:, 7], offsets[:, 7] = last_lines()
    return slopes.view(np.uint32).astype(np.int64) | offsets.view(np.uint32).astype(np.int64) << 32


def last_zone() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """1 / S_7, and the last zone's width in zone widths, for every peak."""
    ends = np.maximum(USUAL_END, peaks().astype(np.float64) * 32 / 17)
    return (1 / last_lines()[0].astype(np.float64)).astype(np.float32), (ends - 7).astype(np.float32)


def centroids() -> npt.NDArray[np.float32]:
    """Means of N(0, 1) in the cells of depths 1 to 8, one depth behind the other: cell j of depth b is at 2^(b−1) − 1 + j."""
    return np.array([centroid for planes in range(1, 9) for centroid in _centroids(planes)], dtype=np.float32)


def distortions() -> npt.NDArray[np.float64]:
    """D_b for 0 to 10 planes; that of one plane follows from the packet's κ instead."""
    found = [1.0]
    for planes in range(1, 9):
        steps = _edges(planes)
        terms = []
        for low, high, centre in zip(steps, steps[1:], _centroids(planes), strict=False):
            # The second moment of a cell is mass + low φ(low) − high φ(high).
            upper = 0.0 if high == math.inf else high * _density(high)
            terms += [low * _density(low), -upper, _mass(low, high), -_mass(low, high) * centre * centre]
        found.append(2 * math.fsum(terms))
    return np.array([*found, found[8] / 65536, 0.0])


def _edges(planes: int) -> list[float]:
    """Edges of the cells of one sign, in σ."""
    cells = 1 << (planes - 1)
    return [_position(cell * CODES // cells) for cell in range(cells)] + [math.inf]


def _position(code: int) -> float:
    """Where a code of the usual zones lies, in σ."""
    zone = max(zone for zone, start in enumerate(ZONE_STARTS) if start <= code)
    end = (*ZONE_STARTS[1:], CODES)[zone]
    width = 1.0 if zone < 7 else USUAL_END - 7
    return ZONE_WIDTH * (zone + (code - ZONE_STARTS[zone]) / (end - ZONE_STARTS[zone]) * width)


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _mass(low: float, high: float) -> float:
    if low < 0.5:
        return (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
    return (math.erfc(low / math.sqrt(2)) - math.erfc(high / math.sqrt(2))) / 2


def _centroids(planes: int) -> list[float]:
    steps = _edges(planes)
    return [(_density(low) - (0.0 if high == math.inf else _density(high))) / _mass(low, high) for low, high in zip(steps, steps[1:], strict=False)]


@triton.jit
def _by_zone(zone, v0, v1, v2, v3, v4, v5, v6, v7):
    """One of eight values, by the zone's three bits."""
    odd = (zone & 1) == 1
    low = tl.where((zone & 2) == 2, tl.where(odd, v3, v2), tl.where(odd, v1, v0))
    high = tl.where((zone & 2) == 2, tl.where(odd, v7, v6), tl.where(odd, v5, v4))
    return tl.where(zone >= 4, high, low)


@triton.jit
def inverse_line_of(zone, inverse, offset):
    """1 / S_z, rounded, and I_z; `inverse` and `offset` are the last zone's."""
    return (
        _by_zone(zone, _R0, _R1, _R2, _R3, _R4, _R5, _R6, inverse),
        _by_zone(zone, _I0, _I1, _I2, _I3, _I4, _I5, _I6, offset),
    )


@triton.jit
def zone_of(code):
    """The last zone that begins at or before a code."""
    low = (code >= _B1).to(tl.int32) + (code >= _B2).to(tl.int32) + (code >= _B3).to(tl.int32) + (code >= _B4).to(tl.int32)
    return low + (code >= _B5).to(tl.int32) + (code >= _B6).to(tl.int32) + (code >= _B7).to(tl.int32)


@triton.jit
def fine_magnitude(raised, inverse, offset):
    """Zone widths of a code, of which 2^23 more is given, an f32; `inverse` and `offset` are 1 / S_7 and I_7."""
    # A zone's codes are farther apart than the one's before: of all lines the highest is that of the code's zone.
    code = raised - 8388608.0
    most = tl.maximum(code * _R0, tl.fma(code, _R1, _O1))
    most = tl.maximum(most, tl.fma(code, _R2, _O2))
    most = tl.maximum(most, tl.fma(code, _R3, _O3))
    most = tl.maximum(most, tl.fma(code, _R4, _O4))
    most = tl.maximum(most, tl.fma(code, _R5, _O5))
    most = tl.maximum(most, tl.fma(code, _R6, _O6))
    return tl.maximum(most, (raised - offset) * inverse)


@triton.jit
def code_word(v, scale, line):
    """The code word of a working value: its sign, and the 23 bits of its magnitude's code, every operation in f32 and rounded. `line` points at the packet's eight lines."""
    y = tl.abs(v) * scale
    found = tl.load(line + tl.minimum(y, 7.0).to(tl.int32))
    slope, offset = found.to(tl.int32).to(tl.float32, bitcast=True), (found >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    # From 2^23 on f32s are whole numbers: rounding this sum is rounding to a code, and its lowest 23 bits are the code. Fused with the product it would be another one now and then.
    g = tl.minimum((y * slope) + offset, 16777215.0)
    code = g.to(tl.uint32, bitcast=True) << 8
    return (code & 0x7FFFFFFF) | (v.to(tl.uint32, bitcast=True) & 0x80000000)
