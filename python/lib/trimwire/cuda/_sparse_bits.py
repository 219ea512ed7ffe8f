"""What encoding and decoding of sparse entries share: lengths of numbers, the heads as words."""

import triton
import triton.language as tl

#: Codec 6, in the first word of a header.
SPARSE = tl.constexpr(6 << 21)
HEAD_BYTES = 32
#: Entries of a packet at most.
MOST_ENTRIES = 8160


@triton.jit
def length_of(x):
    """⌊log₂ x⌋ + 1 of unsigned 64-bit numbers; 0 of 0."""
    upper = (x >> 32).to(tl.uint32)
    # 32 bits are an f64 exactly, so its exponent is theirs.
    part = tl.where(upper > 0, upper, x.to(tl.uint32)).to(tl.float64)
    exponent = ((part.to(tl.int64, bitcast=True) >> 52) - 1023).to(tl.int32)
    return tl.where(x > 0, exponent + 1, 0) + tl.where(upper > 0, 32, 0)
