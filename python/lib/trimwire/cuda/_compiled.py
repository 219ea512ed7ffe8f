# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled for a GPU that need not be there: for Triton's cache, or for what assembler and resources say of them. Not under the interpreter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from .._native import coordinates_per_packet
from .._operation import GRADIENT_PLANES
from ._decode import DECODINGS, decode_rows
from ._encode import encode_rows
from ._launch import constants_of

#: What is given to kernels; tables of f32 and scratch apart.
_TYPES = {
    "bases": torch.int64,
    "table": torch.int64,
    "numbers": torch.int64,
    "important_from": torch.float64,
    "row_figures": torch.float64,
    "distortions": torch.float64,
    "checks": torch.int32,
    "zeros": torch.int32,
    "lines": torch.int64,
    "lengths": torch.int32,
    "packets": torch.uint8,
    "rows": 1,
}


@dataclass(frozen=True, order=True)
class Variant:
    """What one kernel is compiled for; tensors begin at multiples of 16 bytes, as allocations do."""

    #: 'encode', 'decode' or 'add' (decode into a sum).
    work: str
    dtype: str
    coordinates_per_packet: int

    def __str__(self) -> str:
        return f"{self.work}, {self.dtype}, {self.coordinates_per_packet} coordinates a packet"

    def compiled(self, capability: int) -> Any:
        """The kernel for a compute capability (80, 90), out of Triton's cache where it is there. In a process that launches none: Triton is told of a GPU that is not there."""
        kernel: Any = encode_rows if self.work == "encode" else decode_rows
        constants = constants_of(getattr(torch, self.dtype), self.coordinates_per_packet) | {"ALIGNED": True}
        if kernel is decode_rows:
            constants |= {"DECODING": DECODINGS["unbiased"], "ACCUMULATE": self.work == "add"}
        given = [_TYPES.get(name, torch.float32) for name in kernel.arg_names if name not in constants]
        target = GPUTarget("cuda", capability, 32)
        # As launches do it, so that they find it: what they ask the cache for is Triton's to say. Kernels are kept by device.
        driver.set_active(SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: capability, get_current_stream=lambda device: 0))
        return kernel.warmup(*given, grid=(1,), **constants)


def variants_of(dtypes: Iterable[str], sizes: Iterable[int]) -> list[Variant]:
    """All that sums, shards and gathered tensors of these types need in packets of these many coordinates, whatever their lengths."""
    found = set()
    for dtype in dtypes:
        # Parts and sums of a shard leave as packets; what is added up is f32, whatever the type.
        works = [("encode", dtype), ("decode", dtype), ("encode", "float32"), ("decode", "float32"), ("add", "float32")]
        found |= {Variant(work, kind, size) for work, kind in works for size in sizes}
    # A group that begins holds packets of this one against the host's.
    found.add(Variant("encode", "float32", coordinates_per_packet(GRADIENT_PLANES)))
    return sorted(found)
