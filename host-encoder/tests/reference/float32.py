# SPDX-License-Identifier: Apache-2.0
"""binary32 arithmetic out of Python's binary64.

A sum, difference, product, quotient or square root of two binary32 numbers that is computed in binary64 and then
rounded to binary32 is the correctly rounded one (53 >= 2 * 24 + 2 bits), so one rounding after every operation is
all that it takes.
"""

import math
import struct
from array import array

CANONICAL_NAN = 0x7FC00000
# The smallest sigma of a header that is not 0.
SMALLEST_SIGMA = struct.unpack(">f", bytes.fromhex("00001000"))[0]


def f32(value: float) -> float:
    """The nearest binary32, ties to even; infinity beyond the largest."""
    return array("f", [value])[0]


def f32_of_19_bits(value: float) -> float:
    """An f32 of at least 0 rounded to the 11 bits of fraction that a header has, ties to even; infinity beyond the largest."""
    pattern = bits(value)
    if not math.isfinite(value):
        return value
    return from_bits(pattern + 0x7FF + (pattern >> 12 & 1) & ~0xFFF)


def f32s(values) -> list[float]:
    """`f32` of every value."""
    return array("f", values).tolist()


def bits(value: float) -> int:
    """The 32 bits of a binary32."""
    return struct.unpack("=I", array("f", [value]).tobytes())[0]


def from_bits(pattern: int) -> float:
    """The binary32 of 32 bits."""
    return struct.unpack("=f", struct.pack("=I", pattern))[0]


def to_hex(values) -> str:
    """Eight digits a value, one after the other, most significant first."""
    return "".join(f"{bits(value):08x}" for value in values)


def from_hex(digits: str) -> list[float]:
    """What `to_hex` wrote."""
    return [from_bits(int(digits[at : at + 8], 16)) for at in range(0, len(digits), 8)]
