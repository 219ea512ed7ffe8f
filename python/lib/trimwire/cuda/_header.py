# SPDX-License-Identifier: Apache-2.0
"""The header of 20 bytes and its check (docs/reference/wire-format.md, §1), as five big-endian words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import triton
import triton.language as tl

from ._rows import MASK_IN_HEADER

POLYNOMIAL = 0x5935
#: The canonical NaN, where a row is not finite.
MARK = tl.constexpr(0x7FC00000)
#: Version 5, DATA.
_KIND = tl.constexpr(0x51)
#: Bits of the mask of zero blocks that the header has room for.
HEADER_MASK = tl.constexpr(MASK_IN_HEADER)

#: Bytes that the check is over.
_CHECKED = 18


def _behind(register: int, bytes_: int) -> int:
    """CRC-16/M17's register behind so many bytes of zeros."""
    for _ in range(8 * bytes_):
        register = (register << 1 ^ (POLYNOMIAL if register & 0x8000 else 0)) & 0xFFFF
    return register


def check_table() -> npt.NDArray[np.int32]:
    """What each value of each byte adds to the check, [18, 256]: their XOR is CRC-16/M17, whose first register is in the first byte's."""
    table = [[_behind(value << 8, _CHECKED - place) for value in range(256)] for place in range(_CHECKED)]
    first = _behind(0xFFFF, _CHECKED)
    table[0] = [entry ^ first for entry in table[0]]
    return np.array(table, dtype=np.int32)


@triton.jit
def swapped(word):
    """The bytes of a 32-bit word the other way round."""
    return ((word & 0xFF) << 24) | ((word & 0xFF00) << 8) | ((word >> 8) & 0xFF00) | ((word >> 24) & 0xFF)


@triton.jit
def _added(word, BYTES: tl.constexpr, table):
    """What the upper bytes of a word add."""
    found = tl.load(table + ((word >> 24) & 0xFF))
    for byte in tl.static_range(1, BYTES):
        found ^= tl.load(table + 256 * byte + ((word >> (24 - 8 * byte)) & 0xFF))
    return found


@triton.jit
def check_of(w0, w1, w2, w3, w4, table):
    """The check over four words and the upper half of a fifth."""
    found = _added(w0, 4, table) ^ _added(w1, 4, table + 1024) ^ _added(w2, 4, table + 2048)
    return found ^ _added(w3, 4, table + 3072) ^ _added(w4, 2, table + 4096)


@triton.jit
def mask_bytes(blocks):
    """Bytes of the mask in front of plane 0 of a packet of so many blocks."""
    return tl.where(blocks > HEADER_MASK, (blocks + 7) // 8, 0)


@triton.jit
def blocks_field(blocks, zeros):
    """The 16 bits of a packet's blocks and, where there is room, of which are zero."""
    return tl.where(blocks > HEADER_MASK, 0x8000 + blocks, (1 << tl.minimum(blocks, HEADER_MASK)) | zeros)


@triton.jit
def first_word(layer_class, important, last, stream):
    """Version, kind, codec rht, importance, layer class, last, job and rank."""
    return (_KIND << 24) | (important << 20) | (layer_class << 17) | (last << 16) | stream
