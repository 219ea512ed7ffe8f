"""Codecs, layout and header: what a packet looks like, whatever it holds."""

import struct
from dataclasses import dataclass

from float32 import CANONICAL_NAN, bits, from_bits

HEADER = 18
VERSION = 2


@dataclass(frozen=True)
class Codec:
    """One of the codecs."""

    name: str
    id: int
    # Bits per coordinate of every plane.
    planes: tuple[int, ...]
    rotates: bool


CODECS = [
    Codec("rht", 0, (1,) * 8 + (8,) * 2, True),
    Codec("rht-paper", 1, (1,) * 8 + (8,) * 3, True),
    Codec("sign-magnitude", 2, (1,) * 8 + (8,) * 3, False),
    Codec("sq", 3, (1,) * 8 + (8,) * 3 + (1,), False),
    Codec("sd", 4, (1,) * 8 + (8,) * 3 + (1,), False),
    Codec("raw", 5, (32,), False),
]


def codec_named(name: str) -> Codec:
    """A codec by its name."""
    return next(codec for codec in CODECS if codec.name == name)


def plane_bytes(codec: Codec, plane: int, n: int) -> int:
    """Bytes of one plane of a packet of n coordinates."""
    return n // 8 * codec.planes[plane]


def packet_bytes(codec: Codec, n: int, planes: int, first_plane: int = 0) -> int:
    """Bytes of a packet of n coordinates that carries the planes from `first_plane` up to `planes`."""
    return HEADER + sum(plane_bytes(codec, plane, n) for plane in range(first_plane, planes))


@dataclass(frozen=True)
class Slot:
    """Where a packet's coordinates lie."""

    row: int
    # First coordinate within the row, and how many.
    start: int
    n: int


class Layout:
    """How N coordinates fall into rows and packets."""

    def __init__(self, coordinates: int, per_packet: int, row_log2: int):
        assert coordinates >= 1 and 5 <= row_log2 <= 20
        assert per_packet % 32 == 0 and 32 <= per_packet <= 8160
        self.coordinates = coordinates
        # Per row: coordinates of the message, and the same with padding.
        self.rows: list[tuple[int, int]] = []
        self.slots: list[Slot] = []
        for row, begin in enumerate(range(0, coordinates, 1 << row_log2)):
            used = min(coordinates - begin, 1 << row_log2)
            padded = max(32, 1 << (used - 1).bit_length())
            self.rows.append((used, padded))
            blocks, packets = padded // 32, -(-padded // per_packet)
            edges = [k * blocks // packets * 32 for k in range(packets + 1)]
            self.slots += [Slot(row, a, b - a) for a, b in zip(edges, edges[1:])]
        self.row_log2 = row_log2
        assert len(self.slots) <= 1 << 20

    def row(self, gradient: list[float], row: int) -> list[float]:
        """The row's coordinates, padded."""
        used, padded = self.rows[row]
        begin = row << self.row_log2
        return gradient[begin : begin + used] + [0.0] * (padded - used)

    def indices(self, row: int) -> list[int]:
        """Indices of the row's packets."""
        return [index for index, slot in enumerate(self.slots) if slot.row == row]


@dataclass
class Header:
    """The 18 bytes at the front of a DATA packet."""

    codec: Codec
    important: bool
    layer_class: int
    last: bool
    job: int
    rank: int
    message: int
    first_plane: int
    index: int
    n: int
    sigma: float
    kappa: int
    peak: int

    def to_bytes(self) -> bytes:
        """Big-endian, as everything."""
        flags = self.codec.id << 5 | self.important << 4 | self.layer_class << 1 | self.last
        stream = self.job << 10 | self.rank
        place = self.first_plane << 20 | self.index
        sigma = bits(self.sigma) if self.sigma == self.sigma else CANONICAL_NAN
        return (
            struct.pack(">BBHI", VERSION << 4 | 1, flags, stream, self.message)
            + place.to_bytes(3, "big")
            + struct.pack(">BIBB", self.n // 32, sigma, self.kappa, self.peak)
        )


class Refused(Exception):
    """Why a receiver does not take a packet."""


def parse_header(packet: bytes) -> Header:
    """The header, or the reason why the bytes are no DATA packet of this version."""
    if len(packet) < HEADER:
        raise Refused("shorter than a header")
    kind, flags, stream, message, place_high, place_low, units, sigma, kappa, peak = struct.unpack(
        ">BBHIBHBIBB", packet[:HEADER]
    )
    if kind >> 4 != VERSION:
        raise Refused("version")
    if kind & 15 != 1:
        raise Refused("kind")
    if flags >> 5 >= len(CODECS):
        raise Refused("codec")
    codec = CODECS[flags >> 5]
    place = place_high << 16 | place_low
    if place >> 20 >= len(codec.planes):
        raise Refused("first plane")
    if units == 0:
        raise Refused("no coordinates")
    if sigma >= 0x7F800000 and sigma != CANONICAL_NAN:
        raise Refused("sigma")
    return Header(
        codec=codec,
        important=bool(flags >> 4 & 1),
        layer_class=flags >> 1 & 7,
        last=bool(flags & 1),
        job=stream >> 10,
        rank=stream & 0x3FF,
        message=message,
        first_plane=place >> 20,
        index=place & 0xFFFFF,
        n=units * 32,
        sigma=from_bits(sigma),
        kappa=kappa,
        peak=peak,
    )
