# SPDX-License-Identifier: Apache-2.0
"""Packets of a tensor's largest coordinates, in NumPy: what they take on the wire, and what a trim leaves of them.

Each packet covers a range of coordinates, has a head of 32 bytes, and holds entries of (place, value) in descending order of magnitude. So a trim leaves its largest entries.
Magnitudes have four fraction bits. Gaps between entries are exponential-Golomb codes, with a sign bit behind each. This is the coding of sparse messages, which the wire format had until
a228cd63 (docs/project/removed.md); here are its values and its lengths, without the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Bytes: of a packet at most, and of its head.
PACKET, HEAD = 1452, 32
#: Entries of a packet at most.
MOST = 255 * 32
FRACTION_BITS = 4
SHIFT = 23 - FRACTION_BITS


@dataclass(frozen=True)
class Packet:
    """Entries in descending order of magnitude."""

    places: npt.NDArray[np.int64]
    values: npt.NDArray[np.float32]
    #: The bit at which each entry ends, counted from the head's end.
    ends: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """In bytes."""
        return HEAD + (int(self.ends[-1]) + 7) // 8

    def trimmed(self, size: int) -> int:
        """How many entries the first `size` bytes hold."""
        return int(np.searchsorted(self.ends, 8 * (size - HEAD), side="right"))


def _bits(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bits of each number; none of 0."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


def _packet(places: npt.NDArray[np.int64], levels: npt.NDArray[np.int64], negative: npt.NDArray[np.bool_]) -> Packet:
    largest, span = levels.max(), places[-1] - places[0] + 1
    keys = (largest - levels) * span + places - places[0]
    order = np.argsort(keys)
    gaps = np.diff(keys[order], prepend=-1) - 1
    base = max(0, (4 * int(_bits(gaps).sum()) + 3 * gaps.size) // (4 * gaps.size) - 1)
    ends = np.cumsum(2 * _bits(gaps + (1 << base)) - base)
    values = (levels << SHIFT).astype(np.uint32).view(np.float32)
    return Packet(places[order], np.where(negative, -values, values)[order], ends)


def packets(values: npt.NDArray[np.float32], k: int) -> Iterator[Packet]:
    """Of the `k` coordinates of largest magnitude; of equal ones those that come first."""
    unsigned = values.view(np.uint32) & 0x7FFFFFFF
    places = np.sort(np.argsort(-unsigned.astype(np.int64), kind="stable")[:k])
    magnitudes = unsigned[places].astype(np.int64)
    # To nearest, ties to even, and no larger than the largest finite f32.
    levels = np.minimum((magnitudes + (1 << SHIFT - 1) - 1 + (magnitudes >> SHIFT & 1)) >> SHIFT, 0x7F7FFFFF >> SHIFT)
    places, levels = places[levels > 0], levels[levels > 0]
    negative = np.signbit(values[places])
    at, guess = 0, PACKET // 2
    while at < places.size:
        count = min(max(guess, 1), MOST, places.size - at)
        while True:
            part = slice(at, at + count)
            packet = _packet(places[part], levels[part], negative[part])
            if len(packet) <= PACKET:
                break
            count = max(1, 63 * count * (PACKET - HEAD) // (64 * (len(packet) - HEAD)))
        guess = count * (PACKET - HEAD) // (len(packet) - HEAD)
        yield packet
        at += count


def values(packets: list[Packet], coordinates: int, sizes: Iterable[int | None] | None = None) -> npt.NDArray[np.float32]:
    """What arrives where each packet is trimmed to its size in bytes (None: it is whole); all other coordinates are 0."""
    out = np.zeros(coordinates, np.float32)
    for packet, size in zip(packets, sizes or [None] * len(packets), strict=True):
        held = packet.ends.size if size is None else packet.trimmed(size)
        out[packet.places[:held]] = packet.values[:held]
    return out
