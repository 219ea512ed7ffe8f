# SPDX-License-Identifier: Apache-2.0
"""From the packets that arrived, trimmed or not, to a gradient. Arithmetic is binary64 with one rounding at the end, so
that results lie within the tolerance of any implementation's."""

import math
from dataclasses import dataclass, field

import quantiser
from encode import Key
from float32 import f32, from_bits
from philox import negated
from wire import HEADER, Codec, Envelope, Layout, Refused, mask_bytes, parse_header, plane_bytes

CEILING = 2.0**30


@dataclass
class Held:
    """What a receiver holds of one packet."""

    sigma: float
    kappa: int
    peak: int
    # The mask of zero blocks in the header, if it has one.
    zeros: int | None
    # Bytes of every plane, from its front; those of plane 0 with the mask in front of it.
    planes: list[bytes] = field(default_factory=list)


class Decoder:
    """Takes packets in any order, and decodes what there is."""

    def __init__(self, codec: Codec, layout: Layout, key: Key, envelope: Envelope, decoding: str):
        assert decoding in ("unbiased", "mmse", "paper")
        self.codec, self.layout, self.key, self.envelope, self.decoding = codec, layout, key, envelope, decoding
        # Whether a row was rotated twice; None before a packet of it arrives.
        self.twice: list[bool | None] = [None] * len(layout.rows)
        self.held: list[Held | None] = [None] * len(layout.slots)

    def receive(self, packet: bytes) -> None:
        """Takes a packet in, or raises `Refused`."""
        header = parse_header(packet)
        if header.codec is not self.codec:
            raise Refused("another codec")
        if header.job != self.envelope.job:
            raise Refused("another job")
        if header.rank != self.envelope.rank:
            raise Refused("another rank")
        if header.message != self.envelope.message:
            raise Refused("another message")
        if header.index >= len(self.held):
            raise Refused("index")
        slot = self.layout.slots[header.index]
        if header.layer_class != self.layout.rows[slot.row].layer_class:
            raise Refused("another layer class")
        if header.n != slot.n:
            raise Refused("number of coordinates")
        if self.twice[slot.row] not in (None, header.twice):
            raise Refused("differs from an earlier packet of the row")
        held = self.held[header.index]
        if held is None:
            held = Held(header.sigma, header.kappa, header.peak, header.zeros, [b""] * len(self.codec.planes))
        same_sigma = held.sigma == header.sigma or (math.isnan(held.sigma) and math.isnan(header.sigma))
        if not same_sigma or held.kappa != header.kappa or held.peak != header.peak or held.zeros != header.zeros:
            raise Refused("differs from an earlier packet")
        self.held[header.index] = held
        self.twice[slot.row] = header.twice
        body = packet[HEADER:]
        for plane in range(header.first_plane, len(self.codec.planes)):
            size = plane_bytes(self.codec, plane, header.n)
            content, body = body[:size], body[size:]
            if len(content) > len(held.planes[plane]):
                held.planes[plane] = content

    def known(self, index: int) -> list[tuple[int, int]]:
        """Per coordinate of a packet: planes known, code word; unknown bits are zero."""
        held, n = self.held[index], self.layout.slots[index].n
        bodies = [held.planes[0][mask_bytes(self.codec, n) :], *held.planes[1:]]
        out = []
        for j in range(n):
            planes = code = 0
            for plane, width in enumerate(self.codec.planes):
                content = bodies[plane]
                if width == 1:
                    if j // 8 >= len(content):
                        break
                    bit = content[j // 8] >> j % 8 & 1
                    code |= bit << 31 - plane
                elif width == 8:
                    if j >= len(content):
                        break
                    code |= content[j] << 8 * (10 - plane)
                else:
                    if 4 * j + 4 > len(content):
                        break
                    code = int.from_bytes(content[4 * j : 4 * j + 4], "big")
                planes += 1
            out.append((planes, code))
        # A coordinate counts as known beyond plane b only where plane b is whole.
        whole = 0
        for plane, content in enumerate(held.planes):
            if len(content) < plane_bytes(self.codec, plane, n):
                break
            whole += 1
        return [(min(planes, whole + 1), code) for planes, code in out]

    def zeros(self, index: int) -> int:
        """The mask of a packet's zero blocks, as far as it arrived."""
        held, size = self.held[index], mask_bytes(self.codec, self.layout.slots[index].n)
        if held.zeros is not None:
            return held.zeros
        return int.from_bytes(held.planes[0][:size], "little") if len(held.planes[0]) >= size else 0

    def distortion(self, planes: int, kappa: int) -> float:
        """D_b of a coordinate with so many planes."""
        if planes == 0:
            return 1.0
        flat = 1 - (kappa / 255) ** 2
        if planes == 1 or (planes <= 7 and kappa == 255):
            return flat
        return quantiser.DISTORTIONS[planes]

    def rotated_value(self, held: Held, planes: int, code: int, paper: float) -> float:
        """A rotated coordinate, normalised."""
        if planes == 0:
            return 0.0
        sign = -1.0 if code >> 31 else 1.0
        flat = held.sigma * held.kappa / 255
        if planes < quantiser.PLANES and self.decoding == "paper":
            return sign * paper
        if planes == 1 or (planes <= 5 and held.kappa == 255):
            return sign * flat
        if held.kappa == 255 and (planes == 6 or (planes == 7 and held.peak <= 1)) and (code & 0x7FFFFFFF) >> (32 - planes) == 58 >> (8 - planes):
            return sign * held.sigma
        return sign * held.sigma * quantiser.magnitude((code & 0x7FFFFFFF) >> 8, planes, held.peak)

    def row(self, row: int) -> list[float]:
        """One row, padding included."""
        d = self.layout.rows[row].padded
        present = [i for i in self.layout.indices(row) if self.held[i] is not None]
        out = [0.0] * d
        if any(math.isnan(self.held[i].sigma) for i in present):
            return [math.nan] * d
        if not present:
            return out
        known = {i: self.known(i) for i in present}
        if not self.codec.rotates:
            for i in present:
                start = self.layout.slots[i].start
                for j, (planes, code) in enumerate(known[i], start):
                    out[j] = from_bits(code) if planes > 0 else 0.0
            return out
        energy = shrunk = spread = 0.0
        count = 0
        for i in present:
            held, n = self.held[i], self.layout.slots[i].n
            square = held.sigma * held.sigma
            count += n
            energy += n * square
            spread += n * held.sigma * held.kappa / 255
            shrunk += square * sum(1 - self.distortion(planes, held.kappa) for planes, _ in known[i])
        factor = 1.0
        if self.decoding == "unbiased":
            factor = min(CEILING, d / count * energy / shrunk) if shrunk > 0 else 0.0
        largest = max(self.held[i].sigma for i in present)
        paper = min(CEILING * largest, energy / spread) if spread > 0 else 0.0
        for i in present:
            start = self.layout.slots[i].start
            for j, (planes, code) in enumerate(known[i], start):
                out[j] = factor * self.rotated_value(self.held[i], planes, code, paper)
        if self.twice[row]:
            out = rotated_back(out, negated(self.key, row, d, second=True))
        out = rotated_back(out, negated(self.key, row, d))
        for i in present:
            slot, zeros = self.layout.slots[i], self.zeros(i)
            for at in range(slot.n):
                if zeros >> at // 32 & 1:
                    out[slot.start + at] = 0.0
        return out

    def finish(self) -> list[float]:
        """The gradient, as f32."""
        out = []
        for index, row in enumerate(self.layout.rows):
            out += [f32(x) for x in self.row(index)[: row.used]]
        return out


def rotated_back(values: list[float], signs: list[bool]) -> list[float]:
    """S·H·v/√d: one rotation undone."""
    out, d = list(values), len(values)
    for level in range(d.bit_length() - 1):
        h = 1 << level
        for a in (a for a in range(d) if not a & h):
            out[a], out[a + h] = out[a] + out[a + h], out[a] - out[a + h]
    root = math.sqrt(d)
    return [(-x if minus else x) / root for x, minus in zip(out, signs)]
