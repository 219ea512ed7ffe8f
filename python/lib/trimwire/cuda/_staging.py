# SPDX-License-Identifier: Apache-2.0
"""Buckets on their way between a GPU and memory that a network card reads: a stream of their own, pinned buffers, nothing waited for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ._codec import Decoder, Encoder


class Outbox:
    """Packets of one bucket after the other in the host's pinned memory, encoded beside backward.

    `buffers` of them are filled in turns: a buffer's packets are to be sent before its turn comes again.
    """

    def __init__(self, lengths: Sequence[int], *, buffers: int = 2, **options: Any) -> None:
        if buffers < 1:
            raise ValueError(f"buffers: {buffers}; one at least is needed")
        self.encoder = Encoder(lengths, **options)
        self._stream = _side_stream(self.encoder.device)
        self._buffers = [_pinned(self.encoder.packets) for _ in range(buffers)]
        self._turn = 0

    def encode(self, tensors: Sequence[torch.Tensor], **numbers: Any) -> Sent:
        """Encodes what the current stream has made of `tensors`, which may be overwritten by work that is issued to it behind this call."""
        buffer = self._buffers[self._turn]
        self._turn = (self._turn + 1) % len(self._buffers)
        with _beside(self._stream, self.encoder.device):
            packets = self.encoder.encode(tensors, **numbers)
            encoded = _event(self._stream)
            buffer.copy_(packets, non_blocking=True)
            copied = _event(self._stream)
        # Who overwrites the tensors waits for the codec, not for the copy.
        if encoded is not None:
            torch.cuda.current_stream(self.encoder.device).wait_event(encoded)
        return Sent(buffer, copied, self.encoder.layout.offsets)


class Sent:
    """A bucket's packets, once they are there."""

    def __init__(self, buffer: torch.Tensor, copied: Any, offsets: tuple[int, ...]) -> None:
        self._buffer, self._copied, self._offsets = buffer, copied, offsets

    def done(self) -> bool:
        """Whether they are there."""
        return self._copied is None or bool(self._copied.query())

    def packets(self) -> list[npt.NDArray[np.uint8]]:
        """Waits, and gives the packets in the pinned buffer, without a copy."""
        if self._copied is not None:
            self._copied.synchronize()
        whole: npt.NDArray[np.uint8] = self._buffer.numpy()
        return [whole[a:b] for a, b in zip(self._offsets, self._offsets[1:], strict=False)]


class Inbox:
    """Packets as they arrive in the host's pinned memory, decoded into a bucket of the GPU.

    `slots[i]` is where packet i goes; `lengths[i]` how many bytes of it are there (0: lost).
    """

    def __init__(self, lengths: Sequence[int], **options: Any) -> None:
        self.decoder = Decoder(lengths, **options)
        self._stream = _side_stream(self.decoder.device)
        self._packets, self._lengths = _pinned(self.decoder.packets), _pinned(self.decoder.lengths)
        offsets = self.decoder.layout.offsets
        whole: npt.NDArray[np.uint8] = self._packets.numpy()
        self.slots = [whole[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]
        self.lengths: npt.NDArray[np.int32] = self._lengths.numpy()
        self._read: Any = None

    def clear(self) -> None:
        """Waits until the last message's packets are read, and forgets them."""
        if self._read is not None:
            self._read.synchronize()
        self.lengths[:] = 0

    def put(self, index: int, packet: bytes | npt.NDArray[np.uint8]) -> None:
        """A packet as it arrived, truncated anywhere: the longest copy counts."""
        if not 0 <= index < len(self.slots):
            raise ValueError(f"index: {index}; the message has {len(self.slots)} packets")
        slot = self.slots[index]
        length = min(len(packet), len(slot))
        if length > self.lengths[index]:
            slot[:length] = np.frombuffer(packet, dtype=np.uint8, count=length)
            self.lengths[index] = length

    def decode(self, tensors: Sequence[torch.Tensor], *, accumulate: bool = False, **numbers: Any) -> None:
        """Decodes what is there into `tensors`, or adds it to them; what is issued to the current stream behind this call has the result."""
        with _beside(self._stream, self.decoder.device):
            self.decoder.packets.copy_(self._packets, non_blocking=True)
            self.decoder.lengths.copy_(self._lengths, non_blocking=True)
            self._read = _event(self._stream)
            self.decoder.decode(tensors, accumulate=accumulate, **numbers)
        if self._stream is not None:
            torch.cuda.current_stream(self.decoder.device).wait_stream(self._stream)


def _side_stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device) if device.type == "cuda" else None


def _beside(stream: Any, device: torch.device) -> Any:
    """The side stream, behind all that the current one was given."""
    if stream is None:
        return nullcontext()
    stream.wait_stream(torch.cuda.current_stream(device))
    return torch.cuda.stream(stream)


def _event(stream: Any) -> Any:
    return None if stream is None else stream.record_event()


def _pinned(like: torch.Tensor) -> torch.Tensor:
    return torch.zeros(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)
