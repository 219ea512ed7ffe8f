# SPDX-License-Identifier: Apache-2.0
"""Promises of the codec's bindings, against closed forms and against the arrays that went in."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import trimwire

RANDOM = np.random.default_rng(7)


@pytest.fixture(scope="module")
def gradient() -> np.ndarray:
    return RANDOM.standard_normal((300, 700)).astype(np.float32)


@pytest.mark.parametrize("codec", ["rht", "raw"])
def test_whole_packets_decode_to_what_was_encoded_in_its_shape(gradient: np.ndarray, codec: str) -> None:
    packets = trimwire.encode(gradient, codec=codec, seed=3, message=9, rank=2)
    got = trimwire.decode(packets)
    assert got.shape == gradient.shape and got.dtype == np.float32
    assert trimwire.nmse(got, gradient) < 1e-11


@pytest.mark.parametrize("planes", [1, 2, 4, 8])
def test_packets_cut_to_planes_cost_what_the_formula_says(gradient: np.ndarray, planes: int) -> None:
    packets = trimwire.encode(gradient, seed=1)
    cut = [trimwire.trim(packet, planes) for packet in packets]
    assert max(len(packet) for packet in cut) < max(len(packet) for packet in packets)
    expected = trimwire.expected_nmse({planes: 1.0})
    assert expected is not None
    assert trimwire.nmse(trimwire.decode(packets, cut), gradient) == pytest.approx(expected, rel=0.05)


def test_packets_may_come_in_any_order_twice_or_not_at_all_and_cut_anywhere(gradient: np.ndarray) -> None:
    packets = trimwire.encode(gradient, seed=1)
    arrived = [packet[: RANDOM.integers(60, len(packet) + 1)] for packet in packets]
    shuffled = [arrived[i] for i in RANDOM.permutation(len(arrived))]
    once = trimwire.decode(packets, arrived)
    assert (trimwire.decode(packets, shuffled + shuffled[:50]) == once).all()
    assert 0.01 < trimwire.nmse(trimwire.decode(packets, arrived[::2]), gradient) < 3.0
    assert (trimwire.decode(packets, []) == 0).all()


@pytest.mark.parametrize("trim_rate", [0.0, 0.1, 0.5, 1.0])
def test_a_simulated_network_costs_what_the_formula_says(trim_rate: float) -> None:
    gradient = RANDOM.standard_normal(3_000_000).astype(np.float32)
    got = trimwire.simulate(gradient, trim_rate=trim_rate, planes=2, seed=4)
    expected = trimwire.expected_nmse({2: trim_rate, trimwire.PLANES: 1 - trim_rate})
    assert expected is not None
    # Four standard deviations of the share that is cut, of some 6,700 packets.
    chance = 4 * np.sqrt((1 - trim_rate) / max(trim_rate, 1e-9) / 6_700)
    assert trimwire.nmse(got, gradient) == pytest.approx(expected, rel=0.02 + chance, abs=1e-12)


def test_a_mix_of_cuts_and_losses_costs_what_the_formula_says() -> None:
    gradient = RANDOM.standard_normal(3_000_000).astype(np.float32)
    got = trimwire.simulate(gradient, trim_rate=0.5, planes={1: 1.0, 4: 3.0}, drop_rate=0.2, seed=4)
    # Each row's formula has the shares of its own ten packets: the mean over what chance makes of them.
    expected = 0.0
    for lost, one, four in itertools.product(range(11), repeat=3):
        whole = 10 - lost - one - four
        if whole >= 0 and lost < 10:
            ways = math.factorial(10) / math.prod(math.factorial(count) for count in (lost, one, four, whole))
            of_row = trimwire.expected_nmse({0: lost / 10, 1: one / 10, 4: four / 10, trimwire.PLANES: whole / 10})
            assert of_row is not None
            expected += ways * 0.2**lost * 0.1**one * 0.3**four * 0.4**whole * of_row
    assert trimwire.nmse(got, gradient) == pytest.approx(expected, rel=0.08)


def test_simulations_are_unbiased_and_the_same_for_the_same_arguments(gradient: np.ndarray) -> None:
    def once(message: int) -> np.ndarray:
        return trimwire.simulate(gradient, trim_rate=0.5, planes=1, message=message)

    assert (once(1) == once(1)).all() and not (once(1) == once(2)).all()
    mean = np.mean([once(message) for message in range(100)], axis=0, dtype=np.float64)
    # An unbiased estimate's error falls with the number of them; a biased one's does not.
    single = trimwire.nmse(once(0), gradient)
    assert trimwire.nmse(mean, gradient) < single / 50


def test_half_precision_goes_in_and_comes_out(gradient: np.ndarray) -> None:
    half = gradient.astype(np.float16)
    got = trimwire.simulate(half, trim_rate=0.0)
    assert got.dtype == np.float16 and trimwire.nmse(got, half) < 1e-8


def test_what_is_not_finite_is_not_finite_everywhere_in_its_row() -> None:
    gradient = np.ones(100, dtype=np.float32)
    gradient[3] = np.nan
    assert np.isnan(trimwire.decode(trimwire.encode(gradient))).any()


def test_odd_arrays() -> None:
    strided = np.arange(40, dtype=np.float32).reshape(4, 10)[:, ::2]
    assert trimwire.nmse(trimwire.decode(trimwire.encode(strided)), strided) < 1e-11
    frozen = np.ones(7, dtype=np.float32)
    frozen.flags.writeable = False
    assert trimwire.nmse(trimwire.simulate(frozen, trim_rate=0.0), frozen) < 1e-11
    assert trimwire.nmse(trimwire.decode(trimwire.encode([1.0, 2.0, 3.0])), [1.0, 2.0, 3.0]) < 1e-11


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: trimwire.encode(np.zeros(3)), TypeError, "tensor: float64"),
        (lambda: trimwire.encode(np.zeros(3, dtype=np.int32)), TypeError, "tensor: int32"),
        (lambda: trimwire.encode("x"), TypeError, "tensor"),
        (lambda: trimwire.encode(np.zeros(0, dtype=np.float32)), ValueError, "at least one coordinate"),
        (lambda: trimwire.encode(np.zeros(3, dtype=np.float32), planes=11), ValueError, "planes: 11"),
        (lambda: trimwire.encode(np.zeros(3, dtype=np.float32), codec="zip"), ValueError, "codec"),
        (lambda: trimwire.encode(np.zeros(3, dtype=np.float32), rank=2_000), ValueError, "rank: 2000"),
        (lambda: trimwire.trim(b"abc", 1), ValueError, "packet"),
        (lambda: trimwire.simulate(np.zeros(3, dtype=np.float32), trim_rate=1.5), ValueError, "trim_rate: 1.5"),
        (lambda: trimwire.simulate(np.zeros(3, dtype=np.float32), planes=0), ValueError, "planes: 0"),
        (lambda: trimwire.simulate(np.zeros(3, dtype=np.float32), planes={1: -1.0}), ValueError, "planes: {1: -1.0}"),
        (lambda: trimwire.simulate(np.zeros(3, dtype=np.float32), drop_rate=float("nan")), ValueError, "drop_rate: nan"),
        (lambda: trimwire.decode(trimwire.encode(np.zeros(3, dtype=np.float32)), [b"\x00" * 40]), ValueError, r"packets\[0\]"),
        (lambda: trimwire.decode(trimwire.encode(np.zeros(3, dtype=np.float32)), decoding="best"), ValueError, "decoding"),
        (lambda: trimwire.decode(trimwire.encode(np.zeros(3, dtype=np.float32)), out=np.zeros(4, np.float32)), ValueError, "out"),
    ],
)
def test_errors_name_the_argument(call: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()  # type: ignore[operator]
