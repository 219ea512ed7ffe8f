# SPDX-License-Identifier: Apache-2.0
"""Promises of `trimwire.sparse`, against the vectors of the wire format and plain numpy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimwire import sparse

FIXTURES = Path(os.environ.get("TRIMWIRE_VECTORS", Path(__file__).parents[2] / "host-encoder/tests/vectors.json")).parent
VECTORS = json.loads((FIXTURES / "sparse_vectors.json").read_text())
#: Those of one tensor, which is what users have.
CASES = [case for case in VECTORS["cases"] if case["gradient"] is not None and len(case["tensors"]) == 1]
RANDOM = np.random.default_rng(4)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_packets_are_the_vectors_and_prefixes_of_them_hold_the_largest_entries(case: dict[str, Any]) -> None:
    gradient = np.frombuffer(bytes.fromhex(case["gradient"]), dtype=">u4").astype("<u4").view(np.float32)
    packets = sparse.encode(
        gradient,
        case["k"],
        fraction_bits=case["fraction_bits"],
        packet_bytes=case["packet_bytes"],
        layer_class=case["tensors"][0]["layer_class"],
        important=case["important"],
        **VECTORS["envelope"],
    )
    assert list(packets) == [bytes.fromhex(packet) for packet in case["packets"]]
    for receiver in case["decoded"]:
        expected = np.zeros(gradient.size, dtype=np.float32)
        for place, value in receiver["entries"]:
            expected[place] = np.array(int(value, 16), dtype=np.uint32).view(np.float32)
        arrived = [packet[:length] for packet, length in zip(packets, receiver["lengths"], strict=True) if length is not None]
        arrived += [packets[whole] for whole in receiver["then"]]
        assert np.array_equal(sparse.decode(packets, arrived), expected)
        # Added to what is there, in place.
        total = gradient.copy()
        assert sparse.decode(packets, arrived, out=total, accumulate=True) is total
        assert np.array_equal(total, gradient + expected)


def test_the_k_largest_of_any_shape_come_back_within_half_a_step_and_the_residual_is_the_rest() -> None:
    gradient = RANDOM.standard_normal((40, 50)).astype(np.float32)
    for k in (1, 20, 2000):
        there = sparse.decode(sparse.encode(gradient, k))
        assert there.shape == gradient.shape and np.count_nonzero(there) == k
        sent = there != 0
        assert np.abs(gradient[sent]).min() >= np.abs(gradient[~sent]).max(initial=0)
        assert (np.abs(there - gradient)[sent] <= np.abs(gradient)[sent] / 32).all()
        assert np.array_equal(sparse.decode(sparse.encode(gradient, k, fraction_bits=23)), np.where(sent, gradient, 0))


def test_damaged_packets_and_those_of_others_are_lost() -> None:
    gradient = RANDOM.standard_normal(5_000).astype(np.float32)
    packets = sparse.encode(gradient, 1_000, packet_bytes=300, message=3)
    assert len(packets) > 4
    damaged = bytearray(packets[1])
    damaged[12] ^= 1
    stranger = sparse.encode(gradient, 1_000, packet_bytes=300, message=4)[2]
    arrived = [bytes(damaged), stranger, b"", packets[0], *packets[3:]]
    assert np.array_equal(sparse.decode(packets, arrived), sparse.decode(packets, [packets[0], *packets[3:]]))
    assert np.count_nonzero(sparse.decode(packets, arrived)) not in (0, 1_000)


def test_what_is_not_finite_is_nan_everywhere_or_refused() -> None:
    gradient = np.ones(50, dtype=np.float32)
    gradient[7] = np.inf
    assert np.isnan(sparse.decode(sparse.encode(gradient, 3))).all()
    with pytest.raises(ValueError, match="coordinate 7 is inf"):
        sparse.encode(gradient, 3, strict=True)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: sparse.encode(np.ones(4, dtype=np.float32), 0), "k is 0"),
        (lambda: sparse.encode(np.ones(4, dtype=np.float32), 5), "valid: 1 to 4"),
        (lambda: sparse.encode(np.ones(0, dtype=np.float32), 1), "no coordinates"),
        (lambda: sparse.encode(np.ones(4, dtype=np.float32), 1, fraction_bits=24), "24 fraction bits"),
        (lambda: sparse.encode(np.ones(4, dtype=np.float32), 1, packet_bytes=63), "packets of 63 bytes"),
        (lambda: sparse.encode(np.ones(4, dtype=np.float32), 1, layer_class=8), "layer class 8"),
        (lambda: sparse.encode(np.ones(4, dtype=np.float32), 1, rank=1024), "rank 1024"),
        (lambda: sparse.decode(sparse.encode(np.ones(4, dtype=np.float32), 1), out=np.zeros(5, dtype=np.float32)), "out: float32 of shape"),
        (lambda: sparse.decode(sparse.encode(np.ones(4, dtype=np.float32), 1), accumulate=True), "out: None"),
    ],
)
def test_errors_name_the_argument(call: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call()
