# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled for a GPU that need not be there: what assembler and resources say of them."""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from ._launch import warps_of

_TYPES = {
    "bases": "*i64",
    "table": "*i64",
    "numbers": "*i64",
    "important_from": "*fp64",
    "row_figures": "*fp64",
    "distortions": "*fp64",
    "status": "*i32",
    "checks": "*i32",
    "zeros": "*i32",
    "lines": "*i64",
    "lengths": "*i32",
    "packets": "*u8",
    "rows": "i32",
}
_TABLES = ("peaks", "offsets", "inverses", "stretches", "centroids", "scratch")


def compiled(kernel: Any, padded: int, coordinates_per_packet: int, capability: int, *, kind: int = 0, whole: bool = True) -> Any:
    """One of the kernels for rows of `padded` coordinates, or (not `whole`) of up to so many, for a compute capability (80, 90); not under the interpreter."""
    packets = -(-padded // coordinates_per_packet)
    constants = {
        "D": padded,
        "LOG2": padded.bit_length() - 1,
        "K": packets,
        "KP": 1 << (packets - 1).bit_length(),
        "KIND": kind,
        "ALIGNED": True,
        "DECODING": 0,
        "ACCUMULATE": False,
        "WHOLE": whole,
    }
    constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
    types = {name: "constexpr" if name in constants else "*fp32" if name in _TABLES else _TYPES[name] for name in kernel.arg_names}
    # As launches have it: allocations begin at multiples of 16, and so does each program's part of the scratch.
    pointers = {(place,): [["tt.divisibility", 16]] for place, name in enumerate(kernel.arg_names) if types[name].startswith("*")}
    source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=pointers)
    return compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps_of(padded), "enable_fp_fusion": False})
