# SPDX-License-Identifier: Apache-2.0
"""Tensors of whatever device and strides as flat memory of the host, which the native collectives work on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._device import on_host

#: Where a result has to go once it is there; None: it is there already.
Back = Callable[[], object] | None


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout != torch.strided:
        raise NotImplementedError(f"trimwire: a tensor is {tensor.layout}; dense ones travel, of others make a group of another backend: torch.distributed.new_group(backend='gloo')")
    return tensor.detach()


def read(tensor: torch.Tensor) -> torch.Tensor:
    """Its elements, to read: one dimension, contiguous. A copy where it has to be."""
    flat = _dense(tensor).resolve_conj().resolve_neg()
    if not on_host(flat):
        flat = flat.cpu()
    return flat.contiguous().view(-1)


def write(tensor: torch.Tensor) -> tuple[torch.Tensor, Back]:
    """Memory for its elements, which are overwritten, and how they get there."""
    own = _dense(tensor)
    if on_host(own) and own.is_contiguous():
        return own.view(-1), None
    fresh = torch.empty(own.shape, dtype=own.dtype)
    return fresh.view(-1), lambda: own.copy_(fresh)


def both(tensor: torch.Tensor) -> tuple[torch.Tensor, Back]:
    """Its elements, to read and to overwrite, and how they get back."""
    own = _dense(tensor)
    if on_host(own) and own.is_contiguous():
        return own.view(-1), None
    copy = own.to("cpu", copy=True).contiguous()
    return copy.view(-1), lambda: own.copy_(copy.view(own.shape))


def length(flat: torch.Tensor) -> int:
    """Its bytes."""
    return int(flat.numel() * flat.element_size())


def padded(length_: int) -> int:
    """Bytes of whole words of four that hold so many."""
    return (length_ + 3) // 4 * 4


def words(flat: torch.Tensor) -> torch.Tensor:
    """Its bytes as whole words of four, to read."""
    if length(flat) == 0:
        return torch.empty(0, dtype=torch.uint8)
    if length(flat) % 4 == 0 and flat.data_ptr() % 4 == 0:
        return flat.view(torch.uint8)
    whole = torch.zeros(padded(length(flat)), dtype=torch.uint8)
    whole[: length(flat)] = flat.view(torch.uint8)
    return whole


def words_back(flat: torch.Tensor) -> tuple[torch.Tensor, Back]:
    """Likewise, to read and to overwrite, and how they get back."""
    whole = words(flat)
    if length(flat) == 0 or whole.data_ptr() == flat.data_ptr():
        return whole, None
    return whole, lambda: flat.view(torch.uint8).copy_(whole[: length(flat)])


def then(*steps: Back) -> Back:
    """One after the other."""
    there = [step for step in steps if step is not None]
    if not there:
        return None

    def run() -> None:
        for step in there:
            step()

    return run


def of_one_dimension(bucket: Any, smallest: int) -> list[tuple[int, int]]:
    """From where to where a bucket has tensors of one dimension (norms, biases) of fewer than `smallest` elements."""
    found: list[tuple[int, int]] = []
    at = 0
    for parameter in bucket.parameters():
        if parameter.dim() <= 1 and parameter.numel() < smallest:
            found.append((at, at + parameter.numel()))
        at += parameter.numel()
    return found


def put_back(flat: torch.Tensor, places: list[tuple[int, int]], values: torch.Tensor) -> None:
    """Puts values, one behind the other, to places of a flat tensor."""
    for (begin, end), part in zip(places, values.split([end - begin for begin, end in places]), strict=True):
        flat[begin:end] = part
