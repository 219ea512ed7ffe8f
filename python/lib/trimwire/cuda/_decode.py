# SPDX-License-Identifier: Apache-2.0
"""From what arrived of packets to tensors in one kernel, a program a row at a time (docs/reference/wire-format.md, §8)."""

import triton
import triton.language as tl

from ._header import HEADER_MASK, MARK, blocks_field, check_of, first_word, mask_bytes, swapped
from ._pack import got, halves_of, of_bytes, turned
from ._quantise import fine_magnitude, inverse_line_of, zone_of
from ._rotate import anchored, apart, hadamard, power_f64, together, working_exponent
from ._rows import COLUMNS, HEADER_BYTES
from ._signs import SECOND, draw, flipped, flipped_in_fours
from ._statistics import head_of, length_of, packet_of, place_of
from ._values import added

_COLUMNS = tl.constexpr(COLUMNS)
_HEADER = tl.constexpr(HEADER_BYTES)
#: How a decoding is told.
DECODINGS = {"unbiased": 0, "mmse": 1, "paper": 2}
_UNBIASED, _PAPER = tl.constexpr(0), tl.constexpr(2)
#: B_7, and the codes of the last zone.
_B7, _LAST = tl.constexpr(8224768), tl.constexpr(163840)
#: λ is at most this, and the paper's magnitude this times the largest σ.
_CEILING = tl.constexpr(float(1 << 30))


@triton.jit
def _kept(planes, flat, kappa, distortions):
    """1 − D_b of so many planes; `flat` is that of one."""
    by_kappa = (planes == 1) | ((planes >= 2) & (planes <= 7) & (kappa == 255))
    return tl.where(planes == 0, 0.0, tl.where(by_kappa, flat, 1.0 - tl.load(distortions + planes)))


@triton.jit(noinline=True)
def _whole(packets, values, figures, first_byte, sent, d, k, D: tl.constexpr, KP: tl.constexpr, WORDS: tl.constexpr):
    """The same of a row of which nine planes or ten arrived of all coordinates, as most do: sixteen coordinates of a packet a thread."""
    values = tl.multiple_of(values, 16)
    # Two a thread.
    TILE: tl.constexpr = D // 32
    width = tl.minimum(sent, 8) + 8 * tl.maximum(sent - 8, 0)
    for tile in range(0, (d // 16 + TILE - 1) // TILE):
        # Threads that are too many do what the last one does.
        half = tl.minimum(tile * TILE + tl.arange(0, TILE), d // 16 - 1)
        packet = packet_of(half // 2, d, k)
        start, n = place_of(packet, d, k)
        at = figures + packet
        # In zone widths.
        amplitude = tl.load(at + KP) * (17 / 32)
        inverse, offset = tl.load(at + 3 * KP), tl.load(at + 4 * KP)
        within = half * 16 - start
        body = packets + first_byte + (head_of(packet, d, k, width) + _HEADER + mask_bytes(n // 32)).to(tl.int64)
        bits_at = body + within // 8
        bytes_at = body + n + within
        # All that is read is under way before any of it is used.
        eighths = ()
        ninths = ()
        for four in tl.static_range(4):
            eighths = eighths + (got(bytes_at + 4 * four, 4, WORDS),)
            # Of nine planes the middle of what they leave open.
            ninths = ninths + (got(bytes_at + n + 4 * four, 4, WORDS, half < tl.where(sent > 9, D // 16, 0), 0x80808080 if WORDS else 0x80),)
        twos = ()
        for pair in tl.static_range(4):
            # Planes 7 and 5, 6 and 4, 3 and 1, 2 and 0.
            plane = 7 - pair // 2 * 4 - pair % 2
            twos = twos + (got(bits_at + plane * (n // 8), 2, WORDS) | (got(bits_at + (plane - 2) * (n // 8), 2, WORDS) << 16),)
        low0, low1 = halves_of(twos[0], twos[1])
        high0, high1 = halves_of(twos[2], twos[3])
        indices = turned(low0, high0) + turned(low1, high1)
        for four in tl.static_range(4):
            # 2^23 and the code, as an f32.
            upper = tl.full((TILE,), 0x4B4B4B4B, tl.uint32)
            codes = of_bytes(ninths[four], eighths[four], indices[four] & 0x7F7F7F7F, upper)
            found = ()
            for c in tl.static_range(4):
                magnitude = amplitude * fine_magnitude(codes[c].to(tl.float32, bitcast=True), inverse, offset)
                sign = ((indices[four] << (24 - 8 * c)) & 0x80000000).to(tl.int32, bitcast=True)
                found = found + (flipped(magnitude, sign),)
            tl.store(values + half[:, None] * 16 + four * 4 + tl.arange(0, 4)[None, :], together(found, 4))


@triton.jit(noinline=True)
def _turned_back(values, words, zeros, log2, D: tl.constexpr, LOG2: tl.constexpr):
    """Undoes one rotation of working values, but for a factor."""
    values = tl.multiple_of(values, 16)
    words = tl.multiple_of(words, 16)
    v = _back(values, words, zeros, log2, D, LOG2)
    # All have read what others write to.
    tl.debug_barrier()
    tl.store(values + (tl.arange(0, D // 4)[:, None] * 4 + tl.arange(0, 4)[None, :]), v)


@triton.jit
def _back(values, words, zeros, log2, D: tl.constexpr, LOG2: tl.constexpr):
    there = values + (tl.arange(0, D // 8)[:, None] * 8 + tl.arange(0, 4)[None, :])
    xs = apart(tl.load(there), 4) + apart(tl.load(there + 4), 4)
    v = together(anchored(hadamard(xs, zeros, log2, D, LOG2), zeros, D // 64), 64)
    return flipped_in_fours(tl.reshape(tl.permute(v, (1, 0)), (D // 4, 4)), words, D)


@triton.jit
def _unscaled(v, e, marked):
    """Back from the working scale, in two steps, as 2^-149 is nobody's factor; NaN of marked rows."""
    if (e != 0) | (marked != 0):
        half = -e // 2
        v = v * power_f64(half).to(tl.float32) * power_f64(-e - half).to(tl.float32)
        v = tl.where(marked != 0, float("nan"), v)
    return v


@triton.jit
def _emptied(v, blocks, fours):
    """Values in fours, those numbers of the row, with exact zeros in zero blocks."""
    return tl.where(tl.load(blocks + fours // 8)[:, None] == 1, 0.0, v)


@triton.jit(noinline=True)
def _summed(values, blocks, base, begin, used, e, marked, D: tl.constexpr, KIND: tl.constexpr, ALIGNED: tl.constexpr):
    """Adds a row's values to its tensor: a quarter at a time, as registers are for loads that are under way."""
    values = tl.multiple_of(values, 16)
    for quarter in range(0, 4):
        fours = quarter * (D // 16) + tl.arange(0, D // 16)
        at = fours[:, None] * 4 + tl.arange(0, 4)[None, :]
        v = _unscaled(_emptied(tl.load(values + at), blocks, fours), e, marked)
        added(base, begin, used, at, v, (quarter + 1) * (D // 4), KIND, ALIGNED, True)


@triton.jit(noinline=True)
def _finished(values, words, blocks, zeros, base, begin, used, e, marked, log2, D: tl.constexpr, LOG2: tl.constexpr, KIND: tl.constexpr, ALIGNED: tl.constexpr):
    """Undoes the first rotation, and writes a row's values to its tensor."""
    values = tl.multiple_of(values, 16)
    words = tl.multiple_of(words, 16)
    fours = tl.arange(0, D // 4)
    v = _unscaled(_emptied(_back(values, words, zeros, log2, D, LOG2), blocks, fours), e, marked)
    at = fours[:, None] * 4 + tl.arange(0, 4)[None, :]
    added(base, begin, used, at, v, D, KIND, ALIGNED, False)


@triton.jit(noinline=True)
def _values(packets, values, figures, centroids, first_byte, sent, paper, d, k, D: tl.constexpr, KP: tl.constexpr, DECODING: tl.constexpr):
    """What is known of a row's coordinates, as values at the working scale."""
    # Sixteen coordinates a thread.
    TILE: tl.constexpr = D // 128
    group = tl.arange(0, 4)[None, :]
    within = tl.arange(0, 8)[None, None, :]
    width = tl.minimum(sent, 8) + 8 * tl.maximum(sent - 8, 0)
    for tile in range(0, (d // 32 + TILE - 1) // TILE):
        block = tl.minimum(tile * TILE + tl.arange(0, TILE), d // 32 - 1)
        packet = packet_of(block, d, k)
        start, n = place_of(packet, d, k)
        at = figures + packet
        state = tl.load(at.to(tl.pointer_type(tl.int32)))[:, None]
        whole, partial = state & 15, state >> 4
        amplitude = tl.load(at + KP)[:, None, None]
        flat = tl.load(at + 2 * KP)[:, None, None]
        inverse = tl.load(at + 3 * KP)[:, None, None]
        offset = tl.load(at + 4 * KP)[:, None, None]
        stretch = tl.load(at + 5 * KP)[:, None, None]
        alike = tl.load((at + 6 * KP).to(tl.pointer_type(tl.int32)))[:, None, None]

        # Eight coordinates of a bit plane are a byte: of all of them the plane is known, or of none.
        place = (block * 32 - start)[:, None] + group * 8
        planes = whole + (place < partial).to(tl.int32)
        body = packets + first_byte + (head_of(packet, d, k, width) + _HEADER + mask_bytes(n // 32)).to(tl.int64)
        byte_at = body[:, None] + place // 8
        upper = tl.zeros((TILE, 4), tl.int32)
        lower = tl.zeros((TILE, 4), tl.int32)
        for plane in tl.static_range(4):
            upper |= tl.load(byte_at + plane * (n // 8)[:, None], mask=planes > plane, other=0).to(tl.int32) << (8 * plane)
            lower |= tl.load(byte_at + (plane + 4) * (n // 8)[:, None], mask=planes > plane + 4, other=0).to(tl.int32) << (8 * plane)
        # A product gathers four bits from four bytes, the first byte's highest.
        index = (((((upper[:, :, None] >> within) & 0x01010101) * 0x08040201) >> 24) & 15) << 4
        index |= ((((lower[:, :, None] >> within) & 0x01010101) * 0x08040201) >> 24) & 15

        place3 = place[:, :, None] + within
        planes3 = whole[:, :, None] + (place3 < partial[:, :, None]).to(tl.int32)
        ninth = body[:, None, None] + n[:, None, None] + place3
        eighth = tl.load(ninth, mask=planes3 > 8, other=0).to(tl.int32)
        tenth = tl.load(ninth + n[:, None, None], mask=planes3 > 9, other=0).to(tl.int32)
        code = ((index & 127) << 16) | (eighth << 8) | tenth

        # Nine planes and ten: by the encoder's own line, nine in the middle of what they leave open.
        by_line, line_offset = inverse_line_of(zone_of(code), inverse, offset)
        middle = tl.where(planes3 == 9, 128, 0)
        fine = (code + 8388608 + middle - line_offset.to(tl.int32)).to(tl.float32) * by_line * (17 / 32)
        # Two to eight: the cell's centroid, or the middle of a cell of a stretched zone.
        depth = tl.minimum(tl.maximum(planes3, 1), 8)
        cell = code >> (24 - depth)
        centre = tl.load(centroids + (1 << (depth - 1)) - 1 + cell)
        low = cell << (24 - depth)
        share = (low + (1 << (23 - depth)) - _B7).to(tl.float32) * (1 / _LAST)
        stretched = (7.0 + share * stretch) * (17 / 32)
        coarse = tl.where((low >= _B7) & (stretch > 1.625), stretched, centre)
        # Where magnitudes are nearly alike σ stands for its cell: index 58 of 128, 29 at seven planes, 14 at six.
        of_sigma = ((planes3 == 6) & (cell == 14) & (alike >= 1)) | ((planes3 == 7) & (cell == 29) & (alike == 2))
        magnitude = amplitude * tl.where(planes3 >= 9, fine, tl.where(of_sigma, 1.0, coarse))
        magnitude = tl.where((planes3 <= 1) | ((planes3 <= 5) & (alike >= 1)), flat, magnitude)
        if DECODING == _PAPER:
            magnitude = tl.where(planes3 < 10, paper, magnitude)
        value = tl.where(planes3 == 0, 0.0, tl.where(index >= 128, -magnitude, magnitude))
        tl.store(values + block[:, None, None] * 32 + group[:, :, None] * 8 + within, value)


@triton.jit
def _zeros(packets, figures, blocks, first_byte, width, d, k, D: tl.constexpr, KP: tl.constexpr, WORDS: tl.constexpr):
    """Writes which blocks of a row are known to be zero."""
    block = tl.arange(0, D // 32)
    packet = packet_of(tl.minimum(block, d // 32 - 1), d, k)
    start, n = place_of(packet, d, k)
    nth = block - start // 32
    known = tl.load((figures + 7 * KP + packet).to(tl.pointer_type(tl.int32)))
    zero = (known >> tl.minimum(nth, HEADER_MASK - 1)) & 1
    if not WORDS:
        in_body = n > 32 * HEADER_MASK
        at = packets + first_byte + (head_of(packet, d, k, width) + _HEADER + nth // 8).to(tl.int64)
        byte = tl.load(at, mask=in_body & (known == 1) & (block < d // 32), other=0).to(tl.int32)
        zero = tl.where(in_body, (byte >> (nth % 8)) & 1, zero)
    tl.store(blocks + block, zero)


@triton.jit
def _decode_row(bases, line, message, seed, stream, key_message, key_rank, distortions, centroids, inverses, offsets, stretches, checks, zeros, packets, lengths, values, figures, words, blocks, D: tl.constexpr, LOG2: tl.constexpr, KP: tl.constexpr, KIND: tl.constexpr, ALIGNED: tl.constexpr, WORDS: tl.constexpr, DECODING: tl.constexpr, ACCUMULATE: tl.constexpr):
    """A row of d = 2^log2 coordinates in k packets."""
    log2, k = length_of(line)
    d = 1 << log2
    packet = tl.arange(0, KP)
    start, n = place_of(packet, d, k)
    base, begin, used = tl.load(bases + tl.load(line)), tl.load(line + 1), tl.load(line + 2).to(tl.int32)
    row, first_packet = tl.load(line + 3).to(tl.int32), tl.load(line + 4).to(tl.int32)
    layer_class, sent = tl.load(line + 5).to(tl.int32), tl.load(line + 6).to(tl.int32)
    first_byte = tl.load(line + 7)
    width = tl.minimum(sent, 8) + 8 * tl.maximum(sent - 8, 0)

    # Only what says what is expected is read: a wrong header is a lost packet.
    length = tl.load(lengths + first_packet + packet, mask=packet < k, other=0)
    arrived = (length >= _HEADER) & (packet < k)
    head = packets + first_byte + head_of(packet, d, k, width).to(tl.int64)
    w0 = swapped(got(head, 4, WORDS, arrived, 0).to(tl.int32, bitcast=True))
    w1 = swapped(got(head + 4, 4, WORDS, arrived, 0).to(tl.int32, bitcast=True))
    w2 = swapped(got(head + 8, 4, WORDS, arrived, 0).to(tl.int32, bitcast=True))
    w3 = swapped(got(head + 12, 4, WORDS, arrived, 0).to(tl.int32, bitcast=True))
    w4 = swapped(got(head + 16, 4, WORDS, arrived, 0).to(tl.int32, bitcast=True))
    # Importance and *last* are not compared.
    arrived &= ((w0 ^ first_word(layer_class, 0, 0, stream)) & ~0x110000) == 0
    arrived &= (w1 == message) & (((w2 >> 8) & 0xFFFFFF) == first_packet + packet)
    arrived &= (((w2 >> 4) & 15) < 10) & ((w4 & 0xFFFF) == check_of(w0, w1, w2, w3, w4, checks))
    count = n // 32
    in_header = count <= HEADER_MASK
    mask = tl.where(in_header, w3 & ((1 << tl.minimum(count, HEADER_MASK)) - 1), 0)
    arrived &= (w3 & 0xFFFF) == blocks_field(count, mask)
    pattern = ((w2 & 7) << 28) | (((w3 >> 16) & 0xFFFF) << 12)
    spun = (w2 >> 3) & 1
    mark = pattern == MARK
    arrived &= (pattern < 0x7F800000) | (mark & (spun == 0) & (mask == 0))
    # Of packets that disagree the first one is believed.
    first = tl.min(tl.where(arrived, packet, KP), axis=0)
    twice = tl.max(tl.where(packet == first, spun, 0), axis=0)
    arrived &= spun == twice
    marked = tl.max((arrived & mark).to(tl.int32), axis=0) == 1

    beyond = length - _HEADER - mask_bytes(count)
    body = tl.where(arrived, tl.minimum(tl.maximum(beyond, 0), n // 8 * width), 0)
    eighth = tl.maximum(n // 8, 1)
    whole = tl.where(body < n, body // eighth, 8 + (body - n) // (eighth * 8))
    partial = tl.where(body < n, (body - whole * eighth) * 8, body - n - (whole - 8) * n)
    sigma = tl.where(arrived & ~mark, pattern, 0).to(tl.float32, bitcast=True)
    kappa, peak = (w4 >> 24) & 0xFF, (w4 >> 16) & 0xFF
    wide = sigma.to(tl.float64)
    share = kappa.to(tl.float64) / 255.0
    flat = share * share
    kept = (n - partial) * _kept(whole, flat, kappa, distortions) + partial * _kept(tl.minimum(whole + 1, 10), flat, kappa, distortions)
    count = tl.sum(tl.where(arrived, n, 0).to(tl.float64), axis=0)
    energy = tl.sum(tl.where(arrived, n, 0) * (wide * wide), axis=0)
    shrunk = tl.sum(tl.where(arrived, kept, 0.0) * (wide * wide), axis=0)
    spread = tl.sum(tl.where(arrived, n, 0) * (wide * share), axis=0)
    largest = tl.max(sigma, axis=0)
    factor = tl.full((), 1.0, tl.float64)
    if DECODING == _UNBIASED:
        scale = d / tl.where(count > 0.0, count, 1.0) * energy / tl.where(shrunk > 0.0, shrunk, 1.0)
        factor = tl.where(shrunk > 0.0, tl.minimum(scale, _CEILING), 0.0)
    paper = tl.minimum(energy / tl.where(spread > 0.0, spread, 1.0), largest.to(tl.float64) * _CEILING)
    paper = tl.where(spread > 0.0, paper, 0.0)
    e = working_exponent(largest)
    unit = power_f64(e)
    # What each rotation takes back, and the working scale.
    wide_d = tl.full((), 0.0, tl.float64) + d
    back = unit * (1.0 / tl.where(twice == 1, wide_d, tl.sqrt(wide_d)))
    amplitude = factor * wide * back
    at = figures + packet
    tl.store(at.to(tl.pointer_type(tl.int32)), whole | (partial << 4))
    tl.store(at + KP, amplitude.to(tl.float32))
    tl.store(at + 2 * KP, (amplitude * share).to(tl.float32))
    tl.store(at + 3 * KP, tl.load(inverses + peak))
    tl.store(at + 4 * KP, tl.load(offsets + peak))
    tl.store(at + 5 * KP, tl.load(stretches + peak))
    tl.store((at + 6 * KP).to(tl.pointer_type(tl.int32)), tl.where(kappa == 255, tl.where(peak <= 1, 2, 1), 0))
    # Of the header's mask the bits; of one in the body whether it arrived.
    known = tl.where(in_header, mask, (beyond >= 0).to(tl.int32))
    tl.store((at + 7 * KP).to(tl.pointer_type(tl.int32)), tl.where(arrived, known, 0))
    draw(words, seed, row, key_message, key_rank, D)
    # Most rows are rotated once, and most packets arrive whole.
    if twice == 1:
        draw(words + D // 32, seed, row, key_message, key_rank + SECOND, D)
    least = 10 if DECODING == _PAPER else 9
    complete = tl.min(tl.where(packet < k, whole, 10), axis=0) >= tl.maximum(sent, least)
    # Other threads of the program read what this one has written.
    tl.debug_barrier()
    _zeros(packets, figures, blocks, first_byte, width, d, k, D, KP, WORDS)
    if complete:
        _whole(packets, values, figures, first_byte, sent, d, k, D, KP, WORDS)
    else:
        _values(packets, values, figures, centroids, first_byte, sent, (paper * back).to(tl.float32), d, k, D, KP, DECODING)
    tl.debug_barrier()
    if twice == 1:
        _turned_back(values, words + D // 32, zeros, log2, D, LOG2)
        tl.debug_barrier()
    if ACCUMULATE:
        _turned_back(values, words, zeros, log2, D, LOG2)
        tl.debug_barrier()
        _summed(values, blocks, base, begin, used, e, marked.to(tl.int32), D, KIND, ALIGNED)
    else:
        _finished(values, words, blocks, zeros, base, begin, used, e, marked.to(tl.int32), log2, D, LOG2, KIND, ALIGNED)


@triton.jit(do_not_specialize=["rows"])
def decode_rows(
    bases,
    table,
    numbers,
    distortions,
    centroids,
    inverses,
    offsets,
    stretches,
    checks,
    zeros,
    packets,
    lengths,
    scratch,
    rows,
    D: tl.constexpr,
    LOG2: tl.constexpr,
    KP: tl.constexpr,
    KIND: tl.constexpr,
    ALIGNED: tl.constexpr,
    WORDS: tl.constexpr,
    DECODING: tl.constexpr,
    ACCUMULATE: tl.constexpr,
):
    """Rows of up to D coordinates in up to KP packets, of which `lengths` bytes arrived. Every program has D + D/16 + D/32 + 8 · KP words of `scratch`."""
    values = scratch + tl.program_id(0).to(tl.int64) * (D + D // 16 + D // 32 + 8 * KP)
    figures = values + D
    words = (figures + 8 * KP).to(tl.pointer_type(tl.int32))
    seed, stream, message = tl.load(numbers), tl.load(numbers + 1).to(tl.int32), tl.load(numbers + 2).to(tl.int32)
    key_message, key_rank = tl.load(numbers + 3).to(tl.int32), tl.load(numbers + 4).to(tl.int32)
    index = tl.program_id(0)
    while index < rows:
        _decode_row(bases, table + index * _COLUMNS, message, seed, stream, key_message, key_rank, distortions, centroids, inverses, offsets, stretches, checks, zeros, packets, lengths, values, figures, words, words + D // 16, D, LOG2, KP, KIND, ALIGNED, WORDS, DECODING, ACCUMULATE)
        # The next row takes the same scratch.
        tl.debug_barrier()
        index += tl.num_programs(0)
