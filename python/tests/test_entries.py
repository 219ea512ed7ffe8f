# SPDX-License-Identifier: Apache-2.0
"""Promises of the top-k experiment's packets, in plain NumPy."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

#: Where tests run outside of the source tree, the experiments are beside them.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))
entries = pytest.importorskip("entries", reason="the experiments are not beside the tests")


def test_the_coding_by_hand() -> None:
    gradient = np.zeros(40, np.float32)
    gradient[[3, 17, 18, 30]] = -2.0, 1.0, -1.07, 0.7
    # Keys 0, 435, 462 and 755 make gaps of 0, 434, 26 and 292. Of order 5 they take 7, 13, 7 and 13 bits, signs included.
    [packet] = entries.packets(gradient, 4)
    assert packet.places.tolist() == [3, 18, 17, 30]
    assert packet.values.tolist() == [-2.0, -1.0625, 1.0, 0.6875]
    assert packet.ends.tolist() == [7, 20, 27, 40] and len(packet) == 37
    assert [packet.trimmed(size) for size in (32, 33, 34, 35, 36, 37, 76)] == [0, 1, 1, 2, 3, 4, 4]


def test_a_trim_leaves_each_packet_its_largest_entries_and_the_rest_is_zero() -> None:
    gradient = np.random.default_rng(1).standard_normal(30_000).astype(np.float32)
    packets = list(entries.packets(gradient, 6_000))
    whole = entries.values(packets, gradient.size)
    sent = whole != 0
    assert len(packets) > 4 and sent.sum() == 6_000 and max(map(len, packets)) <= entries.PACKET
    assert np.abs(gradient[sent]).min() >= np.abs(gradient[~sent]).max()
    assert (np.abs(whole - gradient)[sent] <= np.abs(gradient)[sent] / 32).all()
    left = entries.values(packets, gradient.size, [76, *[None] * (len(packets) - 1)])
    first = packets[0].places
    lost = left[first] == 0
    assert 0 < (~lost).sum() < 60
    assert np.abs(whole[first[~lost]]).min() >= np.abs(whole[first[lost]]).max()
    assert np.array_equal(np.delete(left, first), np.delete(whole, first))
