# SPDX-License-Identifier: Apache-2.0
"""Tensors that kernels work on: where they have to be, their addresses on the device, who may launch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from ._launch import interpreted

#: Triton's interpreter patches its language while a kernel runs: one thread at a time.
_INTERPRETER = threading.RLock()


def device_of(device: torch.device | str | None) -> torch.device:
    """The device that is meant; the current one, unless it is said. Raises where kernels cannot run there."""
    chosen = torch.device("cpu" if interpreted() else "cuda") if device is None else torch.device(device)
    if chosen.type == "cuda" and chosen.index is None:
        chosen = torch.device("cuda", torch.cuda.current_device())
    if (chosen.type == "cpu") != interpreted() or chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device: {chosen}; tensors of a GPU are needed, or TRITON_INTERPRET=1 and those of the host")
    return chosen


def guard(device: torch.device) -> Any:
    """Within it kernels are launched on a device."""
    return torch.cuda.device(device) if device.type == "cuda" else _INTERPRETER


def is_capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is captured of the device's current stream, be the device the current one or not."""
    if device.type != "cuda":
        return False
    with torch.cuda.device(device):
        return bool(torch.cuda.is_current_stream_capturing())


def upload(there: torch.Tensor, values: list[int]) -> None:
    """Whole numbers, in the order of the current stream."""
    if is_capturing(there.device):
        raise RuntimeError("tensors and numbers are set before a graph is captured: bind, set_numbers")
    # From pinned memory, which torch keeps until the copy is over: nobody waits for what the stream has to do before.
    here = torch.tensor(values, dtype=torch.int64, pin_memory=there.is_cuda)
    there.copy_(here, non_blocking=True)


class Bound:
    """The addresses of a plan's tensors, on the device."""

    def __init__(self, lengths: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        self._lengths, self._dtype, self._device = tuple(lengths), dtype, device
        self.bases = torch.zeros(len(lengths), dtype=torch.int64, device=device)
        self._addresses: list[int] = []
        #: Whether all begin at multiples of 16 bytes, as allocations do: kernels then move four coordinates at a time.
        self.aligned = True

    def bind(self, tensors: Sequence[torch.Tensor]) -> None:
        """Other tensors, from now on, in the order of the current stream. They are not kept alive."""
        if len(tensors) != len(self._lengths):
            raise ValueError(f"tensors: {len(tensors)} of them; {len(self._lengths)} are planned")
        for nth, (tensor, length) in enumerate(zip(tensors, self._lengths, strict=True)):
            if tensor.dtype != self._dtype or tensor.device != self._device:
                raise ValueError(f"tensors[{nth}]: {tensor.dtype} of {tensor.device}; {self._dtype} of {self._device} is needed")
            if tensor.numel() != length or not tensor.is_contiguous():
                raise ValueError(f"tensors[{nth}]: {tensor.numel()} elements; {length} are planned, contiguous ones")
        addresses = [tensor.data_ptr() for tensor in tensors]
        if addresses != self._addresses:
            upload(self.bases, addresses)
            self.aligned = all(address % 16 == 0 for address in addresses)
            self._addresses = addresses
