# SPDX-License-Identifier: Apache-2.0
"""Philox4x32-10 (Salmon et al., SC'11), and the signs of the rotation."""

MASK = 0xFFFFFFFF


def philox(key: list[int], counter: list[int]) -> list[int]:
    """Four output words of 32 bits."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 1 << 32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 = (k0 + 0x9E3779B9) & MASK
        k1 = (k1 + 0xBB67AE85) & MASK
    return [c0, c1, c2, c3]


def key_words(job_seed: int) -> list[int]:
    """The key of a job."""
    return [job_seed & MASK, job_seed >> 32]


def negated(key, row: int, coordinates: int, second: bool = False) -> list[bool]:
    """Which coordinates of a row the diagonal S negates, or that of the second rotation. `key` has job_seed, message and rank."""
    out = []
    rank = key.rank + (second << 17)
    for block in range((coordinates + 127) // 128):
        for word in philox(key_words(key.job_seed), [block, row, key.message, rank]):
            out.extend(bool(word >> t & 1) for t in range(32))
    return out[:coordinates]
