# SPDX-License-Identifier: Apache-2.0
"""Codecs, layout and header: what a packet looks like, whatever it holds."""

import struct
from dataclasses import dataclass

from float32 import CANONICAL_NAN, bits, from_bits

HEADER = 20
VERSION = 5
# Where a packet has more blocks, its zero mask stands in the body.
MASK_IN_HEADER = 14


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


def mask_bytes(codec: Codec, n: int) -> int:
    """Bytes of the zero mask in front of plane 0."""
    blocks = n // 32
    return -(-blocks // 8) if codec.rotates and blocks > MASK_IN_HEADER else 0


def plane_bytes(codec: Codec, plane: int, n: int) -> int:
    """Bytes of one plane of a packet of n coordinates, the mask in front of plane 0 among them."""
    return n // 8 * codec.planes[plane] + (mask_bytes(codec, n) if plane == 0 else 0)


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
        assert len(self.slots) <= 1 << 24

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
    # Bit i: the packet's block i is zero. None where the header has no room for it.
    zeros: int | None
    twice: bool
    sigma: float
    kappa: int
    peak: int

    def to_bytes(self) -> bytes:
        """Big-endian, as everything."""
        flags = self.codec.id << 5 | self.important << 4 | self.layer_class << 1 | self.last
        stream = self.job << 10 | self.rank
        sigma = bits(self.sigma) if self.sigma == self.sigma else CANONICAL_NAN
        assert sigma >> 31 == 0 and sigma & 0xFFF == 0
        shape = self.index << 40 | self.first_plane << 36 | self.twice << 35 | sigma >> 12 << 16 | blocks_field(self.n, self.zeros)
        return checked(struct.pack(">BBHIQBB", VERSION << 4 | 1, flags, stream, self.message, shape, self.kappa, self.peak))


def blocks_field(n: int, zeros: int | None) -> int:
    """The 16 bits that say how many blocks a packet has, and where there is room which of them are zero."""
    blocks = n // 32
    assert n % 32 == 0 and 1 <= blocks <= 255 and (zeros is None) == (blocks > MASK_IN_HEADER)
    return 0x8000 + blocks if zeros is None else 1 << blocks | zeros


class Refused(Exception):
    """Why a receiver does not take a packet."""


def parse_header(packet: bytes) -> Header:
    """The header, or the reason why the bytes are no DATA packet of this version."""
    if len(packet) < HEADER:
        raise Refused("shorter than a header")
    kind, flags, stream, message, shape, kappa, peak = struct.unpack(">BBHIQBB", packet[: HEADER - 2])
    if kind >> 4 != VERSION:
        raise Refused("version")
    if kind & 15 != 1:
        raise Refused("kind")
    if checked(packet) != packet:
        raise Refused("check")
    codec = next((codec for codec in CODECS if codec.id == flags >> 5), None)
    if codec is None:
        raise Refused("codec")
    first_plane, twice, sigma, field = shape >> 36 & 15, shape >> 35 & 1, (shape >> 16 & 0x7FFFF) << 12, shape & 0xFFFF
    if first_plane >= len(codec.planes):
        raise Refused("first plane")
    zeros: int | None
    if field >> 15:
        blocks, zeros = field & 0x7FFF, None
        if not MASK_IN_HEADER < blocks <= 255:
            raise Refused("blocks")
    else:
        blocks = field.bit_length() - 1
        if blocks < 1:
            raise Refused("no coordinates")
        zeros = field - (1 << blocks)
    if sigma >= 0x7F800000 and sigma != CANONICAL_NAN:
        raise Refused("sigma")
    if (twice or zeros) and (sigma == CANONICAL_NAN or not codec.rotates):
        raise Refused("rotated twice or zero blocks, with the mark or a codec that does not rotate")
    return Header(
        codec=codec,
        important=bool(flags >> 4 & 1),
        layer_class=flags >> 1 & 7,
        last=bool(flags & 1),
        job=stream >> 10,
        rank=stream & 0x3FF,
        message=message,
        first_plane=first_plane,
        index=shape >> 40,
        n=blocks * 32,
        zeros=zeros,
        twice=bool(twice),
        sigma=from_bits(sigma),
        kappa=kappa,
        peak=peak,
    )
