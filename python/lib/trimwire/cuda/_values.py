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
def _at(base, begin, KIND: tl.constexpr, ALIGNED: tl.constexpr):
    if KIND == 0:
        pointer = base.to(tl.pointer_type(tl.float32))
    elif KIND == 1:
        pointer = base.to(tl.pointer_type(tl.float16))
    else:
        pointer = base.to(tl.pointer_type(tl.int16))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
        # Rows begin at whole blocks, which the compiler is told like this: it forgets hints of what a function is given.
        begin = (begin >> 5) << 5
    return pointer + begin


@triton.jit
def _widened(x, KIND: tl.constexpr):
    return (x.to(tl.int32) << 16).to(tl.float32, bitcast=True) if KIND == 2 else x.to(tl.float32)


@triton.jit
def loaded_in_fours(base, begin, used, D: tl.constexpr, KIND: tl.constexpr, ALIGNED: tl.constexpr):
    """The D coordinates of a row from `begin` on, as f32 and exactly, 0 from `used` on: two tensors [D/8, 4] of every eight's first and last four."""
    pointer = _at(base, begin, KIND, ALIGNED)
    at = tl.arange(0, D // 8)[:, None] * 8 + tl.arange(0, 4)[None, :]
    # Without a mask, where there is none, four come at a time.
    if used == D:
        first = tl.load(pointer + at)
        last = tl.load(pointer + at + 4)
    else:
        first = tl.load(pointer + at, mask=at < used, other=0)
        last = tl.load(pointer + at + 4, mask=at + 4 < used, other=0)
    return _widened(first, KIND), _widened(last, KIND)


@triton.jit
def _narrowed(x, KIND: tl.constexpr):
    if KIND == 0:
        return x
    elif KIND == 1:
        return x.to(tl.float16)
    else:
        bits = x.to(tl.uint32, bitcast=True)
        # Rounding would carry a NaN's lowest bits into its sign.
        return tl.where(x == x, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, 0x7FC0).to(tl.int16)


@triton.jit
def added(base, begin, used, at, x, end, KIND: tl.constexpr, ALIGNED: tl.constexpr, ACCUMULATE: tl.constexpr):
    """Writes a row's coordinates `at`, all before `end`, from `begin` on, those below `used`, rounded to nearest, ties to even, or adds to them in f32."""
    there = _at(base, begin, KIND, ALIGNED) + at
    # Without a mask, where there is none, four go at a time.
    if used >= end:
        if ACCUMULATE:
            x = _widened(tl.load(there), KIND) + x
        tl.store(there, _narrowed(x, KIND))
    else:
        here = at < used
        if ACCUMULATE:
            x = _widened(tl.load(there, mask=here, other=0), KIND) + x
        tl.store(there, _narrowed(x, KIND), mask=here)
