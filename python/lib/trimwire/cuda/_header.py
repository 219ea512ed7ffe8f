# SPDX-License-Identifier: Apache-2.0
"""The header of 20 bytes and its check (docs/reference/wire-format.md, §1), as five big-endian words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import triton
import triton.language as tl

POLYNOMIAL = 0x5935
#: The canonical NaN, where a row is not finite.
MARK = tl.constexpr(0x7FC00000)
#: Version 4, DATA.
_KIND = tl.constexpr(0x41)


def check_table() -> npt.NDArray[np.int32]:
    """CRC-16/M17 of every byte, from the register 0."""
    table = []
    for byte in range(256):
        register = byte << 8
        for _ in range(8):
            register = (register << 1 ^ (POLYNOMIAL if register & 0x8000 else 0)) & 0xFFFF
        table.append(register)
    return np.array(table, dtype=np.int32)


@triton.jit
def swapped(word):
    """The bytes of a 32-bit word the other way round."""
    return ((word & 0xFF) << 24) | ((word & 0xFF00) << 8) | ((word >> 8) & 0xFF00) | ((word >> 24) & 0xFF)


@triton.jit
def _checked(register, word, BYTES: tl.constexpr, table):
    """The check's register behind the upper bytes of a word."""
    for byte in tl.static_range(BYTES):
        register = ((register << 8) & 0xFFFF) ^ tl.load(table + ((register >> 8) ^ ((word >> (24 - 8 * byte)) & 0xFF)))
    return register


@triton.jit
def check_of(w0, w1, w2, w3, w4, table):
    """The check over four words and the upper half of a fifth."""
    register = tl.zeros(w2.shape, tl.int32) + 0xFFFF
    register = _checked(register, w0, 4, table)
    register = _checked(register, w1, 4, table)
    register = _checked(register, w2, 4, table)
    register = _checked(register, w3, 4, table)
    return _checked(register, w4, 2, table)


@triton.jit
def first_word(layer_class, important, last, stream):
    """Version, kind, codec rht, importance, layer class, last, job and rank."""
    return (_KIND << 24) | (important << 20) | (layer_class << 17) | (last << 16) | stream
