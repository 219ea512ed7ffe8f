# SPDX-License-Identifier: Apache-2.0
"""From tensors to packets in one kernel, a program a row at a time."""

import triton
import triton.language as tl

from ._header import HEADER_MASK, MARK, blocks_field, check_of, first_word, mask_bytes, swapped
from ._pack import halves_of, in_bytes, put, turned
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
from ._rows import COLUMNS, HEADER_BYTES
from ._signs import SECOND, draw, flipped_in_eights
from ._statistics import head_of, length_of, packet_of, place_of, statistics, sums
from ._values import loaded, loaded_in_fours

_COLUMNS = tl.constexpr(COLUMNS)
_HEADER = tl.constexpr(HEADER_BYTES)


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
def _rotated(base, begin, used, words, values, blocks, zeros, seed, row, key_message, key_rank, log2, D: tl.constexpr, LOG2: tl.constexpr, KIND: tl.constexpr, ALIGNED: tl.constexpr):
    """Writes a row's working values to `values`, rotated once, and to `blocks` which were not all zero before. Gives e of the working scale, whether the row is finite, and whether it is to be rotated twice."""
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
    filled = tl.max(((first != 0.0) | (second != 0.0)).to(tl.int32), axis=1)
    tl.store(blocks + tl.arange(0, D // 32), tl.max(tl.reshape(filled, (D // 32, 4)), axis=1))
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
def _planes(packets, values, figures, lines, first_byte, planes, finite, d, k, D: tl.constexpr, KP: tl.constexpr, WORDS: tl.constexpr):
    """Codes of a row's working values, and their planes into its packets: sixteen coordinates of a packet a thread."""
    values = tl.multiple_of(values, 16)
    # Two a thread.
    TILE: tl.constexpr = D // 32
    width = tl.minimum(planes, 8) + 8 * tl.maximum(planes - 8, 0)
    # Rows that are not finite have zeros in all planes.
    kept = tl.where(finite, 0xFFFFFFFF, 0).to(tl.uint32)
    for tile in range(0, (d // 16 + TILE - 1) // TILE):
        # Threads that are too many do what the last one does.
        half = tl.minimum(tile * TILE + tl.arange(0, TILE), d // 16 - 1)
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
        body = packets + first_byte + (head_of(packet, d, k, width) + _HEADER + mask_bytes(n // 32)).to(tl.int64)
        bits_at = body + within // 8
        for plane in tl.static_range(8):
            # Whole planes are sent or not: a branch of the program, no mask.
            if plane < planes:
                two = by_two[(7 - plane) // 4 * 2 + (7 - plane) % 2]
                if (7 - plane) // 2 % 2 == 1:
                    two = two >> 16
                put(bits_at + plane * (n // 8), two, 2, WORDS)
        if planes > 8:
            bytes_at = body + n + within
            for four in tl.static_range(4):
                put(bytes_at + 4 * four, eighths[four], 4, WORDS)
            if planes > 9:
                for four in tl.static_range(4):
                    put(bytes_at + n + 4 * four, ninths[four], 4, WORDS)


@triton.jit
def _zeros_of(blocks, first, count, nth):
    """Whether block `nth` of a packet's `count` is zero, 0 or 1; `first` is the packet's first one within the row."""
    return ((tl.load(blocks + first + nth, mask=nth < count, other=1) == 0) & (nth < count)).to(tl.int32)


@triton.jit
def _encode_row(bases, line, message, seed, stream, key_message, key_rank, threshold, peaks, lines, checks, zeros, packets, row_figures, values, figures, words, blocks, D: tl.constexpr, LOG2: tl.constexpr, KP: tl.constexpr, KIND: tl.constexpr, ALIGNED: tl.constexpr, WORDS: tl.constexpr):
    """A row of d = 2^log2 coordinates in k packets."""
    log2, k = length_of(line)
    d = 1 << log2
    packet = tl.arange(0, KP)
    start, n = place_of(packet, d, k)
    base, begin, used = tl.load(bases + tl.load(line)), tl.load(line + 1), tl.load(line + 2).to(tl.int32)
    row, first_packet = tl.load(line + 3).to(tl.int32), tl.load(line + 4).to(tl.int32)
    layer_class, planes = tl.load(line + 5).to(tl.int32), tl.load(line + 6).to(tl.int32)
    first_byte, last = tl.load(line + 7), tl.load(line + 8).to(tl.int32)

    e, finite, twice = _rotated(base, begin, used, words, values, blocks, zeros, seed, row, key_message, key_rank, log2, D, LOG2, KIND, ALIGNED)
    if twice == 1:
        _rotated_again(words + D // 32, values, zeros, seed, row, key_message, key_rank + SECOND, log2, D, LOG2)
    gain = power_f64(e) * tl.where(twice == 1, power_f64(tl.zeros((), tl.int32) + log2 // 2), tl.sqrt(tl.zeros((), tl.float64) + d))
    # Other threads of the program read what this one has written.
    tl.debug_barrier()

    q, a, m = sums(values, d, k, KP)
    sigma, kappa, peak, scale = statistics(q, a, m, n, gain, peaks)
    infinite = (sigma.to(tl.int32, bitcast=True) >= 0x7F800000) & (packet < k)
    finite = (finite == 1) & (tl.max(infinite.to(tl.int32), axis=0) == 0)
    tl.store(figures + packet, scale)
    tl.store((figures + KP + packet).to(tl.pointer_type(tl.int32)), peak)
    wide = sigma.to(tl.float64)
    tl.store((figures + 2 * KP).to(tl.pointer_type(tl.float64)) + packet, n * (wide * wide))
    tl.debug_barrier()

    # In order, packet by packet: importance is binding, too.
    energy = tl.full((), 0.0, tl.float64)
    terms = (figures + 2 * KP).to(tl.pointer_type(tl.float64))
    for nth in range(0, k):
        energy += tl.load(terms + nth)
    figure = energy / d
    marked = finite == 0
    tl.store(row_figures + row, tl.where(marked, float("nan"), figure))
    important = ((figure >= threshold) | marked).to(tl.int32)

    count = tl.where(packet < k, n // 32, 0)
    mask = tl.zeros((KP,), tl.int32)
    for nth in tl.static_range(HEADER_MASK):
        mask |= _zeros_of(blocks, start // 32, count, nth) << nth
    ends = ((last == 1) & (packet == k - 1)).to(tl.int32)
    w0 = first_word(layer_class, important, ends, stream)
    # 19 bits of σ: the upper three, the others.
    pattern = tl.where(finite, sigma.to(tl.int32, bitcast=True), MARK) >> 12
    w2 = ((first_packet + packet) << 8) | (tl.where(finite, twice, 0) << 3) | (pattern >> 16)
    w3 = (pattern << 16) | blocks_field(n // 32, tl.where(finite, mask, 0))
    w4 = tl.where(finite, (kappa << 24) | (peak << 16), 0)
    w4 = w4 | check_of(w0, message, w2, w3, w4, checks)
    width = tl.minimum(planes, 8) + 8 * tl.maximum(planes - 8, 0)
    head = packets + first_byte + head_of(packet, d, k, width).to(tl.int64)
    put(head, swapped(w0), 4, WORDS, packet < k)
    put(head + 4, swapped(tl.zeros((KP,), tl.int32) + message), 4, WORDS, packet < k)
    put(head + 8, swapped(w2), 4, WORDS, packet < k)
    put(head + 12, swapped(w3), 4, WORDS, packet < k)
    put(head + 16, swapped(w4), 4, WORDS, packet < k)
    if not WORDS:
        byte = tl.arange(0, D // 256)[None, :]
        eight = tl.zeros((KP, D // 256), tl.int32)
        for bit in tl.static_range(8):
            eight |= _zeros_of(blocks, start[:, None] // 32, count[:, None], byte * 8 + bit) << bit
        tl.store(head[:, None] + _HEADER + byte, tl.where(finite, eight, 0).to(tl.uint8), mask=byte < mask_bytes(count)[:, None])

    _planes(packets, values, figures, lines, first_byte, planes, finite, d, k, D, KP, WORDS)


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
    scratch,
    rows,
    D: tl.constexpr,
    LOG2: tl.constexpr,
    KP: tl.constexpr,
    KIND: tl.constexpr,
    ALIGNED: tl.constexpr,
    WORDS: tl.constexpr,
):
    """Rows of up to D coordinates in up to KP packets, each as its line says. Every program has D + D/16 + D/32 + 8 · KP words of `scratch`."""
    values = scratch + tl.program_id(0).to(tl.int64) * (D + D // 16 + D // 32 + 8 * KP)
    figures = values + D
    words = (figures + 8 * KP).to(tl.pointer_type(tl.int32))
    seed, stream, message = tl.load(numbers), tl.load(numbers + 1).to(tl.int32), tl.load(numbers + 2).to(tl.int32)
    key_message, key_rank = tl.load(numbers + 3).to(tl.int32), tl.load(numbers + 4).to(tl.int32)
    threshold = tl.load(important_from)
    index = tl.program_id(0)
    while index < rows:
        _encode_row(bases, table + index * _COLUMNS, message, seed, stream, key_message, key_rank, threshold, peaks, lines, checks, zeros, packets, row_figures, values, figures, words, words + D // 16, D, LOG2, KP, KIND, ALIGNED, WORDS)
        # The next row takes the same scratch.
        tl.debug_barrier()
        index += tl.num_programs(0)
