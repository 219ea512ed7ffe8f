"""Entries to packets (docs/reference/wire-format.md, §13, "Encoding"): one program takes a packet after the other, since what fits into one decides where the next begins."""

import triton
import triton.language as tl

from ._header import MARK, check_of, first_word, swapped
from ._sparse_bits import MOST_ENTRIES, SPARSE, length_of

_MOST = tl.constexpr(MOST_ENTRIES)
_SPARSE = SPARSE
_HEAD = tl.constexpr(32)
#: Entries that are looked at together, but for sorting.
_TILE = tl.constexpr(1024)
#: What is kept of a packet until its heads are written: 64-bit integers.
FIELDS = 6
_FIELDS = tl.constexpr(FIELDS)


@triton.jit
def _compared(x, h: tl.constexpr, stage: tl.constexpr, SIZE: tl.constexpr):
    """Pairs that are h apart are split, put in order and joined again."""
    pairs = tl.permute(tl.reshape(x, (SIZE // (2 * h), 2, h)), (0, 2, 1))
    a, b = tl.split(pairs)
    downwards = (((tl.arange(0, SIZE // (2 * h)) * (2 * h)) >> stage) & 1)[:, None] == 1
    low, high = tl.minimum(a, b), tl.maximum(a, b)
    a, b = tl.where(downwards, high, low), tl.where(downwards, low, high)
    return tl.reshape(tl.permute(tl.join(a, b), (0, 2, 1)), (SIZE,))


@triton.jit
def _sorted(x, SIZE: tl.constexpr, LOG2: tl.constexpr):
    """Ascending, by Batcher's bitonic network."""
    for stage in tl.static_range(1, LOG2 + 1):
        for step in tl.static_range(0, stage):
            x = _compared(x, 1 << (stage - 1 - step), stage, SIZE)
    return x


@triton.jit
def _sort_keys(places, values, start, c, first, top, span, unsent, keys, SIZE: tl.constexpr, LOG2: tl.constexpr):
    """Leaves c entries' keys and signs (key · 2 + sign, unsigned) at `keys`, ascending."""
    nth = tl.arange(0, SIZE)
    here = nth < c
    bits = tl.load(values + start + nth, mask=here, other=0)
    down = (top - ((bits & 0x7FFFFFFF) >> unsent)).to(tl.uint64)
    along = (tl.load(places + start + nth, mask=here, other=0) - first).to(tl.uint64)
    key = ((down * span.to(tl.uint64) + along) << 1) | ((bits >> 31) & 1).to(tl.uint64)
    # In the order of signed numbers; what is not there comes last: no key has 63 ones.
    signed = tl.where(here, key.to(tl.int64, bitcast=True) ^ (-9223372036854775807 - 1), 9223372036854775807)
    # All of the program are done with the keys of the trial before.
    tl.debug_barrier()
    tl.store(keys + nth, _sorted(signed, SIZE, LOG2) ^ (-9223372036854775807 - 1))
    tl.debug_barrier()


@triton.jit
def _gaps(keys, tile, c):
    """A tile's gaps and signs, and which of them are there."""
    nth = tile * _TILE + tl.arange(0, _TILE)
    here = nth < c
    own = tl.load(keys + nth, mask=here, other=0).to(tl.uint64, bitcast=True)
    last = tl.load(keys + nth - 1, mask=here & (nth > 0), other=0).to(tl.uint64, bitcast=True)
    gap = tl.where(nth > 0, (own >> 1) - (last >> 1) - 1, own >> 1)
    return tl.where(here, gap, 0), (own & 1).to(tl.int32), here


@triton.jit
def _code(gap, here, order):
    """x of gaps, and bits of their codes and signs together; none of what is not there."""
    x = gap + (tl.full((), 1, tl.uint64) << order.to(tl.uint64))
    return x, tl.where(here, 2 * length_of(x) - order, 0)


@triton.jit
def _planned(places, values, start, c, unsent, keys, SMALL: tl.constexpr, SMALL_LOG2: tl.constexpr, LARGE: tl.constexpr, LARGE_LOG2: tl.constexpr):
    """A packet of c entries: first and final coordinate, σ's bits, order, bytes. Its keys are left at `keys`."""
    first, final = tl.load(places + start), tl.load(places + start + c - 1)
    tiles = (c + _TILE - 1) // _TILE
    sigma = tl.full((), 0, tl.int32)
    for tile in range(0, tiles):
        nth = tile * _TILE + tl.arange(0, _TILE)
        bits = tl.load(values + start + nth, mask=nth < c, other=0)
        sigma = tl.maximum(sigma, tl.max(bits & 0x7FFFFFFF, axis=0))
    top, span = sigma >> unsent, final - first + 1
    if LARGE > SMALL:
        if c <= SMALL:
            _sort_keys(places, values, start, c, first, top, span, unsent, keys, SMALL, SMALL_LOG2)
        else:
            _sort_keys(places, values, start, c, first, top, span, unsent, keys, LARGE, LARGE_LOG2)
    else:
        _sort_keys(places, values, start, c, first, top, span, unsent, keys, SMALL, SMALL_LOG2)
    bits = tl.full((), 0, tl.int64)
    for tile in range(0, tiles):
        gap, _, _ = _gaps(keys, tile, c)
        bits += tl.sum(length_of(gap), axis=0)
    # The mean length of a gap, rounded, less 1.
    order = tl.maximum((4 * bits + 3 * c) // (4 * c) - 1, 0).to(tl.int32)
    bits = tl.full((), 0, tl.int64)
    for tile in range(0, tiles):
        gap, _, here = _gaps(keys, tile, c)
        bits += tl.sum(_code(gap, here, order)[1], axis=0)
    return first, final, sigma, order, (bits + 7) // 8


@triton.jit
def _put(words, at, part, here):
    """Adds the bits of some words, which no other has, to big-endian words."""
    tl.atomic_or(words + at, swapped(part.to(tl.uint32).to(tl.int32, bitcast=True)), mask=here & (part != 0), sem="relaxed")


@triton.jit
def _write(keys, c, order, words, size):
    """Writes the entries' codes and signs from a word on."""
    for tile in range(0, ((size + 3) // 4 + _TILE - 1) // _TILE):
        nth = tile * _TILE + tl.arange(0, _TILE)
        tl.store(words + nth, tl.zeros((_TILE,), tl.int32), mask=nth < (size + 3) // 4)
    tl.debug_barrier()
    begin = tl.full((), 0, tl.int32)
    for tile in range(0, (c + _TILE - 1) // _TILE):
        gap, sign, here = _gaps(keys, tile, c)
        x, bits = _code(gap, here, order)
        end = begin + tl.cumsum(bits, axis=0)
        begin += tl.sum(bits, axis=0)
        # The sign is the last bit; x, whose zeros in front are there already, ends in front of it.
        last = tl.where(here, end - 1, 0)
        _put(words, last // 32, sign.to(tl.uint64) << (31 - last % 32).to(tl.uint64), here)
        low = tl.where(here, end - 2, 0)
        shift = (31 - low % 32).to(tl.uint64)
        _put(words, low // 32, (x << shift) & 0xFFFFFFFF, here)
        _put(words, low // 32 - 1, (x >> (32 - shift)) & 0xFFFFFFFF, here)
        _put(words, low // 32 - 2, (x >> 32) >> (32 - shift), here)


@triton.jit(do_not_specialize=["runs", "packet_bytes", "stride", "capacity", "unsent"])
def share_out(
    places,
    values,
    edges,
    keys,
    packets,
    lengths,
    fields,
    summary,
    runs,
    packet_bytes,
    stride,
    capacity,
    unsent,
    SMALL: tl.constexpr,
    SMALL_LOG2: tl.constexpr,
    LARGE: tl.constexpr,
    LARGE_LOG2: tl.constexpr,
):
    """Fills packets with entries, run by run, in one program: `edges[run]` is where a run's entries end. Packets begin at multiples of `stride` bytes.

    Leaves the number of packets in `summary[0]`, one more than `capacity` where they are too few.
    """
    room = (packet_bytes - _HEAD).to(tl.int64)
    guess = (packet_bytes // 2).to(tl.int64)
    start = tl.full((), 0, tl.int64)
    index = tl.full((), 0, tl.int64)
    for run in range(0, runs):
        end = tl.load(edges + run)
        while (start < end) & (index < capacity):
            c = tl.minimum(tl.minimum(tl.maximum(guess, 1), _MOST), end - start)
            first, final, sigma = tl.full((), 0, tl.int64), tl.full((), 0, tl.int64), tl.full((), 0, tl.int32)
            order, size = tl.full((), 0, tl.int32), tl.full((), 0, tl.int64)
            trying = c > 0
            while trying:
                first, final, sigma, order, size = _planned(places, values, start, c, unsent, keys, SMALL, SMALL_LOG2, LARGE, LARGE_LOG2)
                trying = (size > room) & (c > 1)
                # A little less than what should just fit, so that it nearly always does.
                c = tl.where(trying, tl.maximum(63 * c * room // (64 * tl.maximum(size, 1)), 1), c)
            guess = c * room // tl.maximum(size, 1)
            _write(keys, c.to(tl.int32), order, (packets + index * stride + _HEAD).to(tl.pointer_type(tl.int32)), size.to(tl.int32))
            field = fields + index * _FIELDS
            tl.store(field, c)
            tl.store(field + 1, first)
            tl.store(field + 2, final)
            tl.store(field + 3, sigma.to(tl.int64))
            tl.store(field + 4, order.to(tl.int64))
            tl.store(field + 5, tl.full((), 0, tl.int64) + run)
            tl.store(lengths + index, (size + _HEAD).to(tl.int32))
            start += c
            index += 1
        index = tl.where(start < end, capacity + 1, index)
    tl.store(summary, index)


@triton.jit(do_not_specialize=["stride", "capacity", "fraction_bits", "important"])
def write_heads(fields, summary, finite, classes, numbers, checks, packets, lengths, stride, capacity, fraction_bits, important, LANES: tl.constexpr):
    """The heads of all packets, of which a message without entries has one."""
    count = tl.load(summary)
    total = tl.maximum(count, 1)
    index = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    here = (index < total) & (index < capacity)
    some = here & (index < count)
    field = fields + index * _FIELDS
    entries = tl.load(field, mask=some, other=0).to(tl.int32)
    first, final = tl.load(field + 1, mask=some, other=0), tl.load(field + 2, mask=some, other=0)
    sigma = tl.load(field + 3, mask=some, other=0).to(tl.int32)
    order = tl.load(field + 4, mask=some, other=0).to(tl.int32)
    layer_class = tl.load(classes + tl.load(field + 5, mask=some, other=0), mask=here, other=0).to(tl.int32)
    stream, message = tl.load(numbers).to(tl.int32), tl.load(numbers + 1).to(tl.int32)
    sigma = tl.where(tl.load(finite) != 0, sigma, MARK)
    blocks = tl.maximum((entries + 31) // 32, 1)
    w0 = first_word(layer_class, important, (index == total - 1).to(tl.int32), stream) | _SPARSE
    w1 = tl.zeros((LANES,), tl.int32) + message
    w2 = (index.to(tl.int32) << 8) | blocks
    w4 = ((blocks * 32 - entries) << 24) | (fraction_bits << 16)
    w4 = w4 | check_of(w0, w1, w2, sigma, w4, checks)
    w7 = (order << 24) | (total - 1).to(tl.int32)
    head = (packets + index * stride).to(tl.pointer_type(tl.int32))
    tl.store(head, swapped(w0), mask=here)
    tl.store(head + 1, swapped(w1), mask=here)
    tl.store(head + 2, swapped(w2), mask=here)
    tl.store(head + 3, swapped(sigma), mask=here)
    tl.store(head + 4, swapped(w4), mask=here)
    tl.store(head + 5, swapped(first.to(tl.int32)), mask=here)
    tl.store(head + 6, swapped(final.to(tl.int32)), mask=here)
    tl.store(head + 7, swapped(w7), mask=here)
    # Of a message without entries nobody else says it.
    tl.store(lengths + index, tl.zeros((LANES,), tl.int32) + _HEAD, mask=here & (index >= count))
