#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sparse messages (docs/reference/wire-format.md, section 13) in plain Python; writes ../sparse_vectors.json and the page's example. --check fails where one is stale.

Python 3.11 or later, standard library only.
"""

import argparse
import hashlib
import json
import re
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from float32 import CANONICAL_NAN, bits, f32, from_hex, to_hex
from wire import HEADER, VERSION, Envelope, Refused, Tensor, checked

VECTORS = Path(__file__).resolve().parent.parent / "sparse_vectors.json"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "wire-format.md"
CODEC = 6
HEAD = HEADER + 12
INFINITY = 0x7F800000
MOST_ENTRIES = 255 * 32
ENVELOPE = Envelope(job=5, rank=700, message=0x01020304)


def runs(tensors: list[Tensor]) -> list[tuple[int, int, int]]:
    """Neighbouring tensors of one layer class: first coordinate, the one behind the last, the class."""
    out: list[tuple[int, int, int]] = []
    at = 0
    for tensor in tensors:
        if out and out[-1][2] == tensor.layer_class:
            out[-1] = (out[-1][0], at + tensor.coordinates, tensor.layer_class)
        else:
            out.append((at, at + tensor.coordinates, tensor.layer_class))
        at += tensor.coordinates
    return out


def level(magnitude: int, fraction: int) -> int:
    """The level of an f32's 31 bits below the sign."""
    s = 23 - fraction
    h = (1 << s - 1) - 1 + (magnitude >> s & 1) if s else 0
    return min((magnitude + h) >> s, 0x7F7FFFFF >> s)


@dataclass(frozen=True)
class Entry:
    """A coordinate that is sent."""

    index: int
    level: int
    negative: bool

    def bits(self, fraction: int) -> int:
        """The f32 that it decodes to."""
        return self.negative << 31 | self.level << 23 - fraction


def entries_of(values: dict[int, int], fraction: int) -> list[Entry]:
    """The entries of coordinates and their f32s' bits."""
    all_of_them = (Entry(i, level(u & 0x7FFFFFFF, fraction), bool(u >> 31)) for i, u in sorted(values.items()))
    return [entry for entry in all_of_them if entry.level]


def top(gradient: list[int], k: int) -> dict[int, int]:
    """The k coordinates of largest magnitude."""
    order = sorted(range(len(gradient)), key=lambda i: (-(gradient[i] & 0x7FFFFFFF), i))
    return {i: gradient[i] for i in order[:k]}


@dataclass(frozen=True)
class Packet:
    """A packet before its header says how many there are."""

    count: int
    sigma: int
    first: int
    final: int
    order: int
    layer_class: int
    content: bytes


def put(entries: list[Entry], fraction: int, layer_class: int) -> Packet:
    """A packet of entries, which are in order of coordinates."""
    first, final = entries[0].index, entries[-1].index
    top_level, span = max(entry.level for entry in entries), final - first + 1
    keyed = sorted(((top_level - entry.level) * span + entry.index - first, entry.negative) for entry in entries)
    gaps = [key - before - 1 for (key, _), before in zip(keyed, [-1] + [key for key, _ in keyed])]
    c = len(entries)
    order = max(0, (4 * sum(gap.bit_length() for gap in gaps) + 3 * c) // (4 * c) - 1)
    text = ""
    for gap, (_, negative) in zip(gaps, keyed):
        x = f"{gap + (1 << order):b}"
        text += "0" * (len(x) - 1 - order) + x + "01"[negative]
    text += "0" * (-len(text) % 8)
    content = int(text, 2).to_bytes(len(text) // 8, "big")
    return Packet(c, top_level << 23 - fraction, first, final, order, layer_class, content)


def encode(
    values: dict[int, int],
    tensors: list[Tensor],
    fraction: int,
    most_bytes: int,
    envelope: Envelope,
    important: bool,
) -> list[bytes]:
    """A message's packets."""
    ranges = runs(tensors)
    packets = []
    if any(u & 0x7FFFFFFF >= INFINITY for u in values.values()):
        packets.append(Packet(0, CANONICAL_NAN, 0, 0, 0, ranges[0][2], b""))
    else:
        entries = entries_of(values, fraction)
        guess = most_bytes // 2
        for begin, end, layer_class in ranges:
            left = [entry for entry in entries if begin <= entry.index < end]
            while left:
                c = min(max(guess, 1), MOST_ENTRIES, len(left))
                while True:
                    packet = put(left[:c], fraction, layer_class)
                    m = HEAD + len(packet.content)
                    if m <= most_bytes:
                        break
                    c = max(1, 63 * c * (most_bytes - HEAD) // (64 * (m - HEAD)))
                guess = c * (most_bytes - HEAD) // (m - HEAD)
                packets.append(packet)
                left = left[c:]
        if not packets:
            packets.append(Packet(0, 0, 0, 0, 0, ranges[0][2], b""))
    return [
        to_bytes(packet, index, len(packets), fraction, envelope, important) for index, packet in enumerate(packets)
    ]


def to_bytes(packet: Packet, index: int, packets: int, fraction: int, envelope: Envelope, important: bool) -> bytes:
    """The packet with its header."""
    units = max(1, -(-packet.count // 32))
    flags = CODEC << 5 | important << 4 | packet.layer_class << 1 | (index + 1 == packets)
    head = struct.pack(">BBHI", VERSION << 4 | 1, flags, envelope.job << 10 | envelope.rank, envelope.message)
    head += struct.pack(">II", index << 8 | units, packet.sigma)
    head += bytes([32 * units - packet.count, fraction, 0, 0])
    head += struct.pack(">IIB", packet.first, packet.final, packet.order) + (packets - 1).to_bytes(3, "big")
    return checked(head + packet.content)


def refuse_if(condition: bool, reason: str) -> None:
    """A receiver's way to say no."""
    if condition:
        raise Refused(reason)


class Receiver:
    """Takes packets, cut or not, in any order."""

    def __init__(self, tensors: list[Tensor], envelope: Envelope):
        self.runs, self.envelope = runs(tensors), envelope
        self.coordinates = self.runs[-1][1]
        # By index: the fields that copies must agree in, first, final, and the entries.
        self.held: dict[int, tuple[bytes, int, int, list[tuple[int, int]]]] = {}
        self.packets: int | None = None
        self.marked = False

    def receive(self, packet: bytes) -> None:
        """Takes the packet in, or raises `Refused`."""
        refuse_if(len(packet) < HEAD, "shorter than its heads")
        version, flags, stream, message, place, sigma, kappa, fraction = struct.unpack(">BBHIIIBB", packet[:18])
        refuse_if(version != VERSION << 4 | 1, "version or kind")
        refuse_if(checked(packet) != packet, "check")
        refuse_if(flags >> 5 != CODEC, "codec")
        outside = Envelope(stream >> 10, stream & 0x3FF, message)
        refuse_if(outside != self.envelope, "another message")
        first, final, order = struct.unpack(">IIB", packet[20:29])
        packets = int.from_bytes(packet[29:32], "big") + 1
        index, units = place >> 8 & 0xFFFFF, place & 0xFF
        refuse_if(place >> 28 != 0, "first plane")
        refuse_if(units == 0 or kappa > (32 if units == 1 else 31), "number of entries")
        refuse_if(fraction > 23 or order > 62 or packets > 1 << 20, "fraction bits, order or number of packets")
        refuse_if(index >= packets or self.packets not in (None, packets), "index or number of packets")
        marked = sigma == CANONICAL_NAN
        refuse_if(not marked and sigma >= INFINITY, "sigma or twice")
        count = 32 * units - kappa
        refuse_if((count == 0) != (marked or sigma == 0), "sigma and number of entries")
        refuse_if(not marked and sigma & (1 << 23 - fraction) - 1 != 0, "fraction bits of sigma")
        refuse_if(count == 0 and (units, first, final, order, packets) != (1, 0, 0, 0, 1), "a packet without entries")
        run = next((run for run in self.runs if run[0] <= first < run[1]), None)
        refuse_if(run is None or not first <= final < run[1], "range")
        refuse_if(run[2] != flags >> 1 & 7, "layer class")
        entries = [] if count == 0 else get(packet[HEAD:], count, sigma, fraction, first, final, order)
        refuse_if(len({place for place, _ in entries}) < len(entries), "two entries of one coordinate")
        fields = packet[11:18] + packet[20:32]
        if index in self.held:
            before = self.held[index]
            common = min(len(before[3]), len(entries))
            refuse_if(before[0] != fields or before[3][:common] != entries[:common], "contradiction")
            if len(entries) <= len(before[3]):
                return
        for other, (_, other_first, other_final, _) in self.held.items():
            refuse_if(other < index and other_final >= first or other > index and final >= other_first, "overlap")
        self.held[index] = (fields, first, final, entries)
        self.packets, self.marked = packets, self.marked or marked

    def decode(self) -> list[tuple[int, int]] | None:
        """Coordinates that arrived and their f32s' bits; None if all are NaN."""
        return None if self.marked else sorted(entry for held in self.held.values() for entry in held[3])


def get(
    content: bytes, count: int, sigma: int, fraction: int, first: int, final: int, order: int
) -> list[tuple[int, int]]:
    """Entries, in the packet's order, as coordinates and bits."""
    top_level, span = sigma >> 23 - fraction, final - first + 1
    text = "".join(f"{byte:08b}" for byte in content)
    out: list[tuple[int, int]] = []
    at, key = 0, -1
    while len(out) < count:
        zeros = 0
        while at + zeros < len(text) and text[at + zeros] == "0":
            zeros += 1
            refuse_if(zeros > 63 - order, "code")
        end = at + zeros + zeros + 1 + order
        if end + 1 > len(text):
            break
        key += int(text[at + zeros : end], 2) - (1 << order) + 1
        refuse_if(key >= top_level * span, "key")
        entry = Entry(first + key % span, top_level - key // span, text[end] == "1")
        out.append((entry.index, entry.bits(fraction)))
        at = end + 1
    return out


def gradient(seed: str, n: int) -> list[int]:
    """f32s of a bell's shape and, one in sixteen, up to 2^8 times as large; without a library of mathematics, which may differ."""
    out = []
    random = hashlib.shake_256(seed.encode()).digest(8 * n)
    for at in range(0, 8 * n, 8):
        a, b, c, scale = struct.unpack(">HHHH", random[at : at + 8])
        out.append(bits(f32((a + b + c - 98302.5) / 65536 * (1 << (scale & 15 if scale >> 12 == 0 else 0) // 2))))
    return out


def pairs(entries: list[tuple[int, int]]) -> list[list]:
    """For the file."""
    return [[index, f"{pattern:08x}"] for index, pattern in entries]


def case(name: str, tensors: list[Tensor], values, top_k: int | None, fraction: int, most_bytes: int, important=True):
    """A message, whole, and what cut, lost and repeated packets of it decode to."""
    chosen = values if top_k is None else top(values, top_k)
    packets = encode(chosen, tensors, fraction, most_bytes, ENVELOPE, important)
    assert all(len(packet) <= most_bytes for packet in packets)
    random = hashlib.shake_256(name.encode()).digest(4 * len(packets))
    cuts = [
        {"lengths": [len(packet) for packet in packets], "then": []},
        {"lengths": [HEAD + (len(packet) - HEAD) // 3 for packet in packets], "then": []},
        {
            "lengths": [
                None if random[4 * i] < 64 else HEAD + random[4 * i + 1] * (len(packet) - HEAD) // 255
                for i, packet in enumerate(packets)
            ],
            "then": list(range(0, len(packets), 3)),
        },
    ]
    for cut in cuts:
        receiver = Receiver(tensors, ENVELOPE)
        for packet, length in zip(packets, cut["lengths"]):
            if length is not None:
                receiver.receive(packet[:length])
        for index in cut["then"]:
            receiver.receive(packets[index])
        decoded = receiver.decode()
        cut["entries"] = None if decoded is None else pairs(decoded)
    if all(u & 0x7FFFFFFF < INFINITY for u in chosen.values()):
        whole = [(e.index, e.bits(fraction)) for e in entries_of(chosen, fraction)]
        assert cuts[0]["entries"] == pairs(whole), name
    return {
        "name": name,
        "tensors": [{"coordinates": t.coordinates, "layer_class": t.layer_class} for t in tensors],
        "fraction_bits": fraction,
        "packet_bytes": most_bytes,
        "important": important,
        "gradient": "".join(f"{u:08x}" for u in values) if top_k is not None else None,
        "k": top_k,
        "pairs": pairs(sorted(values.items())) if top_k is None else None,
        "packets": [packet.hex() for packet in packets],
        "decoded": cuts,
    }


def one(n: int, layer_class: int = 0) -> list[Tensor]:
    """A single tensor."""
    return [Tensor(n, layer_class)]


EXAMPLE = dict.fromkeys(range(40), 0) | {3: bits(-2.0), 17: bits(1.0), 18: bits(-1.07), 30: bits(0.7)}


def cases() -> list[dict]:
    """What the file holds."""
    some = gradient("some", 1500)
    spread = {1_000_003 * i: u for i, u in enumerate(gradient("spread", 600))}
    three = [Tensor(300, 1), Tensor(200, 1), Tensor(7, 7), Tensor(993, 0)]
    wide = {0: 0x7F7FFFFF, 1: 0x00000001, 2: 0x80000003, 5: 0x3F800000, 2**32 - 1: 0xFF7FFFFF}
    ties = [bits(f32(x)) for x in (1, -1, 2, 1, 0, -1, 1, -0.0, 1, 1)]
    return [
        case("example", one(40), [EXAMPLE[i] for i in range(40)], 4, 4, 1452),
        case("one coordinate", one(1, 7), [bits(-3.0)], 1, 23, 64, important=False),
        case("a tenth", one(1500), some, 150, 4, 1452),
        case("a tenth in small packets", one(1500, 3), some, 150, 4, 128),
        case("bfloat16", one(1500), some, 300, 7, 400),
        case("all, exactly", one(1500), some, 1500, 23, 1452),
        case("powers of two", one(1500), some, 700, 0, 200),
        case("three runs", three, some, 200, 4, 150),
        case("ready pairs, far apart", one(2**30), spread, None, 4, 700),
        case("the whole range of f32", one(2**32), wide, None, 23, 1452),
        case("the whole range of f32, rounded", one(2**32), wide, None, 4, 1452),
        case("ties go to the lower index", one(10), ties, 4, 4, 64),
        case("more than there are", one(10), ties, 10, 4, 64),
        case("nothing but zeros", [Tensor(5, 2), Tensor(3, 1)], [0] * 7 + [0x80000000], 3, 4, 1452),
        case("no pairs", one(9), {}, None, 7, 64),
        case("a NaN", [Tensor(5, 2), Tensor(3, 1)], [0] * 6 + [0x7FC12345, 0x3F800000], 1, 4, 1452),
        case("an infinity", one(8), {3: 0xFF800000, 4: 0x3F800000}, None, 4, 1452),
    ]


def refused() -> dict:
    """Packets that a receiver does not take. Of tensors in two runs, so that a range can straddle them."""
    tensors = [Tensor(500, 2), Tensor(1000, 5)]
    packets = encode(top(gradient("some", 1500), 200), tensors, 4, 150, ENVELOPE, True)
    good, none = packets[1], encode({}, tensors, 4, 150, ENVELOPE, True)[0]
    marked = encode({0: INFINITY}, tensors, 4, 150, ENVELOPE, True)[0]

    def changed(packet: bytes, at: int, new: str) -> str:
        piece = bytes.fromhex(new)
        return checked(packet[:at] + piece + packet[at + len(piece) :]).hex()

    alike = good[: HEAD + 8]
    # Keys 0 and 1 in a range of one coordinate: that at the levels of 1 and 0.96875.
    double = Packet(2, bits(1.0), 7, 7, 0, 2, bytes([0b10100000]))
    listed = [
        ("cut inside of the body's head", good[:31].hex(), None),
        ("check", (good[:18] + bytes([good[18] ^ 1]) + good[19:]).hex(), None),
        ("version 2", changed(good, 0, "21"), None),
        ("kind", changed(good, 0, "32"), None),
        ("codec 7", changed(good, 1, f"{good[1] | 0x20:02x}"), None),
        ("codec 5", changed(good, 1, f"{good[1] & 0x1F | 0xA0:02x}"), None),
        ("another layer class", changed(good, 1, f"{good[1] ^ 4:02x}"), None),
        ("another rank", changed(good, 3, f"{good[3] ^ 1:02x}"), None),
        ("another message", changed(good, 7, "05"), None),
        ("first plane", changed(good, 8, "10"), None),
        ("index beyond the packets", changed(good, 8, "000fff"), None),
        ("n = 0", changed(good, 11, "00"), None),
        ("twice", changed(good, 12, f"{good[12] | 0x80:02x}"), None),
        ("sigma infinite", changed(good, 12, "7f800000"), None),
        ("another NaN", changed(good, 12, "7fc00001"), None),
        ("the mark, with entries", changed(good, 12, "7fc00000"), None),
        ("sigma 0, with entries", changed(good, 12, "00000000"), None),
        ("more fraction bits than F", changed(good, 15, "01"), None),
        ("kappa 33", changed(good, 16, "21"), None),
        ("kappa 32, sigma not 0", changed(good, 16, "20"), None),
        ("24 fraction bits", changed(good, 17, "18"), None),
        ("first behind final", changed(good, 20, good[24:28].hex() + good[20:24].hex()), None),
        ("final beyond the message", changed(good, 24, "000005dc"), None),
        ("final far beyond the message", changed(good, 24, "ffffffff"), None),
        ("straddling two runs", changed(good, 20, "000001f3000001f4"), None),
        ("order 63", changed(good, 28, "3f"), None),
        ("2^20 + 1 packets", changed(good, 29, "100000"), None),
        ("a code that begins with too many zeros", changed(good, 32, "00" * 8), None),
        ("two entries of one coordinate", to_bytes(double, 0, 1, 4, ENVELOPE, True).hex(), None),
        ("a key below level 1", changed(good, 12, "00080000"), None),
        ("without entries, but of two packets", changed(none, 29, "000001"), None),
        ("without entries, but with a range", changed(none, 24, "00000001"), None),
        ("without entries, but with an order", changed(none, 28, "01"), None),
        ("without entries, but n = 64", changed(none, 11, "02"), None),
        ("marked, but with entries", changed(marked, 16, "1f"), None),
        ("another number of packets", changed(packets[2], 29, f"{len(packets):06x}"), [good.hex()]),
        ("the same range at another index", changed(good, 8, "000002"), [good.hex()]),
        ("the same range at a lower index", changed(good, 8, "000000"), [good.hex()]),
        ("another sigma than an earlier copy", changed(good, 12, f"{good[12] ^ 1:02x}"), [good.hex()]),
        ("another n than an earlier copy", changed(good, 11, f"{good[11] + 1:02x}"), [good.hex()]),
        ("other entries than an earlier copy", changed(alike, 32, f"{good[32] ^ 1:02x}"), [good.hex()]),
        ("other entries than a shorter copy", changed(good, 32, f"{good[32] ^ 1:02x}"), [alike.hex()]),
        ("marked, after others", marked.hex(), [good.hex()]),
    ]
    out = []
    for why, packet, after in listed:
        receiver = Receiver(tensors, ENVELOPE)
        for earlier in after or []:
            receiver.receive(bytes.fromhex(earlier))
        try:
            receiver.receive(bytes.fromhex(packet))
        except Refused:
            out.append({"why": why, "after": after or [], "packet": packet})
        else:
            raise AssertionError(f"not refused: {why}")
    Receiver(tensors, ENVELOPE).receive(good)
    return {
        "tensors": [{"coordinates": t.coordinates, "layer_class": t.layer_class} for t in tensors],
        "packets": out,
    }


def vectors() -> str:
    """The whole file."""
    content = {
        "format": "sparse messages of wire version 4 (docs/reference/wire-format.md, section 13)",
        "envelope": {"job": ENVELOPE.job, "rank": ENVELOPE.rank, "message": ENVELOPE.message},
        "cases": cases(),
        "refused": refused(),
    }
    # Pairs and lengths stay on their lines.
    text = json.dumps(content, indent=1)
    return re.sub(r"\[(?:[^\[\]{}]|\[[^\[\]{}]*\])*\]", lambda short: " ".join(short[0].split()), text) + "\n"


def example() -> str:
    """The page's example."""
    packet = encode(top([EXAMPLE[i] for i in range(40)], 4), one(40), 4, 1452, Envelope(0, 3, 25), True)[0]
    sigma, last = packet[12:16].hex(" "), packet[32:].hex(" ")
    entries = get(packet[HEAD:], 4, int.from_bytes(packet[12:16], "big"), 4, 3, 30, packet[28])
    lines = [
        (packet[0:2].hex(" "), "version 4, DATA; codec 6 (sparse), important, layer class 0, last"),
        (packet[2:8].hex(" "), "job 0, rank 3, message 25"),
        (packet[8:12].hex(" "), "first plane 0, packet 0, n = 1 · 32"),
        (sigma, "σ = 2"),
        (packet[16:18].hex(" "), f"κ = {packet[16]}: {32 - packet[16]} entries; F = {packet[17]}"),
        (packet[18:20].hex(" "), "check"),
        (packet[20:24].hex(" "), "first = 3"),
        (packet[24:28].hex(" "), "final = 30"),
        (packet[28:32].hex(" "), f"b = {packet[28]}, one packet"),
        (last, "entries"),
    ]
    order, text, key = packet[28], "".join(f"{byte:08b}" for byte in packet[32:]), -1
    for index, pattern in entries:
        zeros = len(text) - len(text.lstrip("0"))
        end = 2 * zeros + 1 + order
        gap = int(text[zeros:end], 2) - (1 << order)
        key += gap + 1
        lines.append(("  " + text[:end] + " " + text[end], f"d = {gap}, key {key}: coordinate {index} is {from_hex(f'{pattern:08x}')[0]:g}"))
        text = text[end + 1 :]
    if text:
        lines.append(("  " + text, "end of the last byte"))
    width = 2 + max(len(left) for left, _ in lines)
    return "```text\n" + "\n".join(f"{left:{width}}{right}" for left, right in lines) + "\n```"


def page(text: str) -> str:
    """The page with its example made anew."""
    begin, end = "<!-- generated: sparse example -->\n", "\n<!-- end -->"
    head, rest = text.split(begin)
    return head + begin + example() + end + rest.split(end, 1)[1]


def main() -> int:
    """Writes or checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a file is stale")
    arguments = parser.parse_args()
    # What this file relies on of the module of f32s.
    assert to_hex(from_hex("7f7fffff00000001c0000000")) == "7f7fffff00000001c0000000"
    stale = 0
    for path, text in ((VECTORS, vectors()), (PAGE, page(PAGE.read_text(encoding="utf-8")))):
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if arguments.check:
            print(f"{path.name} is stale: run host-encoder/tests/reference/sparse.py", file=sys.stderr)
            stale = 1
        else:
            path.write_text(text, encoding="utf-8", newline="\n")
    return stale


if __name__ == "__main__":
    sys.exit(main())
