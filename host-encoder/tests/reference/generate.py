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
from encode import Key, encode, encode_row, encode_rows, figure, key_of, packets_of_row, repair
from float32 import from_hex, to_hex
from gradients import ENVELOPE, JOB_SEED, KEY, Gradient, bell, gradients, words
from philox import philox
from wire import (
    CODECS,
    HEADER,
    VERSION,
    Codec,
    Envelope,
    Layout,
    Refused,
    Slot,
    Tensor,
    check,
    checked,
    codec_named,
    mask_bytes,
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
        important_from = gradient.important_from(sorted(figure(row) for row in rows if not row.marked))
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
    if gradient.name == "blocks of zeros, in rows of two packets":
        # Less than the mask, the mask alone, and a little more; then the other packet is lost.
        whole = HEADER + mask_bytes(codec, 512)
        for lengths in ((whole - 1, len(packets[1])), (whole, whole + 5), (None, whole)):
            arrived = [packet[:length] if length is not None else None for packet, length in zip(packets, lengths)]
            results.append(decoded(codec, layout, key, DECODINGS[len(results) % 3], arrived, []))
        # Planes without the first one, whose mask comes last.
        then = [repair(codec, packets[0], 512, 1, 10), packets[0][: whole - 1], packets[0][: whole + 64]]
        results.append(decoded(codec, layout, key, "unbiased", [None, packets[1][:whole]], then))
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
    """Rows too long to be written out: how many bytes their packets have together, and the SHA-256 of those."""
    codec, key = codec_named("rht"), key_of(JOB_SEED, ENVELOPE)
    uniform = [(word >> 8) / 2**23 - 1 for word in words(34, 1 << 15)]
    out = []
    for row_log2, every, per_packet, planes in ((12, 1, 448, 10), (12, 1, 704, 9), (12, 331, 448, 10), (15, 1, 448, 10), (15, 331, 8160, 9)):
        layout = Layout([Tensor(1 << row_log2, 0)], per_packet, row_log2)
        values = [x if i % every == 0 else 0.0 for i, x in enumerate(uniform[: 1 << row_log2])]
        packets = encode(codec, layout, key, ENVELOPE, values, [planes])
        assert parse_header(packets[0]).twice == (every > 1)
        together = b"".join(packets)
        digest = hashlib.sha256(together).hexdigest()
        out.append({
            "row_log2": row_log2,
            "coordinates_per_packet": per_packet,
            "seed": 34,
            "every": every,
            "planes": planes,
            "bytes": len(together),
            "sha256": digest,
        })
    return out


def last_rows() -> dict:
    """Rows of 32 out of a message of the largest number of packets there is, each of one packet."""
    codec, key, count = codec_named("rht"), key_of(JOB_SEED, ENVELOPE), 1 << 24
    rows = []
    for row in ((1 << 20) - 1, 1 << 20, 0xABCDEF, count - 1):
        values = bell(row, 32)
        encoded = encode_row(codec, values, 32, [Slot(row, 0, 32)], key, row)
        (packet,) = packets_of_row(codec, encoded, ENVELOPE, True, 5, row, count, 10)
        header = parse_header(packet)
        assert header.index == row and header.last == (row + 1 == count)
        rows.append({"row": row, "values": to_hex(values), "packet": packet.hex()})
    return {"codec": "rht", "tensors": tensors_of([Tensor(32 * count, 5)]), "coordinates_per_packet": 32, "row_log2": 5, "planes": 10, "rows": rows}


REFUSED_TENSORS = [Tensor(33, 5)]


def refused() -> list[dict]:
    """Packets of a message of 33 coordinates in packets of 32, both of one row, that no receiver of rht takes (or of another codec,
    where one is named)."""
    layout = Layout(REFUSED_TENSORS, 32, 12)

    def packets_of(codec: str) -> list[bytes]:
        return encode(codec_named(codec), layout, KEY, ENVELOPE, [1.0] * 33, [2])

    first, good = packets_of("rht")
    assert parse_header(good).twice

    def with_bytes(at: int, *values: int, of: bytes = good) -> bytes:
        return checked(of[:at] + bytes(values) + of[at + len(values) :])

    def with_bits(low: int, width: int, value: int, of: bytes = good) -> bytes:
        """With some of the bits of bytes 8 to 15, counted from the lowest."""
        shape, ones = int.from_bytes(of[8:16], "big"), (1 << width) - 1 << low
        return checked(of[:8] + (shape & ~ones | value << low).to_bytes(8, "big") + of[16:])

    def with_sigma(pattern: int, of: bytes = good) -> bytes:
        """With these bits for sigma and twice."""
        return with_bits(16, 20, pattern, of)

    def with_blocks(pattern: int, of: bytes = good) -> bytes:
        return with_bits(0, 16, pattern, of)

    def flipped(at: int, bit: int, of: bytes = good) -> bytes:
        return of[:at] + bytes([of[at] ^ 1 << bit]) + of[at + 1 :]

    out = [
        ("nothing", b""),
        ("a header that ends early", good[: HEADER - 1]),
        ("version 1", with_bytes(0, 0x11)),
        ("version 2", with_bytes(0, 0x21)),
        ("version 3", with_bytes(0, 0x31)),
        ("version 4", with_bytes(0, 0x41)),
        ("version 6", with_bytes(0, 0x61)),
        ("an acknowledgement", with_bytes(0, 0x52)),
        ("kind 7", with_bytes(0, 0x57)),
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
        ("first plane 10 of ten", with_bits(36, 4, 10)),
        ("an index outside of the message", with_bytes(10, 2)),
        ("an index beyond 2^20", with_bytes(8, 0x10)),
        ("no coordinates", with_blocks(1)),
        ("no coordinates, not even a one", with_blocks(0)),
        ("no coordinates, mask in the body", with_blocks(0x8000)),
        ("one block, as if its mask were in the body", with_blocks(0x8001)),
        ("14 blocks, as if their mask were in the body", with_blocks(0x800E)),
        ("256 blocks", with_blocks(0x8100)),
        ("another number of coordinates than the layout's", with_blocks(4)),
        ("another number of coordinates than the layout's, mask in the body", with_blocks(0x800F)),
        ("sigma is infinite", with_sigma(0x7F800)),
        ("sigma is infinite, twice is set", with_sigma(0xFF800)),
        ("sigma is a NaN other than the mark", with_sigma(0x7FC01)),
        ("sigma is a signalling NaN", with_sigma(0x7F801)),
        ("sigma is the mark, but twice is set", with_sigma(0xFFC00)),
        ("sigma is the mark, but a block is zero", with_blocks(3, of=with_sigma(0x7FC00))),
    ]
    # The lowest bits of most bytes, the highest ones of others: those that leave a header that
    # nothing else speaks against, where there are such.
    bits_flipped = [0, 4, 2, 0, 7, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 7]
    out += [(f"bit {bit} of byte {at} is flipped", flipped(at, bit)) for at, bit in enumerate(bits_flipped)]
    entries = [{"why": why, "packet": packet} for why, packet in out]
    plain = packets_of("raw")
    for why, packet in (
        ("rotated twice, by a codec that does not rotate", with_bits(35, 1, 1, of=plain[1])),
        ("a zero block, by a codec that has none", with_blocks(3, of=plain[1])),
    ):
        entries.append({"why": why, "codec": "raw", "packet": packet})
    for why, packet, after in (
        ("another sigma than the same packet's before", with_bytes(13, good[13] ^ 1), [good]),
        ("another zero block than the same packet's before", with_blocks(3), [good]),
        ("another kappa than the same packet's before", with_bytes(16, good[16] ^ 1), [first, good[: HEADER + 1]]),
        ("another peak than the same packet's before", with_bytes(17, good[17] ^ 1), [good]),
        ("the mark, where the same packet had none before", with_sigma(0x7FC00), [with_bits(35, 1, 0)]),
        ("another twice than the same packet's before", with_bits(35, 1, 0), [good]),
        ("another twice than the row's before", with_bits(35, 1, 0), [first[: HEADER + 1]]),
        ("twice, where the row was not rotated twice before", good, [with_bits(35, 1, 0, of=first)]),
        ("the mark, where the row was rotated twice before", with_sigma(0x7FC00), [first]),
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
            "row_log2": 12,
            "packets": refused(),
        },
        "long_rows": long_rows(),
        "last_rows": last_rows(),
        "cases": cases,
    }
    for g in everything:
        assert to_hex(from_hex(to_hex(g.values))) == to_hex(g.values)
    return json.dumps(content, indent=1) + "\n"


def distortion_table() -> str:
    """Section 5's table."""
    shown_d = [f"{d:.10g}" for d in quantiser.DISTORTIONS]
    shown_d[1], shown_d[9] = f"1 − κ² ({shown_d[1]})", f"{quantiser.DISTORTIONS[9]:.4g} (D_8 / 65536)"
    return "\n".join(["| planes b | distortion D_b |", "|---|---|", *(f"| {b} | {d} |" for b, d in enumerate(shown_d))])


def centroid_table() -> str:
    """Section 8's table."""
    rows = []
    for planes in range(2, 9):
        rows.append(f"b = {planes}:")
        values = [f"{value:.9g}" for value in quantiser.CENTROIDS[planes]]
        rows += [", ".join(values[at : at + 8]) + "," for at in range(0, len(values), 8)]
    return "```text\n" + "\n".join(rows) + "\n```"


EXAMPLE_ENVELOPE = Envelope(job=0, rank=3, message=25)
EXAMPLE_KEY = key_of(1, EXAMPLE_ENVELOPE)
EXAMPLE_LAYOUT = Layout([Tensor(32, 0)], 448, 12)
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
        (3, "packet 0"),
        (3, f"first plane 0, {'rotated twice' if header.twice else 'rotated once'}, σ = {header.sigma:.9g}"),
        (2, "one block, which is not zero"),
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


GENERATED = {
    "distortions": distortion_table,
    "centroids": centroid_table,
    "example bytes": example_bytes,
    "example decoded": example_decoded,
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
