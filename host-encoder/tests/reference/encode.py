"""From a gradient to packets, bit for bit as the wire format's page says."""

import math
from dataclasses import dataclass

import quantiser
from float32 import CANONICAL_NAN, LARGEST, SMALLEST_SUBNORMAL, bits, f32, f32s, from_bits
from philox import dither, negated
from wire import Codec, Header, Layout, plane_bytes


@dataclass(frozen=True)
class Key:
    """What the random numbers depend on, besides the row."""

    job_seed: int
    message: int
    rank: int


@dataclass(frozen=True)
class Envelope:
    """Header fields that the codec passes through."""

    job: int
    rank: int
    message: int
    layer_class: int


def hadamard(row: list[float]) -> list[float]:
    """The Walsh-Hadamard transform in f32, unnormalised, with the distances 4, 1, 2, 8, 16, ..."""
    out = list(row)
    distances = [4, 1, 2] + [1 << level for level in range(3, len(row).bit_length() - 1)]
    for h in distances:
        lower = [a for a in range(len(out)) if not a & h]
        sums = f32s(out[a] + out[a + h] for a in lower)
        differences = f32s(out[a] - out[a + h] for a in lower)
        for a, total, difference in zip(lower, sums, differences):
            out[a], out[a + h] = total, difference
    return out


def exponent_of(row: list[float]) -> int:
    """e of the working scale."""
    largest = max(abs(x) for x in row)
    if not all(math.isfinite(x) for x in row):
        return 0
    if largest == 0 or 2.0**-30 <= largest < 2.0**30:
        return 0
    return 1 - math.frexp(largest)[1]


def folded(values: list[float]) -> float:
    """A sum in f32 over 16 lanes, which are then folded in halves."""
    lanes = [0.0] * 16
    for j, value in enumerate(values):
        lanes[j % 16] = f32(lanes[j % 16] + value)
    for half in (8, 4, 2, 1):
        lanes = [f32(lanes[i] + lanes[i + half]) for i in range(half)]
    return lanes[0]


@dataclass
class Statistics:
    """Of one packet: the header's fields, and what magnitudes are multiplied by."""

    sigma: float
    kappa: int
    peak: int
    # What takes a magnitude to zone widths, f32.
    scale: float


def statistics(codec: Codec, v: list[float], d: int, e: int) -> Statistics:
    """sigma, kappa and peak of the values v of one packet of a row of length d, at the working scale 2^e."""
    root = math.sqrt(float(d if codec.rotates else 1))
    unit = quantiser.ZONE_WIDTH
    squares = folded(f32s(x * x for x in v))
    magnitudes = folded([abs(x) for x in v])
    largest = max(abs(x) for x in v)
    sigma = f32(math.ldexp(math.sqrt(squares / len(v)), -e) / root)
    if sigma == 0 and squares > 0:
        sigma = SMALLEST_SUBNORMAL
    scale = 0.0 if sigma == 0 else f32(1 / (math.ldexp(sigma, e) * root * unit))
    kappa = min(255, math.floor(255 * (magnitudes / len(v) * scale * unit) + 0.5))
    ratio = f32(f32(largest * scale) * unit)
    peak = next((k for k in range(256) if quantiser.peak_value(k) >= ratio), 255)
    return Statistics(sigma, kappa, peak, scale)


def dither_limit(sigma: float) -> float:
    """L: dithered codecs decode to plus or minus this."""
    return min(f32(2.5 * sigma), LARGEST)


def sign_of(value: float) -> int:
    """The sign bit."""
    return bits(value) >> 31


def packed(codec: Codec, codes: list[int], tail: list[int] | None, planes: int, first_plane: int = 0) -> bytes:
    """The planes of 32-bit codes; `tail` is the twelfth plane's bits."""
    if codec.name == "raw":
        return b"".join(code.to_bytes(4, "big") for code in codes) if first_plane < planes else b""
    out = bytearray()
    for plane in range(first_plane, planes):
        if 8 <= plane <= 10:
            out += bytes(code >> 8 * (10 - plane) & 0xFF for code in codes)
            continue
        ones = tail if plane == 11 else [code >> 31 - plane & 1 for code in codes]
        out += bytes(sum(ones[at + j] << j for j in range(8)) for at in range(0, len(ones), 8))
    return bytes(out)


def threshold(figures: list[float]) -> float:
    """The upper median; infinity of nothing."""
    return sorted(figures)[len(figures) // 2] if figures else math.inf


@dataclass
class EncodedRow:
    """One row on its way to packets."""

    finite: bool
    # Per packet: statistics, codes, twelfth plane.
    packets: list[tuple[Statistics, list[int], list[int] | None]]


def encode_row(codec: Codec, row: list[float], used: int, slots, key: Key, row_index: int) -> EncodedRow:
    """Statistics and code words of a row's packets. `used` coordinates are the message's, the others padding."""
    d = len(row)
    finite = all(math.isfinite(x) for x in row)
    if not finite and codec.name != "raw":
        marked = Statistics(from_bits(CANONICAL_NAN), 0, 0, 0.0)
        return EncodedRow(False, [(marked, [0] * slot.n, [0] * slot.n) for slot in slots])
    e = exponent_of(row)
    v = f32s(math.ldexp(x, e) for x in row)
    if codec.rotates:
        signs = negated(key, row_index, used) + [False] * (d - used)
        v = hadamard([-x if minus else x for x, minus in zip(v, signs)])
    u = dither(key, row_index, d) if codec.name in ("sq", "sd") else []
    packets = []
    for slot in slots:
        here = slice(slot.start, slot.start + slot.n)
        values = v[here]
        # Raw values travel as they are, and need no mark.
        bare = codec.name == "raw" and not math.isfinite(folded(f32s(x * x for x in values)))
        figures = Statistics(0.0, 0, 0, 0.0) if bare else statistics(codec, values, d, e)
        tail = None
        if codec.name == "rht":
            slopes = quantiser.zone_slopes(figures.peak)
            offsets = quantiser.zone_offsets(slopes)
            magnitudes = [quantiser.magnitude_code(f32(abs(x) * figures.scale), slopes, offsets) for x in values]
            codes = [sign_of(x) << 31 | magnitude << 8 for x, magnitude in zip(values, magnitudes)]
        elif codec.name == "rht-paper":
            codes = [bits(f32(math.ldexp(x, -e) / math.sqrt(d))) for x in values]
        elif codec.name in ("sign-magnitude", "raw"):
            codes = [bits(x) for x in row[here]]
        else:
            limit = dither_limit(figures.sigma)
            heads = [f32(x + f32(limit * t)) < 0 for x, t in zip(row[here], u[here])]
            codes = [head << 31 | bits(x) >> 1 for head, x in zip(heads, row[here])]
            tail = [bits(x) & 1 for x in row[here]]
        packets.append((figures, codes, tail))
    return EncodedRow(finite, packets)


def importance(codec: Codec, layout: Layout, rows: list[EncodedRow], gradient: list[float]) -> list[bool]:
    """The priority bit of every packet."""
    if codec.rotates:
        energies = []
        for row in rows:
            energy = sum((len(codes) * (s.sigma * s.sigma) for s, codes, _ in row.packets), 0.0)
            energies.append(energy / sum(len(codes) for _, codes, _ in row.packets))
        least = threshold([energy for row, energy in zip(rows, energies) if row.finite])
        return [not rows[slot.row].finite or energies[slot.row] >= least for slot in layout.slots]
    means = []
    for slot in layout.slots:
        total = 0.0
        for x in layout.row(gradient, slot.row)[slot.start : slot.start + slot.n]:
            total += x
        means.append(abs(total / slot.n))
    # A raw packet stands for itself; of the others a row that is not finite is marked as a whole.
    finite = [math.isfinite(mean) and (codec.name == "raw" or rows[s.row].finite) for s, mean in zip(layout.slots, means)]
    least = threshold([means[i] for i in range(0, len(means), 20) if finite[i]])
    return [not counts or mean >= least for counts, mean in zip(finite, means)]


def encode(codec: Codec, layout: Layout, key: Key, envelope: Envelope, gradient: list[float], planes: int) -> list[bytes]:
    """The packets of a message."""
    rows = []
    for row in range(len(layout.rows)):
        slots = [layout.slots[index] for index in layout.indices(row)]
        rows.append(encode_row(codec, layout.row(gradient, row), layout.rows[row][0], slots, key, row))
    important = importance(codec, layout, rows, gradient)
    contents = [packet for row in rows for packet in row.packets]
    out = []
    for index, (slot, (figures, codes, tail)) in enumerate(zip(layout.slots, contents)):
        header = Header(
            codec=codec,
            important=important[index],
            layer_class=envelope.layer_class,
            last=index + 1 == len(layout.slots),
            job=envelope.job,
            rank=envelope.rank,
            message=envelope.message,
            first_plane=0,
            index=index,
            n=slot.n,
            sigma=figures.sigma,
            kappa=figures.kappa,
            peak=figures.peak,
        )
        out.append(header.to_bytes() + packed(codec, codes, tail, planes))
    return out


def repair(codec: Codec, packet: bytes, n: int, first_plane: int, planes: int) -> bytes:
    """The packet that carries only the planes from `first_plane` up to `planes` of a whole packet."""
    start = 18 + sum(plane_bytes(codec, plane, n) for plane in range(first_plane))
    end = 18 + sum(plane_bytes(codec, plane, n) for plane in range(planes))
    place = first_plane << 20 | int.from_bytes(packet[8:11], "big") & 0xFFFFF
    return packet[:8] + place.to_bytes(3, "big") + packet[11:18] + packet[start:end]
