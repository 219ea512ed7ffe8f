# SPDX-License-Identifier: Apache-2.0
"""How tensors fall into rows and packets (docs/reference/wire-format.md, §2), and the table of it that kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .. import _native

HEADER_BYTES = 20
PLANES = 10
#: The longest row: what one program of a kernel holds, 64 coordinates a thread of two warps.
MOST_ROW_LOG2 = 12
_LEAST_ROW_LOG2 = 5
_MOST_PACKETS = 1 << 24
#: Blocks of a packet whose mask of zero blocks its header has room for.
MASK_IN_HEADER = 14
_MOST_COORDINATES = 8160


def bits_of(planes: int) -> int:
    """Bits a coordinate of so many planes."""
    return min(planes, 8) + 8 * max(planes - 8, 0)


def packet_bytes(coordinates: int, planes: int) -> int:
    """Bytes of a packet."""
    blocks = coordinates // 32
    mask = -(-blocks // 8) if blocks > MASK_IN_HEADER else 0
    return HEADER_BYTES + mask + coordinates // 8 * bits_of(planes)


def row_lengths(coordinates: int, row_log2: int) -> list[tuple[int, int]]:
    """The rows of a tensor: coordinates, and the same with padding."""
    full = 1 << row_log2
    rows = [(full, full)] * (coordinates // full)
    left = coordinates % full
    while left:
        padded = max(32, 1 << (left - 1).bit_length())
        if padded <= 256 or padded - left <= padded // 32:
            rows.append((left, padded))
            break
        rows.append((padded // 2, padded // 2))
        left -= padded // 2
    return rows


@dataclass(frozen=True)
class Row:
    """One row of a message."""

    #: Of the message, from 0.
    number: int
    tensor: int
    #: First coordinate, within the tensor.
    begin: int
    #: Coordinates of the tensor, and the same with padding.
    used: int
    padded: int
    layer_class: int
    #: Planes that are sent.
    planes: int
    #: Index of the first packet, and how many there are.
    first_packet: int
    packets: int
    #: Where the first packet begins among the bytes of all packets, whole.
    first_byte: int


@dataclass(frozen=True)
class Layout:
    """A message's rows, in order, and where each packet lies among the bytes of all of them."""

    lengths: tuple[int, ...]
    coordinates_per_packet: int
    rows: tuple[Row, ...]
    #: Byte at which each packet begins; the last is the length of all.
    offsets: tuple[int, ...]
    #: Coordinates of each packet.
    coordinates: tuple[int, ...]

    @property
    def packets(self) -> int:
        return len(self.coordinates)

    @property
    def bytes(self) -> int:
        return self.offsets[-1]

    def coordinates_of(self, rows: range) -> tuple[int, int]:
        """First coordinate within the tensor, and one past the last, of rows of one tensor that follow each other."""
        last = self.rows[rows.stop - 1]
        return self.rows[rows.start].begin, last.begin + last.used

    def packets_of(self, rows: range) -> tuple[int, int]:
        """First packet, and one past the last, of rows that follow each other."""
        last = self.rows[rows.stop - 1]
        return self.rows[rows.start].first_packet, last.first_packet + last.packets

    def bytes_of(self, rows: range) -> tuple[int, int]:
        """First byte, and one past the last, of the packets of rows that follow each other."""
        first, end = self.packets_of(rows)
        return self.offsets[first], self.offsets[end]

    def places(self, row: Row) -> list[tuple[int, int]]:
        """First coordinate within the row, and how many, of each packet of a row."""
        edges = [_edge(row.padded // 32, row.packets, k) for k in range(row.packets + 1)]
        return [(a, b - a) for a, b in zip(edges, edges[1:], strict=False)]


def _edge(blocks: int, packets: int, nth: int) -> int:
    """Where a row's packet begins, in coordinates: those of one block more come first."""
    each, longer = divmod(blocks, packets)
    return (nth * each + min(nth, longer)) * 32


def layout_of(
    lengths: Sequence[int],
    *,
    planes: int | Sequence[int] = PLANES,
    layer_classes: Sequence[int] | None = None,
    coordinates_per_packet: int | None = None,
    row_log2: int = MOST_ROW_LOG2,
) -> Layout:
    """The layout of a message of tensors of these lengths. `planes` are sent of all rows, or a number of each row (again from the first one where there are more rows)."""
    choice = [planes] if isinstance(planes, int) else list(planes)
    for sent in choice or [0]:
        if not 1 <= sent <= PLANES:
            raise ValueError(f"planes: {sent}; rht has planes 1 to {PLANES}")
    classes = [0] * len(lengths) if layer_classes is None else list(layer_classes)
    if len(classes) != len(lengths):
        raise ValueError(f"layer_classes: {len(classes)} of them for {len(lengths)} tensors")
    per_packet = _native.coordinates_per_packet(max(choice)) if coordinates_per_packet is None else coordinates_per_packet
    if per_packet % 32 or not 32 <= per_packet <= _MOST_COORDINATES:
        raise ValueError(f"coordinates_per_packet: {per_packet}; valid are multiples of 32 from 32 to {_MOST_COORDINATES}")
    if not _LEAST_ROW_LOG2 <= row_log2 <= MOST_ROW_LOG2:
        beyond = "; the host's codec has longer ones, and collectives make none" if row_log2 > MOST_ROW_LOG2 else ""
        raise ValueError(f"row_log2: {row_log2}; a GPU takes rows of 2^{_LEAST_ROW_LOG2} to 2^{MOST_ROW_LOG2} coordinates{beyond}")
    if not lengths:
        raise ValueError("tensors: none; a message has one at least")
    rows: list[Row] = []
    offsets, coordinates = [0], list[int]()
    for tensor, (length, layer_class) in enumerate(zip(lengths, classes, strict=True)):
        if length < 1:
            raise ValueError(f"tensors[{tensor}]: empty; a tensor has at least one coordinate")
        if not 0 <= layer_class <= 7:
            raise ValueError(f"layer_classes[{tensor}]: {layer_class}; valid are 0 to 7")
        begin = 0
        for used, padded in row_lengths(length, row_log2):
            packets = -(-padded // per_packet)
            sent = choice[len(rows) % len(choice)]
            row = Row(len(rows), tensor, begin, used, padded, layer_class, sent, len(coordinates), packets, offsets[-1])
            blocks = padded // 32
            for k in range(packets):
                n = _edge(blocks, packets, k + 1) - _edge(blocks, packets, k)
                coordinates.append(n)
                offsets.append(offsets[-1] + packet_bytes(n, sent))
            rows.append(row)
            begin += used
    if len(coordinates) > _MOST_PACKETS:
        raise ValueError(f"tensors: {len(coordinates)} packets; a message has at most {_MOST_PACKETS}")
    return Layout(tuple(lengths), per_packet, tuple(rows), tuple(offsets), tuple(coordinates))


#: Columns of the table, 64-bit integers, a line a row; lines are aligned to 16 bytes, wherever a launch begins: kernels are compiled for that.
COLUMNS = 10


def table_of(layout: Layout) -> list[list[int]]:
    """What kernels know of the rows."""
    last = layout.rows[-1].number
    return [
        [
            row.tensor,
            row.begin,
            row.used,
            row.number,
            row.first_packet,
            row.layer_class,
            row.planes,
            row.first_byte,
            int(row.number == last),
            (row.padded.bit_length() - 1) | row.packets << 8,
        ]
        for row in layout.rows
    ]
