# SPDX-License-Identifier: Apache-2.0
"""Who codes tensors: kernels, where they are, or the host."""

from __future__ import annotations

import os
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from .. import encode
from .._group import Group
from .._operation import GRADIENT_PLANES
from ._options import CODECS, one_of

if TYPE_CHECKING:
    from ..cuda import Collectives

_said: set[str] = set()


def codec_of(chosen: str) -> str:
    """What this rank codes with, and tells the others: 'triton' or 'host'. Where a GPU is there and kernels are not, it is said once."""
    one_of("codec", chosen, *CODECS)
    if chosen == "host" or (chosen == "auto" and not torch.cuda.is_available()):
        return "host"
    try:
        from .. import cuda  # noqa: F401
    except ImportError as error:
        if chosen == "triton":
            raise
        _say(f"the kernels cannot be used ({error})")
        return "host"
    fault = _fault(_card() if torch.cuda.is_available() else "cpu")
    if fault is None:
        return "triton"
    if chosen == "triton":
        raise RuntimeError(f"codec: 'triton': {fault}")
    _say(fault)
    return "host"


def _card() -> str:
    """This rank's: where none is chosen yet, not the first for all ranks of a host, each of which would take memory there."""
    if torch.cuda.is_initialized():
        return f"cuda:{torch.cuda.current_device()}"
    local = os.environ.get("LOCAL_RANK", "0")
    return f"cuda:{int(local) % torch.cuda.device_count() if local.isdecimal() else 0}"


@cache
def _fault(device: str) -> str | None:
    """What is wrong with the kernels on this machine: the packets of a row are held against the host's. Once a process; at an MTU of 1500 a job of default planes has such rows and packets, so that nothing is compiled for this alone."""
    from ..cuda import Encoder

    values = torch.randn(1 << (6 if device == "cpu" else 12), generator=torch.Generator().manual_seed(1))
    try:
        encoder = Encoder([values.numel()], device=device, planes=GRADIENT_PLANES)
        encoder.encode([values.to(device)], seed=1)
        packets = encoder.to_bytes()
    # Out of shared memory, say, which a card of another kind has more of; Triton's errors have no other base in common.
    except Exception as error:
        return f"the kernels do not run ({type(error).__name__}: {error})"
    if packets != list(encode(values.numpy(), planes=GRADIENT_PLANES, seed=1)):
        return "the kernels give other packets than the host does for the same values; please report the card and its driver"
    return None


def _say(why: str) -> None:
    if why not in _said:
        _said.add(why)
        warnings.warn(f"trimwire: tensors of a device are copied to the host, and encoded and decoded there: {why}", RuntimeWarning, stacklevel=4)


class Coder:
    """Who codes the tensors of a group."""

    def __init__(self, group: Group, chosen: str) -> None:
        self._group, self._all, self._kernels = group, chosen == "triton", codec_of(chosen) == "triton"

    def kernels(self, tensor: torch.Tensor) -> Collectives | None:
        """Who sums a tensor, or gathers it, where it is; `None`: the host does."""
        if not self._kernels or not tensor.is_contiguous() or (not self._all and not tensor.is_cuda):
            return None
        return self._group.on_gpu()


def on_host(tensor: Any) -> bool:
    """Whether a tensor is in the host's memory; of those that no kernels are for it is said, once a device, what becomes of them."""
    if tensor.device.type not in ("cpu", "cuda"):
        _say(f"there are kernels for CUDA, and none for {tensor.device}")
    return bool(tensor.device.type == "cpu")
