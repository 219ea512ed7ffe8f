# SPDX-License-Identifier: Apache-2.0
"""Working scale, transform, and which rows are rotated twice (docs/reference/wire-format.md, §3).

Kernels are launched with `enable_fp_fusion=False`: no product and sum may become one operation that rounds once.
"""

import triton
import triton.language as tl

#: Bounds of q between which rows are rotated twice.
TWICE_ABOVE = tl.constexpr(1 / 256)
TWICE_BELOW = tl.constexpr(0.995)
#: By how much an estimate of q in f32 may be off, and more: sums of 2^15 terms of one sign are within 2^-9 in any order.
DOUBT = tl.constexpr(1 / 32)


@triton.jit
def _stage(x, h: tl.constexpr, D: tl.constexpr):
    """Sums and differences of coordinates that are h apart."""
    pairs = tl.permute(tl.reshape(x, (D // (2 * h), 2, h)), (0, 2, 1))
    a, b = tl.split(pairs)
    return tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), (D,))


@triton.jit
def hadamard(x, D: tl.constexpr, LOG2: tl.constexpr):
    """The Walsh-Hadamard transform of a row, in the binding order: 4, 1, 2, 8, 16, … apart."""
    x = _stage(x, 4, D)
    x = _stage(x, 1, D)
    x = _stage(x, 2, D)
    for level in tl.static_range(3, LOG2):
        x = _stage(x, 2**level, D)
    return x


@triton.jit
def exponent_of(largest):
    """⌊log₂⌋ of an f32 above 0, subnormal or not, by the exponent of the f64 that it is."""
    wide = largest.to(tl.float64).to(tl.int64, bitcast=True)
    return ((wide >> 52) - 1023).to(tl.int32)


@triton.jit
def working_exponent(largest):
    """e of the working scale, for the largest magnitude of a row; 0 where that is not finite."""
    log2 = exponent_of(largest)
    usual = (largest == 0.0) | ((log2 >= -30) & (log2 < 30)) | (log2 > 127)
    return tl.where(usual, 0, -log2)


@triton.jit
def power_f32(e):
    """2^e as f32, for -127 ≤ e ≤ 127."""
    return tl.where(e > -127, (e + 127) << 23, 0x400000).to(tl.float32, bitcast=True)


@triton.jit
def power_f64(e):
    """2^e as f64, of a normal one."""
    return ((e.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def scaled(x, e):
    """x · 2^e, rounded once, for -127 ≤ e ≤ 149: what goes up is exact in two steps, what goes down takes one."""
    first = tl.minimum(e, 127)
    return x * power_f32(first) * power_f32(e - first)


@triton.jit
def folded(lanes, R: tl.constexpr):
    """R sums over sixteen lanes each, [R, 16], folded in halves: lane i + lane i+8, and so on. Two terms have one sum in any order."""
    lanes = tl.sum(tl.reshape(lanes, (R, 2, 8)), axis=1)
    lanes = tl.sum(tl.reshape(lanes, (R, 2, 4)), axis=1)
    lanes = tl.sum(tl.reshape(lanes, (R, 2, 2)), axis=1)
    return tl.sum(lanes, axis=1)


@triton.jit
def estimated_concentration(x, largest):
    """q of a row at its working scale, within 1/128 of it; 0 of zeros."""
    # Of the order of 1, so that fourth powers neither overflow nor all vanish.
    unit = scaled(x, tl.where(largest > 0.0, -exponent_of(largest), 0))
    square = unit * unit
    total = tl.sum(tl.sum(square, axis=1), axis=0)
    fourth = tl.sum(tl.sum(square * square, axis=1), axis=0)
    return tl.where(total > 0.0, fourth / tl.where(total > 0.0, total * total, 1.0), 0.0)


@triton.jit
def is_doubtful(estimate):
    """Whether an estimate of q is so near to a bound that the binding order of sums decides."""
    lower = tl.abs(estimate - TWICE_ABOVE) < TWICE_ABOVE * DOUBT
    return lower | (tl.abs(estimate - TWICE_BELOW) < DOUBT)


@triton.jit
def is_between(q):
    """Whether a row of this q (f64) is rotated twice."""
    return (q > tl.full((), TWICE_ABOVE, tl.float64)) & (q < tl.full((), TWICE_BELOW, tl.float64))
