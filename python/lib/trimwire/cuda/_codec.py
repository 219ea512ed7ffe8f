# SPDX-License-Identifier: Apache-2.0
"""The codec as PyTorch sees it: a plan for tensors of given lengths, and what runs when it is used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ._decode import DECODINGS, decode_rows
from ._encode import encode_rows
from ._launch import Launch, interpreted, tables
from ._rows import MOST_ROW_LOG2, Layout, layout_of
from ._tensors import Bound, device_of, guard, upload
from ._values import KINDS


def _numbers(seed: int, job: int, rank: int, message: int) -> list[int]:
    """What kernels are told of a message; seed, stream and numbers as signed words."""
    for name, value, most in (("seed", seed, 2**64), ("job", job, 64), ("rank", rank, 1024), ("message", message, 2**32)):
        if not 0 <= value < most:
            raise ValueError(f"{name}: {value}; valid are 0 to {most - 1}")
    # The last two key the rotation.
    return [seed - 2**64 if seed >= 2**63 else seed, job << 10 | rank, message, message, rank]


class _Plan:
    """Tables, numbers and scratch on a device, for tensors of given lengths."""

    def __init__(
        self,
        lengths: Sequence[int],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
        planes: int | Sequence[int] = 10,
        layer_classes: Sequence[int] | None = None,
        coordinates_per_packet: int | None = None,
        row_log2: int = MOST_ROW_LOG2,
        scratch: torch.Tensor | None = None,
    ) -> None:
        if dtype not in KINDS:
            raise TypeError(f"dtype: {dtype}; {', '.join(str(kind) for kind in KINDS)} are")
        chosen = device_of(device)
        self.device, self.dtype = chosen, dtype
        self.layout: Layout = layout_of(
            lengths, planes=planes, layer_classes=layer_classes, coordinates_per_packet=coordinates_per_packet, row_log2=row_log2
        )
        processors = 0 if interpreted() else torch.cuda.get_device_properties(chosen).multi_processor_count
        self._launch = Launch(self.layout, chosen, dtype, processors)
        needed = self._launch.scratch
        #: Of its kernels alone, or of all plans that run on one stream, one after the other. Zeros: what is behind a shorter row is transformed as well, for nobody.
        self.scratch = scratch if scratch is not None and scratch.numel() >= needed else torch.zeros(needed, dtype=torch.float32, device=chosen)
        self._tables = tables(chosen)
        self._bound = Bound(lengths, dtype, chosen)
        #: Seed, job and rank, message, and message and rank of the rotation: device memory, so that a captured graph can be replayed with other numbers.
        self.numbers = torch.zeros(5, dtype=torch.int64, device=chosen)
        self._said: list[int] = []

    def set_numbers(self, *, seed: int = 0, job: int = 0, rank: int = 0, message: int = 0) -> None:
        """The numbers of the next message, in the order of the current stream."""
        said = _numbers(seed, job, rank, message)
        if said != self._said:
            upload(self.numbers, said)
            self._said = said

    def bind(self, tensors: Sequence[torch.Tensor]) -> None:
        """The tensors to work on from now on, in the order of the current stream; a captured graph works on those of its replay."""
        self._bound.bind(tensors)

    @contextmanager
    def _placeholders(self) -> Iterator[None]:
        """Tensors to work on that live until kernels are over."""
        tensors = [torch.zeros(length, dtype=self.dtype, device=self.device) for length in self.layout.lengths]
        self.bind(tensors)
        yield
        torch.cuda.synchronize(self.device)
        del tensors


class Encoder(_Plan):
    """Encodes tensors of given lengths (in coordinates) and one type into packets of codec rht, bit for bit as the host does.

    All memory is taken here, so that `run` may be captured in a CUDA graph. `packets` has the packets' bytes one behind the other (uint8,
    `layout.offsets`); `figures` the energy per coordinate of each row (float64, NaN for marked rows).
    """

    def __init__(self, lengths: Sequence[int], **options: Any) -> None:
        super().__init__(lengths, **options)
        self.packets = torch.zeros(self.layout.bytes, dtype=torch.uint8, device=self.device)
        self.figures = torch.zeros(len(self.layout.rows), dtype=torch.float64, device=self.device)
        #: Rows are important whose figure is at least this; device memory, so that it may follow from figures of the step before without the host.
        self.important_from = torch.full((1,), -math.inf, dtype=torch.float64, device=self.device)

    def encode(self, tensors: Sequence[torch.Tensor], **numbers: Any) -> torch.Tensor:
        """`bind`, `set_numbers` and `run`. Gives `packets`, in the order of the current stream."""
        self.bind(tensors)
        self.set_numbers(**numbers)
        return self.run()

    def run(self, rows: range | None = None) -> torch.Tensor:
        """The kernel alone, on the current stream; of some rows, which follow each other, if not of all."""
        look, (table, count, programs) = self._tables, self._launch.of(rows)
        with guard(self.device):
            encode_rows[(programs,)](
                self._bound.bases,
                table,
                self.numbers,
                self.important_from,
                look["peaks"],
                look["lines"],
                look["checks"],
                look["zeros"],
                self.packets,
                self.figures,
                self.scratch,
                count,
                **self._launch.constants,
                ALIGNED=self._bound.aligned,
            )
        return self.packets

    def compile(self) -> None:
        """Has the kernels compiled, which takes a minute where they are not kept on disk: before others wait for packets. Forgets what was encoded, and the tensors."""
        if not interpreted():
            with self._placeholders():
                self.run()

    def to_bytes(self) -> list[bytes]:
        """Waits for the last run, and gives the packets."""
        content, offsets = self.packets.cpu().numpy().tobytes(), self.layout.offsets
        return [content[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]


class Decoder(_Plan):
    """Decodes what arrived of packets of codec rht, by the same plan as their encoder's.

    `packets` (uint8) holds the first `lengths[i]` bytes (int32; 0: lost) of packet i at `layout.offsets[i]`; repairs are joined in front of it. A
    packet of another message, or whose header is damaged, counts as lost.
    """

    def __init__(self, lengths: Sequence[int], *, decoding: str = "unbiased", **options: Any) -> None:
        if decoding not in DECODINGS:
            raise ValueError(f"decoding: {decoding!r}; valid are {', '.join(repr(name) for name in DECODINGS)}")
        super().__init__(lengths, **options)
        self._decoding = DECODINGS[decoding]
        self.packets = torch.zeros(self.layout.bytes, dtype=torch.uint8, device=self.device)
        self.lengths = torch.zeros(self.layout.packets, dtype=torch.int32, device=self.device)

    def put(self, packets: Iterable[bytes | None]) -> None:
        """Takes the packets of a message as they arrived, in order; None is lost."""
        content, lengths = bytearray(self.layout.bytes), [0] * self.layout.packets
        offsets = self.layout.offsets
        for index, packet in enumerate(packets):
            if index == len(lengths):
                raise ValueError(f"packets[{index}]: the message has {len(lengths)}")
            if packet is None:
                continue
            length = min(len(packet), offsets[index + 1] - offsets[index])
            content[offsets[index] : offsets[index] + length] = packet[:length]
            lengths[index] = length
        self.packets.copy_(torch.frombuffer(content, dtype=torch.uint8))
        self.lengths.copy_(torch.tensor(lengths, dtype=torch.int32))

    def decode(self, tensors: Sequence[torch.Tensor], *, accumulate: bool = False, **numbers: Any) -> None:
        """`bind`, `set_numbers` and `run`."""
        self.bind(tensors)
        self.set_numbers(**numbers)
        self.run(accumulate=accumulate)

    def compile(self, accumulating: Sequence[bool] = (False, True)) -> None:
        """As the encoder's, for those ways to `run`; forgets the tensors."""
        if not interpreted():
            with self._placeholders():
                for accumulate in accumulating:
                    self.run(accumulate=accumulate)

    def run(self, rows: range | None = None, *, accumulate: bool = False) -> None:
        """The kernel alone, as the encoder's, on the current stream: tensors take the values, or (`accumulate`) add them in f32. Of some rows, which follow each other, if not of all."""
        look, (table, count, programs) = self._tables, self._launch.of(rows)
        with guard(self.device):
            decode_rows[(programs,)](
                self._bound.bases,
                table,
                self.numbers,
                look["distortions"],
                look["centroids"],
                look["inverses"],
                look["offsets"],
                look["stretches"],
                look["checks"],
                look["zeros"],
                self.packets,
                self.lengths,
                self.scratch,
                count,
                **self._launch.constants,
                ALIGNED=self._bound.aligned,
                DECODING=self._decoding,
                ACCUMULATE=accumulate,
            )
