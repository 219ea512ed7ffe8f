"""Sparse messages as PyTorch sees them: the largest magnitudes of tensors on a GPU as packets, and what arrived of them back in tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ._launch import tables
from ._sparse_bits import HEAD_BYTES, MOST_ENTRIES
from ._sparse_decode import FIELDS as READ_FIELDS
from ._sparse_decode import accept_packets, put_entries, read_entries, read_heads
from ._sparse_encode import FIELDS, share_out, write_heads
from ._sparse_select import count, take
from ._tensors import Bound, device_of, guard, upload
from ._values import KINDS

DEFAULT_FRACTION_BITS = 4
DEFAULT_PACKET_BYTES = 1452
_MOST_FRACTION_BITS = 23
_LEAST_PACKET_BYTES, _MOST_PACKET_BYTES = 64, 65_507
_MOST_PACKETS = 1 << 20
#: Coordinates that a program of the selection looks at, packets that one of the decoder reads.
_CHUNK, _LANES = 1024, 32
#: Entries that are sorted by the smaller of two networks.
_SMALL = 2048
_WRITE, _ADD, _TAKE_AWAY = 0, 1, 2


class _SparsePlan:
    """Where tensors lie in a message, on a device; runs of one layer class."""

    def __init__(
        self,
        lengths: Sequence[int],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        layer_classes: Sequence[int] | None = None,
        packet_bytes: int = DEFAULT_PACKET_BYTES,
    ) -> None:
        if dtype not in KINDS:
            raise TypeError(f"dtype: {dtype}; {', '.join(str(kind) for kind in KINDS)} are")
        if not lengths:
            raise ValueError("tensors: none; a message has one at least")
        classes = [0] * len(lengths) if layer_classes is None else list(layer_classes)
        if len(classes) != len(lengths):
            raise ValueError(f"layer_classes: {len(classes)} of them for {len(lengths)} tensors")
        begins, runs = [0], list[tuple[int, int]]()
        for nth, (length, layer_class) in enumerate(zip(lengths, classes, strict=True)):
            if length < 1:
                raise ValueError(f"tensors[{nth}]: empty; a tensor has at least one coordinate")
            if not 0 <= layer_class <= 7:
                raise ValueError(f"layer_classes[{nth}]: {layer_class}; valid are 0 to 7")
            begins.append(begins[-1] + length)
            if runs and runs[-1][1] == layer_class:
                runs.pop()
            runs.append((begins[-1], layer_class))
        if begins[-1] > 1 << 32:
            raise ValueError(f"tensors: {begins[-1]} coordinates; a message has at most 2^32")
        if not _LEAST_PACKET_BYTES <= packet_bytes <= _MOST_PACKET_BYTES:
            raise ValueError(f"packet_bytes: {packet_bytes}; valid are {_LEAST_PACKET_BYTES} to {_MOST_PACKET_BYTES}")
        self.device, self.dtype, self.lengths = device_of(device), dtype, tuple(lengths)
        self.coordinates, self.packet_bytes = begins[-1], packet_bytes
        self._begins = begins
        #: Bytes from a packet's begin to the next one's: whole words.
        self.stride = -(-packet_bytes // 4) * 4
        self._ends, self._classes = (torch.tensor([run[part] for run in runs], dtype=torch.int64, device=self.device) for part in (0, 1))
        self._bound = Bound(lengths, dtype, self.device)
        self._tensors: tuple[torch.Tensor, ...] = ()
        self._checks = tables(self.device)["checks"]
        #: Job and rank, and message: device memory.
        self.numbers = torch.zeros(2, dtype=torch.int64, device=self.device)
        self._said: list[int] = []

    def set_numbers(self, *, job: int = 0, rank: int = 0, message: int = 0) -> None:
        """The numbers of the next message, in the order of the current stream. Nothing of a sparse message depends on a seed."""
        for name, value, most in (("job", job, 64), ("rank", rank, 1024), ("message", message, 2**32)):
            if not 0 <= value < most:
                raise ValueError(f"{name}: {value}; valid are 0 to {most - 1}")
        said = [job << 10 | rank, message]
        if said != self._said:
            upload(self.numbers, said)
            self._said = said

    def bind(self, tensors: Sequence[torch.Tensor]) -> None:
        """The tensors to work on from now on, in the order of the current stream. They are kept alive."""
        self._bound.bind(tensors)
        self._tensors = tuple(tensor.detach().view(-1) for tensor in tensors)

    def _check_bound(self) -> None:
        if not self._tensors:
            raise RuntimeError("tensors: none are bound")

    def _put(self, places: torch.Tensor, values: torch.Tensor, used: torch.Tensor, marked: torch.Tensor, most: int, how: int) -> None:
        """Entries into the tensors that are bound."""
        chunks = -(-most // _CHUNK)
        for nth, (begin, end) in enumerate(zip(self._begins, self._begins[1:], strict=False)):
            put_entries[(used.numel() * chunks,)](
                self._bound.bases, places, values, used, marked, nth, most, chunks, begin, end, KIND=KINDS[self.dtype], HOW=how, CHUNK=_CHUNK, enable_fp_fusion=False
            )


def _most_packets(entries: int, coordinates: int, runs: int, fraction_bits: int, packet_bytes: int) -> int:
    """Packets that so many entries take at most."""
    # A gap has no more bits than a key, and the code of one no more than twice as many and two; the page's shares are at least 63/64 of what fits.
    widest = 2 * (8 + fraction_bits + (coordinates - 1).bit_length()) + 2
    room = packet_bytes - HEAD_BYTES
    least = min(MOST_ENTRIES, max(1, 63 * room * 8 // (64 * (widest + 8)) - 1))
    return min(_MOST_PACKETS, -(-entries // least) + runs)


class SparseEncoder(_SparsePlan):
    """Encodes the `k` coordinates of largest magnitude of tensors of given lengths and one type, bit for bit as the host does (docs/reference/wire-format.md, §13).

    What runs is the same whatever the values are, and nothing waits. `packets` (uint8) has a packet every `stride` bytes, of which `sizes` (int32) count; `summary[0]` (int64) is how many there are, 0 for one without entries.
    There is room for as many as there could be, unless `packets` says for how many.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        k: int,
        *,
        fraction_bits: int = DEFAULT_FRACTION_BITS,
        important: bool = True,
        strict: bool = False,
        packets: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(lengths, **options)
        if not 1 <= k <= self.coordinates:
            raise ValueError(f"k: {k}; valid are 1 to {self.coordinates}, the message's coordinates")
        if not 0 <= fraction_bits <= _MOST_FRACTION_BITS:
            raise ValueError(f"fraction_bits: {fraction_bits}; valid are 0 to {_MOST_FRACTION_BITS}")
        most = _most_packets(k, self.coordinates, self._ends.numel(), fraction_bits, self.packet_bytes)
        capacity = most if packets is None else packets
        if not 1 <= capacity <= _MOST_PACKETS:
            raise ValueError(f"packets: {capacity}; valid are 1 to {_MOST_PACKETS}")
        self.k, self.fraction_bits, self.important, self.strict, self.capacity = k, fraction_bits, important, strict, capacity

        def room(length: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(length, dtype=dtype, device=self.device)

        self.packets = room(capacity * self.stride, torch.uint8)
        self.sizes = room(capacity, torch.int32)
        self.summary = room(1, torch.int64)
        #: 0 where the message has the mark.
        self.finite = room(1, torch.int32)
        #: What is sent, ascending, and how much: coordinates, bits of f32s.
        self._places, self._values, self._sent = room(k, torch.int64), room(k, torch.int32), room(1, torch.int64)
        self._wide, self._magnitudes = room(self.coordinates, torch.float32), room(self.coordinates, torch.int32)
        self._counts = room(2 * -(-self.coordinates // _CHUNK), torch.int64)
        self._fields = room(capacity * FIELDS, torch.int64)
        size = max(2, 1 << (min(k, MOST_ENTRIES) - 1).bit_length())
        small = min(size, _SMALL)
        self._networks = {"SMALL": small, "SMALL_LOG2": small.bit_length() - 1, "LARGE": size, "LARGE_LOG2": size.bit_length() - 1}
        self._keys = room(size, torch.int64)

    def encode(self, tensors: Sequence[torch.Tensor], **numbers: Any) -> torch.Tensor:
        """`bind`, `set_numbers` and `run`. Gives `packets`, in the order of the current stream."""
        self.bind(tensors)
        self.set_numbers(**numbers)
        return self.run()

    def run(self) -> torch.Tensor:
        """Kernels and torch's own operations, on the current stream."""
        self._check_bound()
        unsent = _MOST_FRACTION_BITS - self.fraction_bits
        with guard(self.device):
            self._select(unsent)
            share_out[(1,)](
                self._places,
                self._values,
                self._edges(),
                self._keys,
                self.packets,
                self.sizes,
                self._fields,
                self.summary,
                self._ends.numel(),
                self.packet_bytes,
                self.stride,
                self.capacity,
                unsent,
                **self._networks,
                num_warps=8,
            )
            write_heads[(-(-self.capacity // _LANES),)](
                self._fields,
                self.summary,
                self.finite,
                self._classes,
                self.numbers,
                self._checks,
                self.packets,
                self.sizes,
                self.stride,
                self.capacity,
                self.fraction_bits,
                int(self.important),
                LANES=_LANES,
                num_warps=1,
            )
        return self.packets

    def _select(self, unsent: int) -> None:
        """What is sent, into `_places` and `_values`."""
        for tensor, begin, end in zip(self._tensors, self._begins, self._begins[1:], strict=False):
            self._wide[begin:end].copy_(tensor)
        bits = self._wide.view(torch.int32)
        torch.bitwise_and(bits, 0x7FFFFFFF, out=self._magnitudes)
        threshold = torch.topk(self._magnitudes, self.k, sorted=False).values.amin().reshape(1)
        self.finite.copy_((self._magnitudes.amax() < 0x7F800000).reshape(1))
        # As many are above the threshold as there are, of level 0 or not.
        left = self.k - (self._magnitudes > threshold).sum().reshape(1)
        chunks = self._counts.numel() // 2
        count[(chunks,)](bits, threshold, self._counts, self.coordinates, unsent, CHUNK=_CHUNK)
        counted = self._counts.view(chunks, 2)
        behind = counted.cumsum(0)
        above, equal = behind[-1].split(1)
        # Nothing of a message with the mark.
        torch.mul(above + torch.minimum(equal, left), self.finite, out=self._sent)
        # Behind what is chosen nothing is found.
        self._places.fill_(torch.iinfo(torch.int64).max)
        take[(chunks,)](bits, threshold, behind - counted, left, self._places, self._values, self.coordinates, unsent, CHUNK=_CHUNK)

    def _edges(self) -> torch.Tensor:
        """Where each run's entries end."""
        return torch.minimum(torch.searchsorted(self._places, self._ends), self._sent)

    def take_sent_from(self, tensors: Sequence[torch.Tensor]) -> None:
        """Takes what receivers of whole packets decode from residuals, tensors like those that were encoded (error feedback), on the current stream. A message that is not finite takes nothing."""
        bound, self._bound = self._bound, Bound(self.lengths, self.dtype, self.device)
        try:
            self._bound.bind(tensors)
            with guard(self.device):
                self._put(self._places, self._values, self._sent, torch.zeros_like(self.finite), self.k, _TAKE_AWAY)
        finally:
            self._bound = bound

    def check(self) -> None:
        """Waits for the last run, and raises where its packets are too few, or (`strict`) a value is NaN or an infinity: else it was sent with the mark."""
        if self.strict and not int(self.finite.item()):
            index = int((self._magnitudes >= 0x7F800000).nonzero()[0].item())
            raise ValueError(f"tensors: coordinate {index} is {self._wide[index].item()}: strict encoding takes finite values only")
        if int(self.summary.item()) > self.capacity:
            raise ValueError(f"packets: {self.capacity}; the entries do not fit them")

    def to_bytes(self) -> list[bytes]:
        """Waits for the last run, and gives the packets."""
        self.check()
        total = max(int(self.summary.item()), 1)
        content = self.packets[: total * self.stride].cpu().numpy().tobytes()
        return [content[nth * self.stride :][:size] for nth, size in enumerate(self.sizes[:total].tolist())]


class SparseDecoder(_SparsePlan):
    """Decodes what arrived of sparse messages of tensors of given lengths and one type: any prefix of any packet.

    `arrived` (uint8) holds, every `stride` bytes, the first `sizes[i]` (int32; 0: lost) bytes of packet i of the message, whoever is longest of copies; there is room for `packets` of them. What docs/reference/wire-format.md, §13,
    refuses counts as lost: of packets that do not go together, those of lower indices are believed.
    """

    def __init__(self, lengths: Sequence[int], packets: int, **options: Any) -> None:
        super().__init__(lengths, **options)
        if not 1 <= packets <= _MOST_PACKETS:
            raise ValueError(f"packets: {packets}; valid are 1 to {_MOST_PACKETS}")
        self.capacity = packets

        def room(length: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(length, dtype=dtype, device=self.device)

        # Behind the last one are two words that may be looked at.
        self.arrived = room(packets * self.stride + 16, torch.uint8)
        self.sizes = room(packets, torch.int32)
        #: Packets that count, packets of the message (0: nobody said how many), 1 where it is not finite.
        self.summary = room(3, torch.int64)
        # An entry has two bits at least.
        self._most = min(MOST_ENTRIES, (self.stride - HEAD_BYTES) * 4)
        self._places, self._values = room(packets * self._most, torch.int64), room(packets * self._most, torch.int32)
        self._used, self._fields = room(packets, torch.int64), room(packets * READ_FIELDS, torch.int64)
        self._bits = (self.stride - HEAD_BYTES) * 8 + 1
        processors = torch.cuda.get_device_properties(self.device).multi_processor_count if self.device.type == "cuda" else 1
        self._programs = min(packets, 2 * processors)
        self._scratch = room(self._programs * (2 * self._bits + self._most), torch.int32)

    def put(self, packets: Iterable[bytes | None]) -> None:
        """Takes the packets of a message as they arrived, in order of their indices; None is lost."""
        content, sizes = bytearray(self.arrived.numel()), [0] * self.capacity
        for index, packet in enumerate(packets):
            if index == self.capacity:
                raise ValueError(f"packets[{index}]: there is room for {self.capacity}")
            if packet is not None:
                size = min(len(packet), self.stride)
                content[index * self.stride : index * self.stride + size] = packet[:size]
                sizes[index] = size
        self.arrived.copy_(torch.frombuffer(content, dtype=torch.uint8))
        self.sizes.copy_(torch.tensor(sizes, dtype=torch.int32))

    def decode(self, tensors: Sequence[torch.Tensor], *, accumulate: bool = False, **numbers: Any) -> None:
        """`bind`, `set_numbers` and `run`."""
        self.bind(tensors)
        self.set_numbers(**numbers)
        self.run(accumulate=accumulate)

    def run(self, *, accumulate: bool = False) -> None:
        """Tensors take the values, zeros where nothing arrived, or (`accumulate`) add them in f32; NaN in all of a message that is not finite. On the current stream."""
        self._check_bound()
        with guard(self.device):
            self._read()
            marked = self.summary[2:]
            if not accumulate:
                for tensor in self._tensors:
                    tensor.zero_()
            self._put(self._places, self._values, self._used, marked, self._most, _ADD if accumulate else _WRITE)
            for tensor in self._tensors:
                tensor.masked_fill_(marked.bool(), float("nan"))

    def entries(self, **numbers: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
        """What arrived, without tensors to put it into: coordinates of the message (int64) and values (float32), packet by packet, in each by magnitude. None of a message that is not finite. Waits."""
        self.set_numbers(**numbers)
        with guard(self.device):
            self._read()
        if int(self.summary[2].item()):
            return None
        here = torch.arange(self._most, device=self.device) < self._used[:, None]
        shape = (self.capacity, self._most)
        return self._places.view(shape)[here], self._values.view(shape)[here].view(torch.float32)

    def _read(self) -> None:
        """Entries of the packets that count."""
        self._places.fill_(-1)
        read_heads[(-(-self.capacity // _LANES),)](
            self.arrived,
            self.sizes,
            self.numbers,
            self._checks,
            self._ends,
            self._classes,
            self._fields,
            self.capacity,
            self.stride,
            self._ends.numel(),
            LANES=_LANES,
            num_warps=1,
        )
        read_entries[(self._programs,)](
            self.arrived,
            self.sizes,
            self._fields,
            self._places,
            self._values,
            self._scratch,
            self.capacity,
            self.stride,
            self._bits,
            self._most,
            num_warps=8,
        )
        # Keys differ, but a packet that nobody encoded may have one place at several levels.
        ordered = torch.sort(self._places.view(self.capacity, self._most), dim=1).values
        twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(1).to(torch.int32)
        accept_packets[(1,)](self._fields, twice, self._used, self.summary, self.capacity, num_warps=1)
