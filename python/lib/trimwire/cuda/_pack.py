# SPDX-License-Identifier: Apache-2.0
"""Bits and bytes that change places within a thread: of code words by coordinate to planes, and back. Unsigned words of 32 bits, the lowest byte first."""

import triton
import triton.language as tl


@triton.jit
def put(at, word, BYTES: tl.constexpr, WORDS: tl.constexpr, mask=None):
    """Writes the lower bytes of words, two or four, to packets: at once where packets are made of WORDS, which masks of zero blocks in bodies are not."""
    if WORDS:
        if BYTES == 2:
            tl.store(at.to(tl.pointer_type(tl.int16)), word.to(tl.int16), mask=mask)
        else:
            tl.store(at.to(tl.pointer_type(tl.int32)), word.to(tl.int32, bitcast=True), mask=mask)
    else:
        for byte in tl.static_range(BYTES):
            tl.store(at + byte, ((word >> (8 * byte)) & 0xFF).to(tl.uint8), mask=mask)


@triton.jit
def got(at, BYTES: tl.constexpr, WORDS: tl.constexpr, mask=None, other=None):
    """The same, read: unsigned words of 32 bits. All bytes of `other` are alike."""
    if WORDS:
        if BYTES == 2:
            word = tl.load(at.to(tl.pointer_type(tl.uint16)), mask=mask, other=other).to(tl.uint32)
        else:
            word = tl.load(at.to(tl.pointer_type(tl.uint32)), mask=mask, other=other)
    else:
        word = tl.load(at, mask=mask, other=other).to(tl.uint32)
        for byte in tl.static_range(1, BYTES):
            word |= tl.load(at + byte, mask=mask, other=other).to(tl.uint32) << (8 * byte)
    return word


@triton.jit
def turned(x, y):
    """Eight bytes as a matrix of bits, x the first four rows: rows become columns (Hacker's Delight, 7-3). Twice is nothing."""
    t = (x ^ (x >> 7)) & 0x00AA00AA
    x = x ^ t ^ (t << 7)
    t = (y ^ (y >> 7)) & 0x00AA00AA
    y = y ^ t ^ (t << 7)
    t = (x ^ (x >> 14)) & 0x0000CCCC
    x = x ^ t ^ (t << 14)
    t = (y ^ (y >> 14)) & 0x0000CCCC
    y = y ^ t ^ (t << 14)
    return (x & 0x0F0F0F0F) | ((y << 4) & 0xF0F0F0F0), ((x >> 4) & 0x0F0F0F0F) | (y & 0xF0F0F0F0)


@triton.jit
def halves_of(x, y):
    """Bytes 0 of both and bytes 2 of both; bytes 1 of both and bytes 3 of both. Twice is nothing."""
    return (x & 0x00FF00FF) | ((y << 8) & 0xFF00FF00), ((x >> 8) & 0x00FF00FF) | (y & 0xFF00FF00)


@triton.jit
def in_bytes(a, b, c, d):
    """Bytes 1 of four words, bytes 2, and bytes 3."""
    low0, low1 = (a & 0xFFFF) | (c << 16), (b & 0xFFFF) | (d << 16)
    high0, high1 = (a >> 16) | (c & 0xFFFF0000), (b >> 16) | (d & 0xFFFF0000)
    upper = halves_of(high0, high1)
    return halves_of(low0, low1)[1], upper[0], upper[1]


@triton.jit
def of_bytes(first, second, third, fourth):
    """The four words whose bytes 0 are `first`, bytes 1 `second`, and so on."""
    low, high = halves_of(first, second), halves_of(third, fourth)
    a, c = (low[0] & 0xFFFF) | (high[0] << 16), (low[0] >> 16) | (high[0] & 0xFFFF0000)
    b, d = (low[1] & 0xFFFF) | (high[1] << 16), (low[1] >> 16) | (high[1] & 0xFFFF0000)
    return a, b, c, d
