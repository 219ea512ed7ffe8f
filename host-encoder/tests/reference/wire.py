# SPDX-License-Identifier: Apache-2.0
"""Codecs, layout and header: what a packet looks like, whatever it holds."""

import struct
from dataclasses import dataclass

from float32 import CANONICAL_NAN, bits, from_bits

HEADER = 20
VERSION = 4


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


def check(content: bytes) -> int:
    """CRC-16/M17, the check over the header's first 18 bytes."""
    register = 0xFFFF
    for byte in content:
        register ^= byte << 8
        for _ in range(8):
            register = (register << 1 ^ (0x5935 if register & 0x8000 else 0)) & 0xFFFF
    return register


assert check(b"123456789") == 0x772B


def checked(packet: bytes) -> bytes:
    """The packet with the check that its header calls for."""
    return packet[: HEADER - 2] + check(packet[: HEADER - 2]).to_bytes(2, "big") + packet[HEADER:]


def masked(packet: bytes, incarnation: int) -> bytes:
    """The packet with the mask of an incarnation of its sender over message and check, or without it where it had that."""
    z = incarnation * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    z ^= z >> 31
    mask = bytes(4) + z.to_bytes(8, "big")[:4] + bytes(10) + z.to_bytes(8, "big")[6:]
    return bytes(a ^ b for a, b in zip(packet, mask)) + packet[HEADER:]


@dataclass(frozen=True)
class Envelope:
    """What a receiver is told of the message that it expects, and every header says."""

    job: int
    rank: int
    message: int


@dataclass(frozen=True)
class Tensor:
    """One of those that a message is made of."""

    coordinates: int
    layer_class: int


@dataclass(frozen=True)
class Row:
    """Which of the message's coordinates a row holds."""

    begin: int
    # Coordinates of the message, and the same with padding.
    used: int
    padded: int
    layer_class: int


@dataclass(frozen=True)
class Slot:
    """Where a packet's coordinates lie."""

    row: int
    # First coordinate within the row, and how many.
    start: int
    n: int


def row_lengths(coordinates: int, row_log2: int) -> list[tuple[int, int]]:
    """How a tensor falls into rows: coordinates of the tensor, and the same with padding."""
    full = 1 << row_log2
    out = [(full, full)] * (coordinates // full)
    left = coordinates % full
    while left:
        padded = max(32, 1 << (left - 1).bit_length())
        used = left if padded <= 256 or padded - left <= padded // 32 else padded // 2
        out.append((used, padded if used == left else used))
        left -= used
    return out


class Layout:
    """How tensors fall into rows and packets."""

    def __init__(self, tensors: list[Tensor], per_packet: int, row_log2: int):
        assert tensors and all(tensor.coordinates >= 1 and 0 <= tensor.layer_class <= 7 for tensor in tensors)
        assert 5 <= row_log2 <= 20
        assert per_packet % 32 == 0 and 32 <= per_packet <= 8160
        self.rows: list[Row] = []
        self.slots: list[Slot] = []
        begin = 0
        for tensor in tensors:
            for used, padded in row_lengths(tensor.coordinates, row_log2):
                blocks, packets = padded // 32, -(-padded // per_packet)
                edges = [(k * (blocks // packets) + min(k, blocks % packets)) * 32 for k in range(packets + 1)]
                self.slots += [Slot(len(self.rows), a, b - a) for a, b in zip(edges, edges[1:])]
                self.rows.append(Row(begin, used, padded, tensor.layer_class))
                begin += used
        assert len(self.slots) <= 1 << 20

    def row(self, gradient: list[float], row: int) -> list[float]:
        """The row's coordinates, padded."""
        one = self.rows[row]
        return gradient[one.begin : one.begin + one.used] + [0.0] * (one.padded - one.used)

    def indices(self, row: int) -> list[int]:
        """Indices of the row's packets."""
        return [index for index, slot in enumerate(self.slots) if slot.row == row]


@dataclass
class Header:
    """The 20 bytes at the front of a DATA packet."""

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
    twice: bool
    sigma: float
    kappa: int
    peak: int

    def to_bytes(self) -> bytes:
        """Big-endian, as everything."""
        flags = self.codec.id << 5 | self.important << 4 | self.layer_class << 1 | self.last
        stream = self.job << 10 | self.rank
        place = self.first_plane << 20 | self.index
        # No mark has `twice` set: rows that are not finite are not rotated.
        sigma = self.twice << 31 | bits(self.sigma) if self.sigma == self.sigma else CANONICAL_NAN
        content = (
            struct.pack(">BBHI", VERSION << 4 | 1, flags, stream, self.message)
            + place.to_bytes(3, "big")
            + struct.pack(">BIBB", self.n // 32, sigma, self.kappa, self.peak)
        )
        return checked(content)


class Refused(Exception):
    """Why a receiver does not take a packet."""


def parse_header(packet: bytes) -> Header:
    """The header, or the reason why the bytes are no DATA packet of this version."""
    if len(packet) < HEADER:
        raise Refused("shorter than a header")
    kind, flags, stream, message, place_high, place_low, units, sigma, kappa, peak = struct.unpack(
        ">BBHIBHBIBB", packet[: HEADER - 2]
    )
    if kind >> 4 != VERSION:
        raise Refused("version")
    if kind & 15 != 1:
        raise Refused("kind")
    if checked(packet) != packet:
        raise Refused("check")
    codec = next((codec for codec in CODECS if codec.id == flags >> 5), None)
    if codec is None:
        raise Refused("codec")
    place = place_high << 16 | place_low
    if place >> 20 >= len(codec.planes):
        raise Refused("first plane")
    if units == 0:
        raise Refused("no coordinates")
    # `twice` stands where an f32 has its sign; the mark is all 32 bits.
    twice, sigma = sigma >> 31, sigma & 0x7FFFFFFF
    if sigma >= 0x7F800000 and (sigma != CANONICAL_NAN or twice):
        raise Refused("sigma")
    if twice and not codec.rotates:
        raise Refused("rotated twice, by a codec that does not rotate")
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
        twice=bool(twice),
        sigma=from_bits(sigma),
        kappa=kappa,
        peak=peak,
    )
