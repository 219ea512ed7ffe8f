# SPDX-License-Identifier: Apache-2.0
"""From tensors to packets in one kernel, a program a row at a time."""

import triton
import triton.language as tl

from ._header import MARK, check_of, first_word, swapped
from ._quantise import magnitude_code
from ._rotate import estimated_concentration, folded, hadamard, is_between, is_doubtful, power_f64, scaled, working_exponent
from ._rows import COLUMNS
from ._signs import SECOND, draw, flipped, flips
from ._statistics import packet_of, place_of, statistics, sums
from ._values import loaded

_COLUMNS = tl.constexpr(COLUMNS)
#: What becomes of a row: in order; marked, as it holds NaN or an infinity; marked, as a σ is beyond f32.
FINE, NOT_FINITE, TOO_LARGE = 0, 1, 2
_NOT_FINITE, _TOO_LARGE = tl.constexpr(NOT_FINITE), tl.constexpr(TOO_LARGE)
_HEADER = tl.constexpr(20)
#: A row's coordinates that are packed at a time, in blocks of 32.
_TILE = tl.constexpr(256)


@triton.jit
def _concentration(base, begin, used, e, D: tl.constexpr, KIND: tl.constexpr):
    """q in the binding order, in f64: a lane after the other would do, and no more than sixteen can be had."""
    lane = tl.arange(0, 16)
    total = tl.zeros((16,), tl.float64)
    fourth = tl.zeros((16,), tl.float64)
    for step in range(0, D // 16):
        at = step * 16 + lane
        x = scaled(loaded(base, begin + at, at < used, KIND), e).to(tl.float64)
        square = x * x
        total += square
        fourth += square * square
    total = tl.sum(folded(tl.reshape(total, (1, 16)), 1), axis=0)
    fourth = tl.sum(folded(tl.reshape(fourth, (1, 16)), 1), axis=0)
    return tl.where(total > 0.0, fourth / tl.where(total > 0.0, total * total, 1.0), 0.0)


@triton.jit
def _planes(packets, values, figures, first_byte, planes, finite, D: tl.constexpr, K: tl.constexpr, KP: tl.constexpr):
    """Codes of a row's working values, and their planes into its packets."""
    BLOCKS: tl.constexpr = D // 32
    TILE: tl.constexpr = min(BLOCKS, _TILE)
    eighth = tl.arange(0, 4)[None, :, None]
    within = tl.arange(0, 8)[None, None, :]
    width = tl.minimum(planes, 8) + 8 * tl.maximum(planes - 8, 0)
    for tile in range(0, BLOCKS // TILE):
        block = tile * TILE + tl.arange(0, TILE)
        packet = packet_of(block, D, K)
        start, n = place_of(packet, D, K)
        scale = tl.load(figures + packet)[:, None, None]
        slope = tl.load(figures + KP + packet)[:, None, None]
        offset = tl.load(figures + 2 * KP + packet)[:, None, None]
        v = tl.load(values + block[:, None, None] * 32 + eighth * 8 + within)
        code = magnitude_code(tl.abs(v), scale, slope, offset)
        sign = (v.to(tl.int32, bitcast=True) >> 31) & 1
        code = tl.where(finite, (sign << 23) | code, 0)
        # Eight planes of eight coordinates are eight bytes. A product spreads four bits over four bytes, the highest first; sums over coordinates that are shifted apart are ORs.
        upper = ((((code >> 20) * 0x08040201) >> 3) & 0x01010101) << within
        lower = (((((code >> 16) & 15) * 0x08040201) >> 3) & 0x01010101) << within
        upper = tl.sum(upper, axis=2)
        lower = tl.sum(lower, axis=2)
        body = packets + first_byte + ((packet + 1) * _HEADER).to(tl.int64) + start // 8 * width
        bytes_at = body[:, None] + (block * 4 - start // 8)[:, None] + tl.arange(0, 4)[None, :]
        for plane in tl.static_range(4):
            # Whole planes are sent or not: a branch of the program, no mask.
            if plane < planes:
                tl.store(bytes_at + plane * (n // 8)[:, None], (upper >> (8 * plane)).to(tl.uint8))
            if plane + 4 < planes:
                tl.store(bytes_at + (plane + 4) * (n // 8)[:, None], (lower >> (8 * plane)).to(tl.uint8))
        byte_at = body[:, None, None] + n[:, None, None] + (block * 32 - start)[:, None, None] + eighth * 8 + within
        if planes > 8:
            tl.store(byte_at, (code >> 8).to(tl.uint8))
        if planes > 9:
            tl.store(byte_at + n[:, None, None], code.to(tl.uint8))


@triton.jit(do_not_specialize=["rows"])
def encode_rows(
    bases,
    table,
    numbers,
    important_from,
    peaks,
    slopes,
    offsets,
    checks,
    packets,
    row_figures,
    status,
    scratch,
    rows,
    D: tl.constexpr,
    LOG2: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    ROOT: tl.constexpr,
    KIND: tl.constexpr,
):
    """Rows of D coordinates in K packets each. Every program has D + D/16 + 8 · KP words of `scratch`."""
    BLOCKS: tl.constexpr = D // 32
    EACH: tl.constexpr = BLOCKS // K
    LONGER: tl.constexpr = BLOCKS % K
    values = scratch + tl.program_id(0).to(tl.int64) * (D + D // 16 + 8 * KP)
    figures = values + D
    words = (figures + 8 * KP).to(tl.pointer_type(tl.int32))
    seed, stream, message = tl.load(numbers), tl.load(numbers + 1).to(tl.int32), tl.load(numbers + 2).to(tl.int32)
    key_message, key_rank = tl.load(numbers + 3).to(tl.int32), tl.load(numbers + 4).to(tl.int32)
    threshold = tl.load(important_from)
    at = tl.arange(0, BLOCKS)[:, None] * 32 + tl.arange(0, 32)[None, :]
    packet = tl.arange(0, KP)
    start, n = place_of(packet, D, K)
    index = tl.program_id(0)
    while index < rows:
        line = table + index * _COLUMNS
        base, begin, used = tl.load(bases + tl.load(line)), tl.load(line + 1), tl.load(line + 2).to(tl.int32)
        row, first_packet = tl.load(line + 3).to(tl.int32), tl.load(line + 4).to(tl.int32)
        layer_class, planes = tl.load(line + 5).to(tl.int32), tl.load(line + 6).to(tl.int32)
        first_byte, last = tl.load(line + 7), tl.load(line + 8).to(tl.int32)

        x = loaded(base, begin + at, at < used, KIND)
        top = tl.max(tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1), axis=0)
        finite = top < 0x7F800000
        largest = tl.where(finite, top, 0).to(tl.float32, bitcast=True)
        e = working_exponent(largest)
        x = tl.where(finite, scaled(x, e), 0.0)
        estimate = estimated_concentration(x, scaled(largest, e))
        twice = (estimate > 1 / 256) & (estimate < 0.995)
        if is_doubtful(estimate):
            twice = is_between(_concentration(base, begin, used, e, D, KIND))
        twice = twice & finite

        draw(words, seed, row, key_message, key_rank, D)
        tl.debug_barrier()
        # Padding keeps its sign in the first rotation.
        signs = tl.where(at < used, flips(words, at), 0)
        v = hadamard(tl.reshape(flipped(x, signs), (D,)), D, LOG2)
        gain = power_f64(e) * tl.full((), ROOT, tl.float64)
        if twice:
            # Other places than the first words', which others may still be reading.
            draw(words + BLOCKS, seed, row, key_message, key_rank + SECOND, D)
            tl.debug_barrier()
            v = v * (1.0 / (1 << ((LOG2 + 1) // 2)))
            v = hadamard(flipped(v, flips(words + BLOCKS, tl.arange(0, D))), D, LOG2)
            gain = power_f64(e) * (1 << (LOG2 // 2))
        tl.store(values + tl.arange(0, D), v)
        # Other threads of the program read what this one has written.
        tl.debug_barrier()

        q, a, m = sums(values, D, K, KP)
        sigma, kappa, peak, scale = statistics(q, a, m, n, gain, peaks)
        infinite = (sigma.to(tl.int32, bitcast=True) >= 0x7F800000) & (packet < K)
        fits = tl.max(infinite.to(tl.int32), axis=0) == 0
        tl.store(status + row, tl.where(finite, tl.where(fits, 0, _TOO_LARGE), _NOT_FINITE))
        finite = finite & fits
        twice = twice & fits
        tl.store(figures + packet, scale)
        tl.store(figures + KP + packet, tl.load(slopes + peak))
        tl.store(figures + 2 * KP + packet, tl.load(offsets + peak))
        tl.store(figures + 3 * KP + packet, sigma)
        tl.debug_barrier()

        # In order, packet by packet: importance is binding, too.
        energy = tl.full((), 0.0, tl.float64)
        for k in range(0, LONGER):
            one = tl.load(figures + 3 * KP + k).to(tl.float64)
            energy += (EACH + 1) * 32 * (one * one)
        for k in range(LONGER, K):
            one = tl.load(figures + 3 * KP + k).to(tl.float64)
            energy += EACH * 32 * (one * one)
        figure = energy / D
        marked = finite == 0
        tl.store(row_figures + row, tl.where(marked, float("nan"), figure))
        important = ((figure >= threshold) | marked).to(tl.int32)

        ends = ((last == 1) & (packet == K - 1)).to(tl.int32)
        w0 = first_word(layer_class, important, ends, stream)
        w2 = ((first_packet + packet) << 8) | (n // 32)
        w3 = tl.where(finite, sigma.to(tl.int32, bitcast=True) | (twice.to(tl.int32) << 31), MARK)
        w4 = tl.where(finite, (kappa << 24) | (peak << 16), 0)
        w4 = w4 | check_of(w0, message, w2, w3, w4, checks)
        width = tl.minimum(planes, 8) + 8 * tl.maximum(planes - 8, 0)
        head = packets + first_byte + (packet * _HEADER).to(tl.int64) + start // 8 * width
        head = head.to(tl.pointer_type(tl.int32))
        tl.store(head, swapped(w0), mask=packet < K)
        tl.store(head + 1, swapped(tl.zeros((KP,), tl.int32) + message), mask=packet < K)
        tl.store(head + 2, swapped(w2), mask=packet < K)
        tl.store(head + 3, swapped(w3), mask=packet < K)
        tl.store(head + 4, swapped(w4), mask=packet < K)

        _planes(packets, values, figures, first_byte, planes, finite, D, K, KP)
        # The next row takes the same scratch.
        tl.debug_barrier()
        index += tl.num_programs(0)
