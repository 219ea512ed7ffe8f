# SPDX-License-Identifier: Apache-2.0
"""From tensors to packets in one kernel, a program a row at a time."""

import triton
import triton.language as tl

from ._header import MARK, check_of, first_word, swapped
from ._pack import halves_of, in_bytes, turned
from ._quantise import code_word
from ._rotate import (
    anchored,
    apart,
    estimated_concentration,
    folded,
    hadamard,
    is_between,
    is_doubtful,
    power_f32,
    power_f64,
    scaled,
    together,
    working_exponent,
)
from ._rows import COLUMNS
from ._signs import SECOND, draw, flipped_in_eights
from ._statistics import length_of, packet_of, place_of, statistics, sums
from ._values import loaded, loaded_in_fours

_COLUMNS = tl.constexpr(COLUMNS)
#: What becomes of a row: in order; marked, as it holds NaN or an infinity; marked, as a σ is beyond f32.
FINE, NOT_FINITE, TOO_LARGE = 0, 1, 2
_NOT_FINITE, _TOO_LARGE = tl.constexpr(NOT_FINITE), tl.constexpr(TOO_LARGE)
_HEADER = tl.constexpr(20)
#: Half blocks of 32 coordinates that are packed at a time: two a thread of a row of 2^15.
_TILE = tl.constexpr(1024)


@triton.jit
def _concentration(base, begin, used, e, KIND: tl.constexpr):
    """q in the binding order, in f64: a lane after the other would do, and no more than sixteen can be had. Zeros behind the `used` coordinates change no sum."""
    lane = tl.arange(0, 16)
    total = tl.zeros((16,), tl.float64)
    fourth = tl.zeros((16,), tl.float64)
    # Sixteen steps at a time: their loads are under way together.
    for some in range(0, (used + 255) // 256):
        for step in tl.static_range(16):
            at = some * 256 + step * 16 + lane
            x = scaled(loaded(base, begin + at, at < used, KIND), e).to(tl.float64)
            square = x * x
            total += square
            fourth += square * square
    total = tl.sum(folded(tl.reshape(total, (1, 16)), 1), axis=0)
    fourth = tl.sum(folded(tl.reshape(fourth, (1, 16)), 1), axis=0)
    return tl.where(total > 0.0, fourth / tl.where(total > 0.0, total * total, 1.0), 0.0)


# What follows is not inlined: the compiler's time grows faster than a function does.


@triton.jit
def _stored(values, vs, zeros, D: tl.constexpr):
    """Writes what the transform has left."""
    v = tl.reshape(tl.permute(together(anchored(vs, zeros, D // 64), 64), (1, 0)), (D,))
    tl.store(values + tl.arange(0, D), v)


@triton.jit(noinline=True)
def _rotated(base, begin, used, words, values, zeros, seed, row, key_message, key_rank, log2, D: tl.constexpr, LOG2: tl.constexpr, KIND: tl.constexpr, ALIGNED: tl.constexpr):
    """Writes a row's working values to `values`, rotated once. Gives e of the working scale, whether the row is finite, and whether it is to be rotated twice."""
    values = tl.multiple_of(values, 16)
    first, second = loaded_in_fours(base, begin, used, D, KIND, ALIGNED)
    most = tl.max(tl.maximum(tl.abs(first), tl.abs(second), propagate_nan=tl.PropagateNan.ALL).to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)
    top = tl.max(most, axis=0)
    finite = top < 0x7F800000
    largest = tl.where(finite, top, 0).to(tl.float32, bitcast=True)
    e = working_exponent(largest)
    if (e != 0) | (finite == 0):
        first = tl.where(finite, scaled(first, e), 0.0)
        second = tl.where(finite, scaled(second, e), 0.0)
    xs = apart(first, 4) + apart(second, 4)
    estimate = estimated_concentration(xs, scaled(largest, e), 8)
    twice = (estimate > 1 / 256) & (estimate < 0.995)
    if is_doubtful(estimate):
        twice = is_between(_concentration(base, begin, used, e, KIND))
    twice = twice & finite

    draw(words, seed, row, key_message, key_rank, D)
    tl.debug_barrier()
    # Padding keeps its sign.
    _stored(values, hadamard(flipped_in_eights(xs, words, used, D), zeros, log2, D, LOG2), zeros, D)
    return e, finite.to(tl.int32), twice.to(tl.int32)


@triton.jit(noinline=True)
def _rotated_again(words, values, zeros, seed, row, key_message, key_rank, log2, D: tl.constexpr, LOG2: tl.constexpr):
    """Rotates working values a second time. `words` are other places than the first rotation's, which others may still be reading."""
    values = tl.multiple_of(values, 16)
    factor = power_f32(tl.zeros((), tl.int32) - (log2 + 1) // 2)
    draw(words, seed, row, key_message, key_rank, D)
    tl.debug_barrier()
    there = values + (tl.arange(0, D // 8)[:, None] * 8 + tl.arange(0, 4)[None, :])
    xs = apart(tl.load(there) * factor, 4) + apart(tl.load(there + 4) * factor, 4)
    # All have read what others write to.
    tl.debug_barrier()
    _stored(values, hadamard(flipped_in_eights(xs, words, D, D), zeros, log2, D, LOG2), zeros, D)


@triton.jit(noinline=True)
def _planes(packets, values, figures, lines, first_byte, planes, finite, d, k, D: tl.constexpr, KP: tl.constexpr):
    """Codes of a row's working values, and their planes into its packets: sixteen coordinates of a packet a thread."""
    values = tl.multiple_of(values, 16)
    TILE: tl.constexpr = min(D // 32, _TILE)
    width = tl.minimum(planes, 8) + 8 * tl.maximum(planes - 8, 0)
    # Rows that are not finite have zeros in all planes.
    kept = tl.where(finite, 0xFFFFFFFF, 0).to(tl.uint32)
    for tile in range(0, (d // 16 + TILE - 1) // TILE):
        half = tile * TILE + tl.arange(0, TILE)
        if d < 16 * TILE:
            # Threads that are too many do what the last one does.
            half = tl.minimum(half, d // 16 - 1)
        packet = packet_of(half // 2, d, k)
        start, n = place_of(packet, d, k)
        scale = tl.load(figures + packet)
        line = lines + tl.load((figures + KP + packet).to(tl.pointer_type(tl.int32))) * 8
        # Bytes 0 to 3 of what four coordinates are turned to: nothing, planes 9 and 8, and the first eight bits each.
        indices = ()
        eighths = ()
        ninths = ()
        found = ()
        for four in tl.static_range(4):
            found = found + (tl.load(values + half[:, None] * 16 + four * 4 + tl.arange(0, 4)[None, :]),)
        for four in tl.static_range(4):
            vs = apart(found[four], 4)
            ninth, eighth, index = in_bytes(
                code_word(vs[0], scale, line), code_word(vs[1], scale, line), code_word(vs[2], scale, line), code_word(vs[3], scale, line)
            )
            indices = indices + (index & kept,)
            eighths = eighths + (eighth & kept,)
            ninths = ninths + (ninth & kept,)
        low0, high0 = turned(indices[0], indices[1])
        low1, high1 = turned(indices[2], indices[3])
        # Planes 7 and 5, 6 and 4, 3 and 1, 2 and 0: two bytes each.
        by_two = halves_of(low0, low1) + halves_of(high0, high1)
        within = half * 16 - start
        body = packets + first_byte + ((packet + 1) * _HEADER + start // 8 * width).to(tl.int64)
        bits_at = (body + within // 8).to(tl.pointer_type(tl.int16))
        for plane in tl.static_range(8):
            # Whole planes are sent or not: a branch of the program, no mask.
            if plane < planes:
                two = by_two[(7 - plane) // 4 * 2 + (7 - plane) % 2]
                if (7 - plane) // 2 % 2 == 1:
                    two = two >> 16
                tl.store(bits_at + plane * (n // 16), two.to(tl.int16))
        if planes > 8:
            bytes_at = (body + n + within).to(tl.pointer_type(tl.int32))
            for four in tl.static_range(4):
                tl.store(bytes_at + four, eighths[four].to(tl.int32, bitcast=True))
            if planes > 9:
                for four in tl.static_range(4):
                    tl.store(bytes_at + n // 4 + four, ninths[four].to(tl.int32, bitcast=True))


@triton.jit
def _encode_row(bases, line, message, seed, stream, key_message, key_rank, threshold, peaks, lines, checks, zeros, packets, row_figures, status, values, figures, words, d, log2, k, D: tl.constexpr, LOG2: tl.constexpr, KP: tl.constexpr, KIND: tl.constexpr, ALIGNED: tl.constexpr, WHOLE: tl.constexpr):
    """A row of d = 2^log2 coordinates in k packets."""
    packet = tl.arange(0, KP)
    start, n = place_of(packet, d, k)
    base, begin, used = tl.load(bases + tl.load(line)), tl.load(line + 1), tl.load(line + 2).to(tl.int32)
    row, first_packet = tl.load(line + 3).to(tl.int32), tl.load(line + 4).to(tl.int32)
    layer_class, planes = tl.load(line + 5).to(tl.int32), tl.load(line + 6).to(tl.int32)
    first_byte, last = tl.load(line + 7), tl.load(line + 8).to(tl.int32)

    e, finite, twice = _rotated(base, begin, used, words, values, zeros, seed, row, key_message, key_rank, log2, D, LOG2, KIND, ALIGNED)
    if twice == 1:
        _rotated_again(words + D // 32, values, zeros, seed, row, key_message, key_rank + SECOND, log2, D, LOG2)
    gain = power_f64(e) * tl.where(twice == 1, power_f64(tl.zeros((), tl.int32) + log2 // 2), tl.sqrt(tl.zeros((), tl.float64) + d))
    # Other threads of the program read what this one has written.
    tl.debug_barrier()

    q, a, m = sums(values, d, k, KP, WHOLE)
    sigma, kappa, peak, scale = statistics(q, a, m, n, gain, peaks)
    infinite = (sigma.to(tl.int32, bitcast=True) >= 0x7F800000) & (packet < k)
    fits = tl.max(infinite.to(tl.int32), axis=0) == 0
    tl.store(status + row, tl.where(finite == 1, tl.where(fits, 0, _TOO_LARGE), _NOT_FINITE))
    finite = (finite == 1) & fits
    twice = twice * fits.to(tl.int32)
    tl.store(figures + packet, scale)
    tl.store((figures + KP + packet).to(tl.pointer_type(tl.int32)), peak)
    wide = sigma.to(tl.float64)
    tl.store((figures + 2 * KP).to(tl.pointer_type(tl.float64)) + packet, n * (wide * wide))
    tl.debug_barrier()

    # In order, packet by packet: importance is binding, too.
    energy = tl.full((), 0.0, tl.float64)
    terms = (figures + 2 * KP).to(tl.pointer_type(tl.float64))
    for some in range(0, k // 25):
        for nth in tl.static_range(25):
            energy += tl.load(terms + some * 25 + nth)
    for nth in range(k // 25 * 25, k):
        energy += tl.load(terms + nth)
    figure = energy / d
    marked = finite == 0
    tl.store(row_figures + row, tl.where(marked, float("nan"), figure))
    important = ((figure >= threshold) | marked).to(tl.int32)

    ends = ((last == 1) & (packet == k - 1)).to(tl.int32)
    w0 = first_word(layer_class, important, ends, stream)
    w2 = ((first_packet + packet) << 8) | (n // 32)
    w3 = tl.where(finite, sigma.to(tl.int32, bitcast=True) | (twice << 31), MARK)
    w4 = tl.where(finite, (kappa << 24) | (peak << 16), 0)
    w4 = w4 | check_of(w0, message, w2, w3, w4, checks)
    width = tl.minimum(planes, 8) + 8 * tl.maximum(planes - 8, 0)
    head = packets + first_byte + (packet * _HEADER).to(tl.int64) + start // 8 * width
    head = head.to(tl.pointer_type(tl.int32))
    tl.store(head, swapped(w0), mask=packet < k)
    tl.store(head + 1, swapped(tl.zeros((KP,), tl.int32) + message), mask=packet < k)
    tl.store(head + 2, swapped(w2), mask=packet < k)
    tl.store(head + 3, swapped(w3), mask=packet < k)
    tl.store(head + 4, swapped(w4), mask=packet < k)

    _planes(packets, values, figures, lines, first_byte, planes, finite, d, k, D, KP)


@triton.jit(do_not_specialize=["rows"])
def encode_rows(
    bases,
    table,
    numbers,
    important_from,
    peaks,
    lines,
    checks,
    zeros,
    packets,
    row_figures,
    status,
    scratch,
    rows,
    D: tl.constexpr,
    LOG2: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    KIND: tl.constexpr,
    ALIGNED: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Rows of D coordinates in K packets each; where they are not WHOLE, of up to so many, each as its line says. Every program has D + D/16 + 8 · KP words of `scratch`."""
    values = scratch + tl.program_id(0).to(tl.int64) * (D + D // 16 + 8 * KP)
    figures = values + D
    words = (figures + 8 * KP).to(tl.pointer_type(tl.int32))
    seed, stream, message = tl.load(numbers), tl.load(numbers + 1).to(tl.int32), tl.load(numbers + 2).to(tl.int32)
    key_message, key_rank = tl.load(numbers + 3).to(tl.int32), tl.load(numbers + 4).to(tl.int32)
    threshold = tl.load(important_from)
    index = tl.program_id(0)
    while index < rows:
        line = table + index * _COLUMNS
        if WHOLE:
            _encode_row(bases, line, message, seed, stream, key_message, key_rank, threshold, peaks, lines, checks, zeros, packets, row_figures, status, values, figures, words, D, LOG2, K, D, LOG2, KP, KIND, ALIGNED, WHOLE)
        else:
            log2, k = length_of(line)
            _encode_row(bases, line, message, seed, stream, key_message, key_rank, threshold, peaks, lines, checks, zeros, packets, row_figures, status, values, figures, words, 1 << log2, log2, k, D, LOG2, KP, KIND, ALIGNED, WHOLE)
        # The next row takes the same scratch.
        tl.debug_barrier()
        index += tl.num_programs(0)
