# SPDX-License-Identifier: Apache-2.0
"""The embedded quantiser of the codec rht: its zones, and everything that follows from them."""

import math

from float32 import f32

# Zones are 17/32 of sigma wide; zone z begins at the code ZONE_STARTS[z].
ZONE_WIDTH = 17 / 32
ZONE_STARTS = [start << 13 for start in (0, 257, 493, 682, 822, 916, 972, 1004)]
CODES = 1 << 23
# Where the last zone ends, in zone widths, unless the packet's peak lies beyond.
USUAL_END = 8.625
PLANES = 10


def peak_value(peak: int) -> float:
    """The f32 nearest to 2^(peak/32)."""
    return f32(2.0 ** (peak / 32))


def last_zone_end(peak: int) -> float:
    """T: the end of the last zone, in zone widths."""
    return max(USUAL_END, peak_value(peak) * 32 / 17)


def zone_slopes(peak: int) -> list[float]:
    """S_z: codes per zone width, as f32."""
    slopes = [float(b - a) for a, b in zip(ZONE_STARTS, ZONE_STARTS[1:])]
    return slopes + [f32((CODES - ZONE_STARTS[7]) / (last_zone_end(peak) - 7))]


def zone_offsets(slopes: list[float]) -> list[float]:
    """I_z: 2^23 and the code that the zone's line has at magnitude 0, as f32."""
    return [f32(CODES + start - zone * slope) for zone, (start, slope) in enumerate(zip(ZONE_STARTS, slopes))]


def magnitude_code(y: float, slopes: list[float], offsets: list[float]) -> int:
    """The 23-bit code of a magnitude y >= 0 (an f32, in zone widths)."""
    zone = min(int(y), 7)
    product = f32(y * slopes[zone])
    # An f32 from 2^23 on is a whole number: rounding the sum is rounding to a code.
    total = f32(product + offsets[zone])
    return int(min(total, 2 * CODES - 1)) - CODES


def zone_of(code: int) -> int:
    """The last zone that begins at or before a code."""
    return max(z for z, start in enumerate(ZONE_STARTS) if start <= code)


def code_position(code: float) -> float:
    """Where a code (or an edge between codes) of the usual zones lies, in units of sigma."""
    zone = zone_of(code)
    ends = ZONE_STARTS[1:] + [CODES]
    widths = [1.0] * 7 + [USUAL_END - 7]
    share = (code - ZONE_STARTS[zone]) / (ends[zone] - ZONE_STARTS[zone])
    return ZONE_WIDTH * (zone + share * widths[zone])


def edges(planes: int) -> list[float]:
    """Edges of the cells of one sign at a number of planes from 1 to 8, in units of sigma; the last is infinity."""
    cells = 1 << (planes - 1)
    return [code_position(cell * CODES // cells) for cell in range(cells)] + [math.inf]


def density(x: float) -> float:
    """phi(x) of N(0, 1)."""
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def mass(low: float, high: float) -> float:
    """Phi(high) - Phi(low) for 0 <= low < high."""
    if low < 0.5:
        return (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2))) / 2
    return (math.erfc(low / math.sqrt(2)) - math.erfc(high / math.sqrt(2))) / 2


def centroid(low: float, high: float) -> float:
    """Mean of N(0, 1) in [low, high)."""
    if high == math.inf:
        return density(low) / mass(low, high)
    # phi(low) - phi(high), without cancellation
    return density(low) * -math.expm1((low * low - high * high) / 2) / mass(low, high)


def centroids(planes: int) -> list[float]:
    """Centroids of the cells of one sign at a number of planes from 1 to 8, in units of sigma, before rounding."""
    steps = edges(planes)
    return [centroid(low, high) for low, high in zip(steps, steps[1:])]


def distortion(planes: int) -> float:
    """D_b: mean squared error of N(0, 1) at the centroids."""
    if planes >= 10:
        return 0.0
    if planes == 9:
        return distortion(8) / 65536
    if planes == 0:
        return 1.0
    steps = edges(planes)
    # E x^2 - E c^2 cell by cell: the second moment of a cell is mass + low phi(low) - high
    # phi(high).
    total = []
    for low, high, c in zip(steps, steps[1:], centroids(planes)):
        upper = 0.0 if high == math.inf else high * density(high)
        total += [low * density(low), -upper, mass(low, high), -mass(low, high) * c * c]
    return 2 * math.fsum(total)


CENTROIDS = {planes: [f32(c) for c in centroids(planes)] for planes in range(1, 9)}
# Ten digits, as the page prints them: what is derived from these is then the same under every C
# library.
DISTORTIONS = [float(f"{distortion(planes):.10g}") for planes in range(PLANES + 1)]


def magnitude(code: int, planes: int, peak: int) -> float:
    """Magnitude of a code of which 2 to 10 planes are known (the others zero), in units of sigma."""
    end = last_zone_end(peak)
    if planes >= 9:
        zone = zone_of(code)
        # Whole codes are rounded ones, so that they need no half.
        half = {9: 128, 10: 0}[planes]
        # By the encoder's own line, whose offset was rounded.
        slopes = zone_slopes(peak)
        return ZONE_WIDTH * (code + CODES + half - zone_offsets(slopes)[zone]) / slopes[zone]
    cells = 1 << (planes - 1)
    cell = code * cells // CODES
    low = cell * CODES // cells
    if end > USUAL_END and low >= ZONE_STARTS[7]:
        middle = low + CODES // cells / 2
        share = (middle - ZONE_STARTS[7]) / (CODES - ZONE_STARTS[7])
        return ZONE_WIDTH * (7 + share * (end - 7))
    return CENTROIDS[planes][cell]

