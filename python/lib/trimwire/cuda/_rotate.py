# SPDX-License-Identifier: Apache-2.0
"""Working scale, transform, and which rows are rotated twice (docs/reference/wire-format.md, §3).

Kernels are launched with `enable_fp_fusion=False`: no product and sum may become one operation that rounds once.
"""

import triton
import triton.language as tl

#: Bounds of q between which rows are rotated twice.
TWICE_ABOVE = tl.constexpr(1 / 256)
TWICE_BELOW = tl.constexpr(0.995)
#: By how much an estimate of q in f32 may be off, and more: of a tree of sums of one sign that is 100 deep, sums are within 2^-17.
DOUBT = tl.constexpr(1 / 1024)


# Rows are worked on as many tensors of the same length, each of which is one register of a thread or a few: what is done to tensors as wholes
# moves nothing between threads. Only where a row is taken apart another way it goes through shared memory, once.


@triton.jit
def apart(x, N: tl.constexpr):
    """The N columns of a tensor [M, N], N a power of two up to 64."""
    M: tl.constexpr = x.shape[0]
    xs = (x,)
    for level in tl.static_range(6):
        if N >> level > 1:
            # Even and odd columns of each.
            evens = ()
            odds = ()
            for i in tl.static_range(1 << level):
                even, odd = tl.split(tl.reshape(xs[i], (M, N >> (level + 1), 2)))
                if N >> level == 2:
                    even = tl.reshape(even, (M,))
                    odd = tl.reshape(odd, (M,))
                evens = evens + (even,)
                odds = odds + (odd,)
            xs = evens + odds
    return xs


@triton.jit
def together(xs, N: tl.constexpr):
    """A tensor [M, N] of its N columns."""
    M: tl.constexpr = xs[0].shape[0]
    for level in tl.static_range(6):
        if N >> (level + 1) > 0:
            pairs = ()
            for i in tl.static_range(N >> (level + 1)):
                pairs = pairs + (tl.reshape(tl.join(xs[i], xs[i + (N >> (level + 1))]), (M, 2 << level)),)
            xs = pairs
    return xs[0]


@triton.jit
def _stage(xs, N: tl.constexpr, H: tl.constexpr, LEVEL: tl.constexpr, log2):
    """Sums and differences of the tensors whose numbers are H apart, of N: coordinates that are 2^LEVEL apart, of a row that has so many."""
    if log2 > LEVEL:
        ys = ()
        for i in tl.static_range(N):
            if i // H % 2 == 0:
                ys = ys + (xs[i] + xs[i + H],)
            else:
                ys = ys + (xs[i - H] - xs[i],)
        xs = ys
    return xs


@triton.jit
def anchored(xs, zeros, M: tl.constexpr):
    """The same tensors. What is read is nothing, but the compiler lays out what follows like what is read: a register a thread, and joins move nothing."""
    nothing = tl.load(zeros + tl.arange(0, M))
    return ((xs[0].to(tl.int32, bitcast=True) ^ nothing).to(tl.float32, bitcast=True),) + xs[1:]


@triton.jit
def _middle(xs, zeros, log2, D: tl.constexpr, N: tl.constexpr):
    """Six stages from h = N = 8 on, of a row that is N tensors of D / N coordinates N apart. Gives 64 tensors of D / 64 coordinates that follow each other."""
    M: tl.constexpr = D // 64
    x = tl.permute(tl.reshape(together(xs, N), (M // N, 64, N)), (0, 2, 1))
    ys = anchored(apart(tl.reshape(x, (M, 64)), 64), zeros, M)
    for level in tl.static_range(6):
        ys = _stage(ys, 64, 1 << level, level + 3, log2)
    x = tl.permute(tl.reshape(together(ys, 64), (M // N, N, 64)), (0, 2, 1))
    return apart(tl.permute(tl.reshape(x, (64, M)), (1, 0)), 64)


@triton.jit
def hadamard(xs, zeros, log2, D: tl.constexpr, LOG2: tl.constexpr):
    """The Walsh-Hadamard transform in the binding order: 4, 1, 2, 8, 16, … apart. Of 8 tensors, number c has coordinates c, c + 8, …; to 64 tensors, number i has coordinates from i · D / 64 on.

    Of the first 2^log2 coordinates, 32 or more; what is behind them stays apart from them.
    """
    # No row is shorter than these.
    xs = _stage(xs, 8, 4, 2, LOG2)
    xs = _stage(xs, 8, 1, 0, LOG2)
    xs = _stage(xs, 8, 2, 1, LOG2)
    ys = _middle(xs, zeros, log2, D, 8)
    for level in tl.static_range(15 - LOG2, 6):
        ys = _stage(ys, 64, 1 << level, LOG2 - 6 + level, log2)
    return ys


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
def estimated_concentration(xs, largest, N: tl.constexpr):
    """q of a row at its working scale, N tensors, within 1/4096 of it; 0 of zeros."""
    # Of the order of 1, so that fourth powers neither overflow nor all vanish.
    unit = power_f32(tl.where(largest > 0.0, -exponent_of(largest), 0))
    total = tl.zeros(xs[0].shape, tl.float32)
    fourth = tl.zeros(xs[0].shape, tl.float32)
    for i in tl.static_range(N):
        x = xs[i] * unit
        square = x * x
        total += square
        fourth += square * square
    total = tl.sum(total, axis=0)
    fourth = tl.sum(fourth, axis=0)
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
