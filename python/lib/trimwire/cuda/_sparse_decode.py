"""From what arrived of sparse packets to entries, and from entries to tensors (docs/reference/wire-format.md, §13, "Receiving", "Decoding").

Where an entry begins follows from those in front of it. All bits of a packet are looked at as if an entry began there, which says where the next one would; these steps are doubled, and the n-th entry is as many steps from the first bit as the
ones of n say: thirteen rounds instead of a thousand steps.
"""

import triton
import triton.language as tl

from ._header import MARK, check_of, swapped
from ._sparse_bits import SPARSE, length_of
from ._values import loaded, stored

_SPARSE = SPARSE
_HEAD = tl.constexpr(32)
#: Version 4, DATA, codec 6; all else of the first word differs from packet to packet, or is the sender's.
_KIND = tl.constexpr(0x41 << 24)
#: What is told of a packet, 64-bit integers: whether it is one of the message; entries, of which as many arrived; first and final coordinate; packets of the message; whether it has the mark; order; bits that are not sent of
#: a magnitude; the largest level.
FIELDS = 10
_FIELDS = tl.constexpr(FIELDS)
#: Bits, and entries, that are looked at together.
_TILE = tl.constexpr(1024)


@triton.jit
def _word(head, nth: tl.constexpr, here):
    return swapped(tl.load(head + nth, mask=here, other=0))


@triton.jit
def _unsigned(word):
    """A word's number, as a signed 64-bit one."""
    return word.to(tl.int64) & 0xFFFFFFFF


@triton.jit
def _peek(words, bit, here):
    """64 bits from a bit on. Behind what arrived they may be anything."""
    at, shift = bit // 32, (bit % 32).to(tl.uint64)
    a = _unsigned(swapped(tl.load(words + at, mask=here, other=0))).to(tl.uint64)
    b = _unsigned(swapped(tl.load(words + at + 1, mask=here, other=0))).to(tl.uint64)
    c = _unsigned(swapped(tl.load(words + at + 2, mask=here, other=0))).to(tl.uint64)
    return (((a << 32) | b) << shift) | (c >> (32 - shift))


@triton.jit(do_not_specialize=["slots", "stride", "runs"])
def read_heads(packets, lengths, numbers, checks, ends, classes, fields, slots, stride, runs, LANES: tl.constexpr):
    """What the heads of packets say, each as if it were alone."""
    slot = tl.program_id(0) * LANES + tl.arange(0, LANES)
    there = slot < slots
    length = tl.load(lengths + slot, mask=there, other=0)
    here = there & (length >= _HEAD)
    head = (packets + slot.to(tl.int64) * stride).to(tl.pointer_type(tl.int32))
    w0, w1, w2, sigma, w4 = _word(head, 0, here), _word(head, 1, here), _word(head, 2, here), _word(head, 3, here), _word(head, 4, here)
    first, final, w7 = _unsigned(_word(head, 5, here)), _unsigned(_word(head, 6, here)), _word(head, 7, here)
    stream, message = tl.load(numbers).to(tl.int32), tl.load(numbers + 1).to(tl.int32)
    # Importance, layer class and last are no part of whose packet it is.
    ok = here & ((w0 & ~(0x1F << 16)) == (_KIND | _SPARSE | stream)) & (w1 == message)
    ok &= ((w4 ^ check_of(w0, w1, w2, sigma, w4, checks)) & 0xFFFF) == 0
    blocks, padding, bits = w2 & 0xFF, (w4 >> 24) & 0xFF, (w4 >> 16) & 0xFF
    order, packets_less_one = (w7 >> 24) & 0xFF, w7 & 0xFFFFFF
    # First plane 0, and the slot's own index.
    ok &= (w2 >> 8) == slot
    ok &= (blocks > 0) & (padding <= 32) & (bits <= 23) & (order <= 62) & (packets_less_one < (1 << 20)) & (slot <= packets_less_one)
    unsent = tl.where(bits <= 23, 23 - bits, 0)
    marked = sigma == MARK
    ok &= marked | ((sigma >= 0) & (sigma <= 0x7F7FFFFF) & ((sigma & ((1 << unsent) - 1)) == 0))
    entries = blocks * 32 - padding
    none = marked | (sigma == 0) | (padding == 32)
    nothing = (marked | (sigma == 0)) & (entries == 0) & (first == 0) & (final == 0) & (order == 0) & (packets_less_one == 0)
    ok &= (none == 0) | nothing
    # The run of its first coordinate has its final one, too.
    within = slot < 0
    begin = tl.full((), 0, tl.int64)
    for run in range(0, runs):
        end = tl.load(ends + run)
        within |= (first >= begin) & (first <= final) & (final < end) & (((w0 >> 17) & 7) == tl.load(classes + run).to(tl.int32))
        begin = end
    ok &= within
    field = fields + slot.to(tl.int64) * _FIELDS
    tl.store(field, ok.to(tl.int64), mask=there)
    tl.store(field + 1, tl.where(ok, entries, 0).to(tl.int64), mask=there)
    tl.store(field + 2, first, mask=there)
    tl.store(field + 3, final, mask=there)
    tl.store(field + 4, packets_less_one.to(tl.int64) + 1, mask=there)
    tl.store(field + 5, (marked & ok).to(tl.int64), mask=there)
    tl.store(field + 6, tl.where(ok, order, 0).to(tl.int64), mask=there)
    tl.store(field + 7, unsent.to(tl.int64), mask=there)
    tl.store(field + 8, tl.where(ok, sigma >> unsent, 0).to(tl.int64), mask=there)


@triton.jit
def _entry_at(words, bit, total, order, here):
    """Of an entry that begins at a bit: the zeros in front, all its bits, whether they arrived."""
    here &= bit < total
    zeros = 64 - length_of(_peek(words, bit, here))
    size = 2 * zeros + order + 2
    return zeros, size, here & (zeros <= 63 - order) & (size <= total - bit)


@triton.jit(do_not_specialize=["slots", "stride", "bits", "most"])
def read_entries(packets, lengths, fields, places, values, scratch, slots, stride, bits, most):
    """Reads the entries of packets whose heads are read: `places` and `values` (bits of f32s), `most` a slot, of those that arrived. A packet with what is no entry is none of the message.

    Every program has 2 · `bits` + `most` words of `scratch`; `bits` is more than a packet has.
    """
    steps = scratch + tl.program_id(0).to(tl.int64) * (2 * bits + most)
    begins = steps + 2 * bits
    lane = tl.arange(0, _TILE)
    slot = tl.program_id(0)
    while slot < slots:
        field = fields + slot.to(tl.int64) * _FIELDS
        entries, order = tl.load(field + 1).to(tl.int32), tl.load(field + 6).to(tl.int32)
        first, final = tl.load(field + 2), tl.load(field + 3)
        unsent, top = tl.load(field + 7).to(tl.int32), tl.load(field + 8)
        entries = tl.minimum(entries, most)
        words = (packets + slot.to(tl.int64) * stride + _HEAD).to(tl.pointer_type(tl.int32))
        total = tl.minimum(tl.maximum(tl.load(lengths + slot) - _HEAD, 0) * 8, bits - 1)
        total = tl.where(entries > 0, total, 0)
        for tile in range(0, (total + _TILE) // _TILE):
            bit = tile * _TILE + lane
            _, size, whole = _entry_at(words, bit, total, order, bit >= 0)
            # Behind the last entry nothing follows.
            tl.store(steps + bit, tl.where(whole, bit + size, total), mask=bit <= total)
        for tile in range(0, (entries + _TILE - 1) // _TILE):
            nth = tile * _TILE + lane
            tl.store(begins + nth, tl.zeros((_TILE,), tl.int32), mask=nth < entries)
        # Other threads of the program read what this one has written.
        tl.debug_barrier()
        one, other = steps, steps + bits
        power = 1
        while power < entries:
            for tile in range(0, (entries + _TILE - 1) // _TILE):
                nth = tile * _TILE + lane
                begin = tl.load(begins + nth, mask=nth < entries, other=0)
                moved = tl.load(one + begin, mask=nth < entries, other=0)
                tl.store(begins + nth, tl.where((nth & power) != 0, moved, begin), mask=nth < entries)
            for tile in range(0, (total + _TILE) // _TILE):
                bit = tile * _TILE + lane
                step = tl.load(one + bit, mask=bit <= total, other=0)
                tl.store(other + bit, tl.load(one + step, mask=bit <= total, other=0), mask=bit <= total)
            tl.debug_barrier()
            one, other = other, one
            power = power * 2
        span = (final - first + 1).to(tl.uint64)
        # Below 2^63.
        limit = top.to(tl.uint64) * span
        there = tl.full((), 0, tl.int32)
        wrong = tl.full((), 0, tl.int32)
        next_key = tl.full((), 0, tl.uint64)
        about = tl.full((), 0.0, tl.float64)
        for tile in range(0, (entries + _TILE - 1) // _TILE):
            nth = tile * _TILE + lane
            here = nth < entries
            begin = tl.load(begins + nth, mask=here, other=0)
            zeros, size, whole = _entry_at(words, begin, total, order, here)
            # Of what did not arrive nothing is wrong.
            endless = here & (begin < total) & (zeros > 63 - order) & (total - begin > 63 - order)
            digits = tl.where(whole, zeros + 1 + order, 1)
            x = _peek(words, begin + zeros, whole) >> (64 - digits).to(tl.uint64)
            gap = tl.where(whole, x - (tl.full((), 1, tl.uint64) << order.to(tl.uint64)), 0)
            negative = (_peek(words, begin + size - 1, whole) >> 63).to(tl.int32)
            step = tl.where(whole, tl.minimum(gap, limit) + 1, 0)
            key = next_key + tl.cumsum(step, axis=0) - 1
            # Where sums leave their 64 bits, the same in f64 are far beyond 2^63.
            behind = about + tl.cumsum(step.to(tl.float64), axis=0)
            beyond = whole & ((behind > 1.2e19) | (key >= limit))
            next_key += tl.sum(step, axis=0)
            about += tl.sum(step.to(tl.float64), axis=0)
            there += tl.sum(whole.to(tl.int32), axis=0)
            wrong = tl.maximum(wrong, tl.max((endless | beyond).to(tl.int32), axis=0))
            level = (top - (key // span).to(tl.int64)).to(tl.int32)
            to = slot.to(tl.int64) * most + nth
            tl.store(places + to, first + (key % span).to(tl.int64), mask=whole & (beyond == 0))
            tl.store(values + to, (level << unsent) | (negative << 31), mask=whole)
        tl.store(field + 1, there.to(tl.int64))
        ok = tl.load(field)
        tl.store(field, tl.where(wrong != 0, 0, ok))
        # The next packet takes the same scratch.
        tl.debug_barrier()
        slot += tl.num_programs(0)


@triton.jit(do_not_specialize=["slots"])
def accept_packets(fields, twice, used, summary, slots):
    """What goes together: in ascending order of indices, the packets that say what the first one says of how many there are, and whose ranges are behind those in front.

    `used`: entries of each that count. `summary`: packets that are accepted, packets of the message (0: nobody said), 1 if one has the mark.
    """
    accepted = tl.full((), 0, tl.int64)
    said = tl.full((), 0, tl.int64)
    behind = tl.full((), -1, tl.int64)
    marked = tl.full((), 0, tl.int64)
    for slot in range(0, slots):
        field = fields + slot * _FIELDS
        total = tl.load(field + 4)
        ok = (tl.load(field) != 0) & (tl.load(twice + slot).to(tl.int32) == 0) & (tl.load(field + 2) > behind)
        ok &= (said == 0) | (said == total)
        tl.store(used + slot, tl.where(ok, tl.load(field + 1), 0))
        said = tl.where(ok, total, said)
        behind = tl.where(ok, tl.load(field + 3), behind)
        marked = tl.where(ok, marked | tl.load(field + 5), marked)
        accepted += ok.to(tl.int64)
    tl.store(summary, accepted)
    tl.store(summary + 1, said)
    tl.store(summary + 2, marked)


@triton.jit(do_not_specialize=["nth", "most", "chunks", "begin", "end"])
def put_entries(bases, places, values, used, marked, nth, most, chunks, begin, end, KIND: tl.constexpr, HOW: tl.constexpr, CHUNK: tl.constexpr):
    """Entries of coordinates from `begin` to `end` into tensor `nth`, which begins at `begin`: written (HOW 0), added (1), or taken away (2). Of each group of `most` the first `used` count.

    Nothing, where `marked` is not 0.
    """
    group = (tl.program_id(0) // chunks).to(tl.int64)
    count = tl.where(tl.load(marked) == 0, tl.load(used + group), 0)
    of = tl.program_id(0) % chunks * CHUNK + tl.arange(0, CHUNK)
    here = of < count
    at = tl.load(places + group * most + of, mask=here, other=0)
    value = tl.load(values + group * most + of, mask=here, other=0).to(tl.float32, bitcast=True)
    here &= (at >= begin) & (at < end)
    base = tl.load(bases + nth)
    if HOW == 1:
        value = loaded(base, at - begin, here, KIND) + value
    elif HOW == 2:
        value = loaded(base, at - begin, here, KIND) - value
    stored(base, at - begin, value, here, KIND)
