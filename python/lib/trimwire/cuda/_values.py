# SPDX-License-Identifier: Apache-2.0
"""Tensors of f32, f16 and bf16, as kernels load and store them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

#: How kernels are told of a type.
KINDS: dict[Any, int] = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


@triton.jit
def loaded(base, at, mask, KIND: tl.constexpr):
    """Coordinates `at` of the tensor at the address `base`, as f32 and exactly; 0 where `mask` is not."""
    if KIND == 0:
        return tl.load(base.to(tl.pointer_type(tl.float32)) + at, mask=mask, other=0.0)
    elif KIND == 1:
        return tl.load(base.to(tl.pointer_type(tl.float16)) + at, mask=mask, other=0.0).to(tl.float32)
    else:
        # Through integers: a bf16 is the upper half of an f32.
        upper = tl.load(base.to(tl.pointer_type(tl.int16)) + at, mask=mask, other=0)
        return (upper.to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def stored(base, at, x, mask, KIND: tl.constexpr):
    """Writes f32s to coordinates `at` of the tensor at the address `base`, rounded to nearest, ties to even."""
    if KIND == 0:
        tl.store(base.to(tl.pointer_type(tl.float32)) + at, x, mask=mask)
    elif KIND == 1:
        tl.store(base.to(tl.pointer_type(tl.float16)) + at, x.to(tl.float16), mask=mask)
    else:
        bits = x.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        # Rounding would carry a NaN's lowest bits into its sign.
        upper = tl.where(x == x, rounded, 0x7FC0)
        tl.store(base.to(tl.pointer_type(tl.int16)) + at, upper.to(tl.int16), mask=mask)
