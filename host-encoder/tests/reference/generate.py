#!/usr/bin/env python3
"""Writes ../vectors.json and the tables of docs/wire-format.md; with --check, fails where they are not what it would write.

Python 3.11 or later, standard library only.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import quantiser
from decode import Decoder
from encode import Envelope, Key, encode, repair
from float32 import from_hex, to_hex
from gradients import JOB_SEED, KEY, MESSAGE, Gradient, gradients
from philox import philox
from wire import CODECS, HEADER, VERSION, Codec, Layout, Refused, codec_named, packet_bytes, parse_header

HERE = Path(__file__).resolve().parent
VECTORS = HERE.parent / "vectors.json"
PAGE = HERE.parents[2] / "docs" / "wire-format.md"
DECODINGS = ("unbiased", "mmse", "paper")
ENVELOPE = Envelope(job=42, rank=341, message=MESSAGE, layer_class=5)


def shown(values: list[float]) -> list[str]:
    """The first values for human eyes."""
    return [f"{value:.9g}" for value in values[:4]]


def cut(codec: Codec, n: int, kind: int) -> int | None:
    """The length of one of several typical cuts; none for a packet that is lost."""
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


def decoded(codec: Codec, layout: Layout, decoding: str, arrived: list[bytes | None], then: list[bytes]) -> dict:
    """What a receiver makes of packets."""
    decoder = Decoder(codec, layout, KEY, decoding)
    for packet in arrived + then:
        if packet is not None:
            decoder.receive(packet)
    values = decoder.finish()
    out = {"decoding": decoding, "lengths": [None if packet is None else len(packet) for packet in arrived]}
    if then:
        out["then"] = [packet.hex() for packet in then]
    return out | {"begins": shown(values), "values": to_hex(values)}


def case(gradient: Gradient, codec: Codec) -> dict:
    """A gradient under a codec: its packets, and what comes of some cuts."""
    layout = Layout(len(gradient.values), gradient.per_packet, gradient.row_log2)
    planes = min(gradient.planes or len(codec.planes), len(codec.planes))
    packets = encode(codec, layout, KEY, ENVELOPE, gradient.values, planes)
    results = []
    size = len(gradient.values)
    patterns = 6 if size <= 40 else 4 if size <= 100 else 2 if size <= 200 else 1
    if planes < len(codec.planes):
        patterns = 1
    for pattern in range(patterns):
        arrived = []
        for index, (packet, slot) in enumerate(zip(packets, layout.slots)):
            length = cut(codec, slot.n, (3 * pattern + index) % 10 if len(packets) > 1 else (1, 3, 0, 4, 7, 5)[pattern])
            arrived.append(None if length is None else packet[: min(length, len(packet))])
        results.append(decoded(codec, layout, DECODINGS[(pattern + codec.id) % 3], arrived, []))
    if planes == len(codec.planes) and size <= 100:
        results.append(decoded(codec, layout, "unbiased", packets, []))
    if gradient.name == "33 coordinates" and codec.name != "raw":
        # Cut packets, whose missing planes arrive later and in any order, some of them twice.
        n = layout.slots[0].n
        last = len(codec.planes)
        arrived = [packet[: packet_bytes(codec, n, 3) + 1] for packet in packets]
        then = [
            repair(codec, packets[0], n, 8, 9),
            repair(codec, packets[1], n, 5, last),
            repair(codec, packets[0], n, 2, 8),
            packets[1][: packet_bytes(codec, n, 1)],
            repair(codec, packets[0], n, last - 1, last),
        ]
        results.append(decoded(codec, layout, "unbiased", arrived, then))
        # The last plane is there, one before it is not.
        hole = [repair(codec, packets[0], n, last - 1, last), repair(codec, packets[0], n, 3, last - 2)]
        results.append(decoded(codec, layout, "unbiased", arrived, hole))
    return {
        "name": f"{codec.name}, {gradient.name}",
        "codec": codec.name,
        "gradient": gradient.name,
        "coordinates_per_packet": gradient.per_packet,
        "row_log2": gradient.row_log2,
        "planes": planes,
        "packets": [packet.hex() for packet in packets],
        "decoded": results,
    }


def refused() -> list[dict]:
    """Packets of a message of 33 coordinates in packets of 32 that no receiver of rht takes."""
    good = encode(codec_named("rht"), Layout(33, 32, 15), KEY, ENVELOPE, [1.0] * 33, 2)[1]

    def with_byte(at: int, value: int) -> bytes:
        return good[:at] + bytes([value]) + good[at + 1 :]

    def with_sigma(pattern: int) -> bytes:
        return good[:12] + pattern.to_bytes(4, "big") + good[16:]

    out = [
        ("nothing", b""),
        ("a header cut short", good[: HEADER - 1]),
        ("version 1", with_byte(0, 0x11)),
        ("version 3", with_byte(0, 0x31)),
        ("an acknowledgement", with_byte(0, 0x22)),
        ("kind 7", with_byte(0, 0x27)),
        ("codec 6", with_byte(1, good[1] & 0x1F | 6 << 5)),
        ("codec 7", with_byte(1, good[1] & 0x1F | 7 << 5)),
        ("another codec than the job's", with_byte(1, good[1] & 0x1F | 2 << 5)),
        ("first plane 10 of ten", with_byte(8, 0xA0)),
        ("an index outside of the message", with_byte(10, 2)),
        ("no coordinates", with_byte(11, 0)),
        ("another number of coordinates than the layout's", with_byte(11, 2)),
        ("sigma is infinite", with_sigma(0x7F800000)),
        ("sigma is a NaN other than the mark", with_sigma(0x7FC00001)),
        ("sigma is the mark with a sign", with_sigma(0xFFC00000)),
        ("sigma is negative", with_sigma(0xBF800000)),
        ("sigma is negative zero", with_sigma(0x80000000)),
    ]
    for why, packet in out:
        try:
            Decoder(codec_named("rht"), Layout(33, 32, 15), KEY, "unbiased").receive(packet)
        except Refused:
            continue
        raise AssertionError(why)
    return [{"why": why, "packet": packet.hex()} for why, packet in out]


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
        "message": MESSAGE,
        "rotation_rank": KEY.rank,
        "envelope": {"job": ENVELOPE.job, "rank": ENVELOPE.rank, "layer_class": ENVELOPE.layer_class},
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
        "refused": {"codec": "rht", "coordinates": 33, "coordinates_per_packet": 32, "row_log2": 15, "packets": refused()},
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


EXAMPLE_KEY = Key(1, 2, 3)
EXAMPLE = [1.0, 1.0, 1.0, -2.0] + [1.0] * 28


def example_packet(name: str) -> bytes:
    """The worked example's only packet."""
    codec = codec_named(name)
    return encode(codec, Layout(32, 448, 15), EXAMPLE_KEY, Envelope(0, 3, 2, 0), EXAMPLE, len(codec.planes))[0]


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
        (4, "message 2"),
        (4, "first plane 0, packet 0, 1 · 32 coordinates"),
        (4, f"σ = {header.sigma:.9g}"),
        (1, f"κ = {header.kappa}/255"),
        (1, f"peak = {header.peak}: no magnitude is above 2^({header.peak}/32) = {largest:.5f} σ"),
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
    codec, layout = codec_named("rht"), Layout(32, 448, 15)
    packet = example_packet("rht")
    rows = ["| planes | coordinates 0 to 3 | NMSE |", "|---|---|---|"]
    for planes in (1, 2, 4, 8, 9, 10):
        decoder = Decoder(codec, layout, EXAMPLE_KEY, "unbiased")
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
            f"| {codec.name} | `{packet[12:16].hex()}`, {header.kappa}, {header.peak} | `{packet[18:34].hex(' ', 4)}` |"
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
