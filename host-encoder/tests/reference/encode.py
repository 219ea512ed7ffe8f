# SPDX-License-Identifier: Apache-2.0
"""From a gradient to packets, bit for bit as the wire format's page says."""

import math
from dataclasses import dataclass

import quantiser
from float32 import CANONICAL_NAN, SMALLEST_SIGMA, bits, f32, f32_of_19_bits, f32s, from_bits
from philox import negated
from wire import HEADER, MASK_IN_HEADER, Codec, Envelope, Header, Layout, checked, mask_bytes, plane_bytes


@dataclass(frozen=True)
class Key:
    """What the random numbers depend on, besides the row."""

    job_seed: int
    message: int
    rank: int


def key_of(job_seed: int, envelope: Envelope) -> Key:
    """The key of a message."""
    return Key(job_seed, envelope.message, envelope.rank)


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


def folded(values, rounded=f32) -> float:
    """A sum over 16 lanes, which are then folded in halves; in f32, unless `rounded` leaves values as they are."""
    lanes = [0.0] * 16
    for j, value in enumerate(values):
        lanes[j % 16] = rounded(lanes[j % 16] + value)
    for half in (8, 4, 2, 1):
        lanes = [rounded(lanes[i] + lanes[i + half]) for i in range(half)]
    return lanes[0]


def concentration(x: list[float]) -> float:
    """q of a row at its working scale, in f64; that of zeros is 0."""
    squares = [value * value for value in x]
    total = folded(squares, float)
    return folded([s * s for s in squares], float) / (total * total) if total > 0 else 0.0


def is_rotated_twice(q: float) -> bool:
    """Whether one rotation would leave the row far from normal, and a second one mends that."""
    return 1 / 256 < q < 0.995


def rotated(x: list[float], used: int, twice: bool, key: Key, row_index: int) -> list[float]:
    """The row at its working scale, rotated. `used` coordinates are the message's, the others padding, whose zeros keep their sign."""
    signs = negated(key, row_index, used) + [False] * (len(x) - used)
    v = hadamard([-value if minus else value for value, minus in zip(x, signs)])
    if not twice:
        return v
    # Exact, but for values that this takes below the smallest normal f32.
    v = f32s(math.ldexp(value, -(log2(len(x)) + 1 >> 1)) for value in v)
    signs = negated(key, row_index, len(x), second=True)
    return hadamard([-value if minus else value for value, minus in zip(v, signs)])


def log2(d: int) -> int:
    """Of a power of two."""
    return d.bit_length() - 1


def gain(codec: Codec, d: int, twice: bool) -> float:
    """G: by how much working values are larger than an orthonormal rotation would make them."""
    if not codec.rotates:
        return 1.0
    return float(1 << log2(d) // 2) if twice else math.sqrt(d)


@dataclass
class Statistics:
    """Of one packet: the header's fields, and what magnitudes are multiplied by."""

    sigma: float
    kappa: int
    peak: int
    # What takes a magnitude to zone widths, f32.
    scale: float


def statistics(v: list[float], scale_of_row: float) -> Statistics:
    """sigma, kappa and peak of the working values v of one packet, which are larger than the packet's by 2^e and G."""
    unit = quantiser.ZONE_WIDTH
    squares = folded(f32s(x * x for x in v))
    magnitudes = folded([abs(x) for x in v])
    largest = max(abs(x) for x in v)
    sigma = f32_of_19_bits(f32(math.sqrt(squares / len(v)) / scale_of_row))
    if sigma == 0 and squares > 0:
        sigma = SMALLEST_SIGMA
    if not math.isfinite(sigma):
        # Beyond what a header holds.
        return Statistics(math.inf, 0, 0, 0.0)
    scale = 0.0 if sigma == 0 else f32(1 / (sigma * scale_of_row * unit))
    kappa = min(255, math.floor(255 * (magnitudes / len(v) * scale * unit) + 0.5))
    ratio = f32(f32(largest * scale) * unit)
    peak = next((k for k in range(256) if quantiser.peak_value(k) >= ratio), 255)
    return Statistics(sigma, kappa, peak, scale)


def sign_of(value: float) -> int:
    """The sign bit."""
    return bits(value) >> 31


def zero_blocks(v: list[float]) -> int:
    """The mask of a packet's coordinates before the rotation: bit i is 1 where block i holds nothing but zeros."""
    return sum(1 << at // 32 for at in range(0, len(v), 32) if not any(v[at : at + 32]))


def packed(codec: Codec, codes: list[int], planes: int, first_plane: int = 0) -> bytes:
    """The planes of 32-bit codes."""
    if codec.name == "raw":
        return b"".join(code.to_bytes(4, "big") for code in codes) if first_plane < planes else b""
    out = bytearray()
    for plane in range(first_plane, planes):
        if plane >= 8:
            out += bytes(code >> 8 * (10 - plane) & 0xFF for code in codes)
            continue
        ones = [code >> 31 - plane & 1 for code in codes]
        out += bytes(sum(ones[at + j] << j for j in range(8)) for at in range(0, len(ones), 8))
    return bytes(out)


@dataclass
class EncodedRow:
    """One row on its way to packets."""

    # Not finite, or with a sigma beyond a header's.
    marked: bool
    twice: bool
    # Per packet: statistics, mask of its zero blocks, codes.
    packets: list[tuple[Statistics, int, list[int]]]


def marked_row(slots) -> EncodedRow:
    """A row that decodes to NaN."""
    mark = Statistics(from_bits(CANONICAL_NAN), 0, 0, 0.0)
    return EncodedRow(True, False, [(mark, 0, [0] * slot.n) for slot in slots])


def encode_row(codec: Codec, row: list[float], used: int, slots, key: Key, row_index: int) -> EncodedRow:
    """Statistics and code words of a row's packets. `used` coordinates are the message's, the others padding."""
    d = len(row)
    if codec.rotates and not all(math.isfinite(x) for x in row):
        return marked_row(slots)
    e = exponent_of(row)
    v = plain = f32s(math.ldexp(x, e) for x in row)
    twice = codec.rotates and is_rotated_twice(concentration(v))
    if codec.rotates:
        v = rotated(v, used, twice, key, row_index)
    scale = math.ldexp(gain(codec, d, twice), e)
    packets = []
    for slot in slots:
        here = slice(slot.start, slot.start + slot.n)
        values = v[here]
        # Raw values travel as they are, and need no mark.
        bare = codec.name == "raw" and not math.isfinite(folded(f32s(x * x for x in values)))
        figures = Statistics(0.0, 0, 0, 0.0) if bare else statistics(values, scale)
        if figures.sigma == math.inf:
            if codec.rotates:
                return marked_row(slots)
            figures = Statistics(0.0, 0, 0, 0.0)
        if codec.name == "rht":
            slopes = quantiser.zone_slopes(figures.peak)
            offsets = quantiser.zone_offsets(slopes)
            magnitudes = [quantiser.magnitude_code(f32(abs(x) * figures.scale), slopes, offsets) for x in values]
            codes = [sign_of(x) << 31 | magnitude << 8 for x, magnitude in zip(values, magnitudes)]
        else:
            codes = [bits(x) for x in row[here]]
        packets.append((figures, zero_blocks(plain[here]) if codec.rotates else 0, codes))
    return EncodedRow(False, twice, packets)


def figure(row: EncodedRow) -> float:
    """What a row's importance goes by: its energy per coordinate."""
    energy = 0.0
    for statistics_of_packet, _, codes in row.packets:
        energy += len(codes) * (statistics_of_packet.sigma * statistics_of_packet.sigma)
    return energy / sum(len(codes) for _, _, codes in row.packets)


def is_important(row: EncodedRow, important_from: float | None) -> bool:
    """Whether a row's figure reaches the threshold. Without one all do, and marked rows always do."""
    return important_from is None or row.marked or figure(row) >= important_from


def encode_rows(codec: Codec, layout: Layout, key: Key, gradient: list[float]) -> list[EncodedRow]:
    """All rows of a message."""
    out = []
    for index, row in enumerate(layout.rows):
        slots = [layout.slots[slot] for slot in layout.indices(index)]
        out.append(encode_row(codec, layout.row(gradient, index), row.used, slots, key, index))
    return out


def encode(
    codec: Codec,
    layout: Layout,
    key: Key,
    envelope: Envelope,
    gradient: list[float],
    planes: list[int],
    important_from: float | None = None,
) -> list[bytes]:
    """The packets of a message, with so many planes row by row."""
    out = []
    for index, row in enumerate(encode_rows(codec, layout, key, gradient)):
        important, layer_class = is_important(row, important_from), layout.rows[index].layer_class
        out += packets_of_row(codec, row, envelope, important, layer_class, len(out), len(layout.slots), planes[index])
    return out


def packets_of_row(
    codec: Codec, row: EncodedRow, envelope: Envelope, important: bool, layer_class: int, first: int, count: int, planes: int
) -> list[bytes]:
    """A row's packets, of which the first one has that index, in a message of so many."""
    out = []
    for index, (figures, zeros, codes) in enumerate(row.packets, first):
        n = len(codes)
        header = Header(
            codec=codec,
            important=important,
            layer_class=layer_class,
            last=index + 1 == count,
            job=envelope.job,
            rank=envelope.rank,
            message=envelope.message,
            first_plane=0,
            index=index,
            n=n,
            zeros=zeros if n // 32 <= MASK_IN_HEADER else None,
            twice=row.twice,
            sigma=figures.sigma,
            kappa=figures.kappa,
            peak=figures.peak,
        )
        mask = zeros.to_bytes(32, "little")[: mask_bytes(codec, n)]
        out.append(header.to_bytes() + mask + packed(codec, codes, planes))
    return out


def repair(codec: Codec, packet: bytes, n: int, first_plane: int, planes: int) -> bytes:
    """The packet that carries only the planes from `first_plane` up to `planes` of a whole packet."""
    start = HEADER + sum(plane_bytes(codec, plane, n) for plane in range(first_plane))
    end = HEADER + sum(plane_bytes(codec, plane, n) for plane in range(planes))
    return checked(packet[:11] + bytes([first_plane << 4 | packet[11] & 15]) + packet[12:HEADER] + packet[start:end])
