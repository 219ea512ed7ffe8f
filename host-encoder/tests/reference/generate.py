#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ../vectors.json and the tables of docs/reference/wire-format.md; with --check, fails where they are not what it would write.

Python 3.11 or later, standard library only.
"""

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path

import quantiser
from decode import Decoder
from encode import Key, encode, encode_rows, figure, key_of, repair
from float32 import from_hex, to_hex
from gradients import ENVELOPE, JOB_SEED, KEY, Gradient, gradients, words
from philox import philox
from wire import (
    CODECS,
    HEADER,
    VERSION,
    Codec,
    Envelope,
    Layout,
    Refused,
    Tensor,
    check,
    checked,
    codec_named,
    masked,
    packet_bytes,
    parse_header,
)

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parent / "vectors.json"
PAGE = HERE.parents[2] / "docs" / "reference" / "wire-format.md"
DECODINGS = ("unbiased", "mmse", "paper")


def shown(values: list[float]) -> list[str]:
    """The first values for human eyes."""
    return [f"{value:.9g}" for value in values[:4]]


def trimmed(codec: Codec, n: int, kind: int) -> int | None:
    """The length of one of several typical trims; none for a packet that is lost."""
    total = packet_bytes(codec, n, len(codec.planes))
    if codec.name == "raw":
        return (total, HEADER + 4 * (n // 3) + 2, None, HEADER, HEADER + 3, total - 1, HEADER + 4 * (n // 2), None, total, total)[kind]
    finest = max(plane for plane, width in enumerate(codec.planes) if width == 8)
    return (
        packet_bytes(codec, n, 1),
        packet_bytes(codec, n, 2),
        None,
        packet_bytes(codec, n, finest - 1) + n // 2,
        packet_bytes(codec, n, 4) + n // 16 + 1,
        packet_bytes(codec, n, 8),
        HEADER + 1,
        packet_bytes(codec, n, finest) + 5,
        packet_bytes(codec, n, len(codec.planes)),
        packet_bytes(codec, n, 6) + n // 8 - 1,
    )[kind]


def tensors_of(tensors: list[Tensor]) -> list[dict]:
    """Tensors as the file has them."""
    return [{"coordinates": one.coordinates, "layer_class": one.layer_class} for one in tensors]


def decoded(codec: Codec, layout: Layout, key: Key, decoding: str, arrived: list[bytes | None], then: list[bytes]) -> dict:
    """What a receiver makes of packets."""
    decoder = Decoder(codec, layout, key, ENVELOPE, decoding)
    for packet in arrived + then:
        if packet is not None:
            decoder.receive(packet)
    values = decoder.finish()
    out = {"decoding": decoding, "lengths": [None if packet is None else len(packet) for packet in arrived]}
    if then:
        out["then"] = [packet.hex() for packet in then]
    return out | {"begins": shown(values), "values": to_hex(values)}


def case(gradient: Gradient, codec: Codec) -> dict:
    """A gradient under a codec: its packets, and what comes of some trims."""
    layout = Layout(gradient.tensors(), gradient.per_packet, gradient.row_log2)
    key = key_of(JOB_SEED, ENVELOPE)
    every = len(codec.planes)
    choice = gradient.planes or (every,)
    planes = [min(choice[row % len(choice)], every) for row in range(len(layout.rows))]
    important_from = None
    if gradient.important_from:
        rows = encode_rows(codec, layout, key, gradient.values)
        important_from = gradient.important_from(sorted(figure(row) for row in rows if row.finite or codec.name == "raw"))
    packets = encode(codec, layout, key, ENVELOPE, gradient.values, planes, important_from)
    results = []
    size = len(gradient.values)
    patterns = 6 if size <= 40 else 4 if size <= 100 else 2 if size <= 200 else 1
    if min(planes) < every:
        patterns = 1
    for pattern in range(patterns):
        arrived = []
        for index, (packet, slot) in enumerate(zip(packets, layout.slots)):
            length = trimmed(codec, slot.n, (3 * pattern + index) % 10 if len(packets) > 1 else (1, 3, 0, 4, 7, 5)[pattern])
            arrived.append(None if length is None else packet[: min(length, len(packet))])
        results.append(decoded(codec, layout, key, DECODINGS[(pattern + codec.id) % 3], arrived, []))
    if min(planes) == every and size <= 100:
        results.append(decoded(codec, layout, key, "unbiased", packets, []))
    if gradient.name == "33 coordinates" and codec.name != "raw":
        # Trimmed packets, whose missing planes arrive later and in any order, some of them twice.
        n = layout.slots[0].n
        last = every
        arrived = [packet[: packet_bytes(codec, n, 3) + 1] for packet in packets]
        then = [
            repair(codec, packets[0], n, 8, 9),
            repair(codec, packets[1], n, 5, last),
            repair(codec, packets[0], n, 2, 8),
            # Nothing is made of a packet's importance.
            checked(packets[1][:1] + bytes([packets[1][1] ^ 0x10]) + packets[1][2 : packet_bytes(codec, n, 1)]),
            repair(codec, packets[0], n, last - 1, last),
        ]
        results.append(decoded(codec, layout, key, "unbiased", arrived, then))
        # The last plane is there, one before it is not.
        hole = [repair(codec, packets[0], n, last - 1, last), repair(codec, packets[0], n, 3, last - 2)]
        results.append(decoded(codec, layout, key, "unbiased", arrived, hole))
    return {
        "name": f"{codec.name}, {gradient.name}",
        "codec": codec.name,
        "gradient": gradient.name,
        "tensors": tensors_of(gradient.tensors()),
        "coordinates_per_packet": gradient.per_packet,
        "row_log2": gradient.row_log2,
        "planes": planes,
        "important_from": important_from,
        "packets": [packet.hex() for packet in packets],
        "decoded": results,
    }


def long_rows() -> list[dict]:
    """Rows of the usual length, too long to be written out: how many bytes their packets have together, and the SHA-256 of those."""
    codec, layout, key = codec_named("rht"), Layout([Tensor(1 << 15, 0)], 448, 15), key_of(JOB_SEED, ENVELOPE)
    uniform = [(word >> 8) / 2**23 - 1 for word in words(34, 1 << 15)]
    out = []
    for every, planes in ((1, 10), (1, 9), (331, 10)):
        values = [x if i % every == 0 else 0.0 for i, x in enumerate(uniform)]
        packets = encode(codec, layout, key, ENVELOPE, values, [planes])
        assert parse_header(packets[0]).twice == (every > 1)
        together = b"".join(packets)
        out.append({"seed": 34, "every": every, "planes": planes, "bytes": len(together), "sha256": hashlib.sha256(together).hexdigest()})
    return out


REFUSED_TENSORS = [Tensor(33, 5)]


def refused() -> list[dict]:
    """Packets of a message of 33 coordinates in packets of 32, both of one row, that no receiver of rht takes (or of another codec,
    where one is named)."""
    layout = Layout(REFUSED_TENSORS, 32, 15)

    def packets_of(codec: str) -> list[bytes]:
        return encode(codec_named(codec), layout, KEY, ENVELOPE, [1.0] * 33, [2])

    first, good = packets_of("rht")
    assert parse_header(good).twice

    def with_bytes(at: int, *values: int, of: bytes = good) -> bytes:
        return checked(of[:at] + bytes(values) + of[at + len(values) :])

    def with_sigma(pattern: int) -> bytes:
        return with_bytes(12, *pattern.to_bytes(4, "big"))

    def flipped(at: int, bit: int, of: bytes = good) -> bytes:
        return of[:at] + bytes([of[at] ^ 1 << bit]) + of[at + 1 :]

    out = [
        ("nothing", b""),
        ("a header that ends early", good[: HEADER - 1]),
        ("version 1", with_bytes(0, 0x11)),
        ("version 2", with_bytes(0, 0x21)),
        ("version 3", with_bytes(0, 0x31)),
        ("version 5", with_bytes(0, 0x51)),
        ("an acknowledgement", with_bytes(0, 0x42)),
        ("kind 7", with_bytes(0, 0x47)),
        ("a wrong check", good[: HEADER - 2] + b"\0\0" + good[HEADER:]),
        ("codec 1", with_bytes(1, good[1] & 0x1F | 1 << 5)),
        ("codec 4", with_bytes(1, good[1] & 0x1F | 4 << 5)),
        ("codec 6", with_bytes(1, good[1] & 0x1F | 6 << 5)),
        ("codec 7", with_bytes(1, good[1] & 0x1F | 7 << 5)),
        ("another codec than the job's", with_bytes(1, good[1] & 0x1F | 5 << 5)),
        ("another layer class than the tensor's", with_bytes(1, good[1] ^ 0x02)),
        ("another job", with_bytes(2, good[2] ^ 0x04)),
        ("another rank", with_bytes(3, good[3] ^ 0x01)),
        ("another message", with_bytes(7, good[7] ^ 0x01)),
        ("first plane 10 of ten", with_bytes(8, 0xA0)),
        ("an index outside of the message", with_bytes(10, 2)),
        ("no coordinates", with_bytes(11, 0)),
        ("another number of coordinates than the layout's", with_bytes(11, 2)),
        ("sigma is infinite", with_sigma(0x7F800000)),
        ("sigma is infinite, twice is set", with_sigma(0xFF800000)),
        ("sigma is a NaN other than the mark", with_sigma(0x7FC00001)),
        ("sigma is the mark, but twice is set", with_sigma(0xFFC00000)),
    ]
    # The lowest bits of most bytes, the highest ones of others: those that leave a header that
    # nothing else speaks against, where there are such.
    bits_flipped = [0, 4, 2, 0, 7, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 7]
    out += [(f"bit {bit} of byte {at} is flipped", flipped(at, bit)) for at, bit in enumerate(bits_flipped)]
    entries = [{"why": why, "packet": packet} for why, packet in out]
    plain = packets_of("raw")
    entries.append({
        "why": "rotated twice, by a codec that does not rotate",
        "codec": "raw",
        "packet": with_bytes(12, plain[1][12] | 0x80, of=plain[1]),
    })
    for why, packet, after in (
        ("another sigma than the same packet's before", with_bytes(15, good[15] ^ 1), [good]),
        ("another kappa than the same packet's before", with_bytes(16, good[16] ^ 1), [first, good[: HEADER + 1]]),
        ("another peak than the same packet's before", with_bytes(17, good[17] ^ 1), [good]),
        ("the mark, where the same packet had none before", with_sigma(0x7FC00000), [with_bytes(12, good[12] ^ 0x80)]),
        ("another twice than the same packet's before", with_bytes(12, good[12] ^ 0x80), [good]),
        ("another twice than the row's before", with_bytes(12, good[12] ^ 0x80), [first[: HEADER + 1]]),
        ("twice, where the row was not rotated twice before", good, [with_bytes(12, first[12] ^ 0x80, of=first)]),
        ("the mark, where the row was rotated twice before", with_sigma(0x7FC00000), [first]),
    ):
        entries.append({"why": why, "after": after, "packet": packet})
    for entry in entries:
        decoder = Decoder(codec_named(entry.get("codec", "rht")), layout, KEY, ENVELOPE, "unbiased")
        for packet in entry.get("after", []):
            decoder.receive(packet)
        try:
            decoder.receive(entry["packet"])
        except Refused:
            pass
        else:
            raise AssertionError(entry["why"])
        entry["packet"] = entry["packet"].hex()
        if "after" in entry:
            entry["after"] = [packet.hex() for packet in entry["after"]]
    return entries


def masks() -> list[dict]:
    """A packet under the masks of some incarnations of its sender."""
    packet = example_packet("rht")
    out = []
    for incarnation in (0, 1, 2, 0x80000000, 0xC0FFEE42, 0xFFFFFFFF):
        covered = masked(packet, incarnation)
        assert masked(covered, incarnation) == packet and (covered != packet or incarnation == 0)
        out.append({"incarnation": f"{incarnation:08x}", "packet": packet.hex(), "masked": covered.hex()})
    return out


def vectors() -> str:
    """The text of vectors.json."""
    everything = gradients()
    cases = [
        case(gradient, codec)
        for codec in CODECS
        for gradient in everything
        if not gradient.codecs or codec.name in gradient.codecs
    ]
    for one in cases:
        for packet in one["packets"]:
            assert parse_header(bytes.fromhex(packet)).codec.name == one["codec"]
    counters = [([0, 0], [0, 0, 0, 0]), ([0xFFFFFFFF] * 2, [0xFFFFFFFF] * 4), ([1, 0], [0, 0, 2, 3])]
    content = {
        "format": f"trimwire DATA packets, version {VERSION}; reference/README.md says how to read this file",
        "tolerance": {"relative_to_row_rms": 1e-5, "absolute": "00000004"},
        "job_seed": f"{JOB_SEED:016x}",
        "message": ENVELOPE.message,
        "envelope": {"job": ENVELOPE.job, "rank": ENVELOPE.rank},
        "check": {"of": b"123456789".hex(), "is": f"{check(b'123456789'):04x}"},
        "masks": masks(),
        "philox": [
            {name: "".join(f"{word:08x}" for word in value) for name, value in
             (("key", key), ("counter", counter), ("output", philox(key, counter)))}
            for key, counter in counters
        ],
        "centroids": [
            {"planes": planes, "begins": shown(quantiser.CENTROIDS[planes]), "values": to_hex(quantiser.CENTROIDS[planes])}
            for planes in range(1, 9)
        ],
        "distortions": quantiser.DISTORTIONS,
        "gradients": {g.name: {"begins": shown(g.values), "values": to_hex(g.values)} for g in everything},
        "refused": {
            "codec": "rht",
            "tensors": tensors_of(REFUSED_TENSORS),
            "coordinates_per_packet": 32,
            "row_log2": 15,
            "packets": refused(),
        },
        "long_rows": long_rows(),
        "cases": cases,
    }
    for g in everything:
        assert to_hex(from_hex(to_hex(g.values))) == to_hex(g.values)
    return json.dumps(content, indent=1) + "\n"


def distortion_table() -> str:
    """Section 5's table."""
    rows = ["| planes b | distortion D_b | unbiased NMSE, 1/(1 − D_b) − 1 |", "|---|---|---|"]
    for planes, d in enumerate(quantiser.DISTORTIONS):
        shown_d = {0: "1", 1: "1 − κ² (0.3633802276)", 9: f"{d:.4g} (D_8 / 65536)"}.get(planes, f"{d:.10g}")
        nmse = "–" if planes == 0 else f"{1 / (1 - d) - 1:.4g}"
        rows.append(f"| {planes} | {shown_d} | {nmse} |")
    return "\n".join(rows)


def centroid_table() -> str:
    """Section 8's table."""
    rows = []
    for planes in range(1, 9):
        rows.append(f"b = {planes}:")
        values = [f"{value:.9g}" for value in quantiser.CENTROIDS[planes]]
        rows += [", ".join(values[at : at + 8]) + "," for at in range(0, len(values), 8)]
    return "```text\n" + "\n".join(rows) + "\n```"


EXAMPLE_ENVELOPE = Envelope(job=0, rank=3, message=25)
EXAMPLE_KEY = key_of(1, EXAMPLE_ENVELOPE)
EXAMPLE_LAYOUT = Layout([Tensor(32, 0)], 448, 15)
EXAMPLE = [1.0, 1.0, 1.0, -2.0] + [1.0] * 28


def example_packet(name: str) -> bytes:
    """The worked example's only packet."""
    codec = codec_named(name)
    return encode(codec, EXAMPLE_LAYOUT, EXAMPLE_KEY, EXAMPLE_ENVELOPE, EXAMPLE, [len(codec.planes)])[0]


def example_bytes() -> str:
    """The worked example's packet, plane by plane."""
    packet = example_packet("rht")
    digits = lambda part: " ".join(f"{byte:02x}" for byte in part)
    header = parse_header(packet)
    largest = quantiser.peak_value(header.peak)
    lines = ["header"]
    for size, meaning in (
        (1, f"version {VERSION}, DATA"),
        (1, "codec 0 (rht), important, layer class 0, last"),
        (2, "job 0, rank 3"),
        (4, f"message {EXAMPLE_ENVELOPE.message}"),
        (4, "first plane 0, packet 0, 1 · 32 coordinates"),
        (4, f"{'rotated twice' if header.twice else 'rotated once'}, σ = {header.sigma:.9g}"),
        (1, f"κ = {header.kappa}/255"),
        (1, f"peak = {header.peak}: no magnitude is above 2^({header.peak}/32) = {largest:.5f} σ"),
        (2, "check"),
    ):
        at = sum(len(line.split("  ")[0].split()) for line in lines[1:])
        lines.append(f"{digits(packet[at : at + size]):<19}{meaning}")
    lines.append("planes 0 to 7")
    body = packet[HEADER:]
    lines += [digits(body[4 * p : 4 * p + 4]) for p in range(8)]
    lines.append("planes 8 and 9")
    lines += [digits(body[32 + 32 * p : 64 + 32 * p]) for p in range(2)]
    return "```text\n" + "\n".join(lines) + "\n```"


def example_decoded() -> str:
    """What the worked example decodes to."""
    codec = codec_named("rht")
    packet = example_packet("rht")
    rows = ["| planes | coordinates 0 to 3 | NMSE |", "|---|---|---|"]
    for planes in (1, 2, 4, 8, 9, 10):
        decoder = Decoder(codec, EXAMPLE_LAYOUT, EXAMPLE_KEY, EXAMPLE_ENVELOPE, "unbiased")
        decoder.receive(packet[: packet_bytes(codec, 32, planes)])
        values = decoder.finish()
        error = sum((a - b) ** 2 for a, b in zip(values, EXAMPLE)) / sum(x * x for x in EXAMPLE)
        rows.append(f"| {planes} | {', '.join(f'{x + 0.0:.6g}' for x in values[:4])} | {error:.2g} |")
    return "\n".join(rows)


def example_codecs() -> str:
    """The front of the worked example's packet under every codec."""
    rows = ["| codec | σ, κ, peak | first bytes of the body |", "|---|---|---|"]
    for codec in CODECS:
        packet = example_packet(codec.name)
        header = parse_header(packet)
        rows.append(
            f"| {codec.name} | `{packet[12:16].hex()}`, {header.kappa}, {header.peak} | `{packet[HEADER : HEADER + 16].hex(' ', 4)}` |"
        )
    return "\n".join(rows)


GENERATED = {
    "distortions": distortion_table,
    "centroids": centroid_table,
    "example bytes": example_bytes,
    "example decoded": example_decoded,
    "example codecs": example_codecs,
}


def page(text: str) -> str:
    """The page with its generated parts made anew."""
    for name, make in GENERATED.items():
        begin, end = f"<!-- generated: {name} -->\n", "\n<!-- end -->"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        text, found = re.subn(pattern, lambda _: begin + make() + end, text, flags=re.DOTALL)
        if found != 1:
            sys.exit(f"{PAGE}: {found} parts between '{begin.strip()}' and '<!-- end -->', 1 expected")
    return text


def main() -> None:
    """Writes or checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a file is stale")
    check = parser.parse_args().check
    stale = []
    for path, content in ((VECTORS, vectors()), (PAGE, page(PAGE.read_text(encoding="utf-8")))):
        if path.exists() and path.read_text(encoding="utf-8") == content:
            continue
        stale.append(path)
        if not check:
            path.write_text(content, encoding="utf-8", newline="\n")
            print(f"wrote {path} ({len(content.encode())} bytes)")
    if check and stale:
        sys.exit("".join(f"{path} is stale: run {Path(__file__).name}\n" for path in stale))
    print("vectors and page are up to date")


if __name__ == "__main__":
    main()
