# SPDX-License-Identifier: Apache-2.0
"""Promises of simulated trimming, against closed forms and against the same sums with nothing cut."""

from __future__ import annotations

import datetime
import math
from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from ranks import hooked, run  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import trimwire  # noqa: E402
from trimwire.torch import Simulation  # noqa: E402

LENGTH = 1_200_000
SIMULATIONS: dict[str, Simulation] = {
    "nothing trimmed": Simulation(trim_rate=0.0, sent_planes=9, measure=True),
    "one way": Simulation(trim_rate=0.5, both_ways=False, measure=True),
    "both ways": Simulation(trim_rate=0.5, measure=True),
    "consistent": Simulation(trim_rate=0.5, consistent=True, measure=True),
    "mixed": Simulation(trim_rate=0.5, planes={1: 1, 8: 9}, drop_rate=0.05, both_ways=False, measure=True),
    "paper": Simulation(trim_rate=0.2, codec="rht-paper", decoding="paper", measure=True),
    "sign-magnitude": Simulation(trim_rate=0.2, codec="sign-magnitude", measure=True),
}


class Gradient(nn.Module):
    """Whose gradient is whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(LENGTH))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.weight * gradient).sum()


def gradient(rank: int) -> torch.Tensor:
    return torch.randn(LENGTH, generator=torch.Generator().manual_seed(rank))


def means(rank: int, world: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    got: dict[str, Any] = {}
    for name, simulation in SIMULATIONS.items():
        model = DistributedDataParallel(Gradient())
        hook = hooked(model, simulate=simulation)
        model(gradient(rank)).backward()
        got[name] = (model.module.weight.grad.numpy().copy(), hook.stats()["nmse"])
    # What was cut comes later: with the same gradient again and again, the mean over the steps gets ever nearer.
    for name, feedback in (("feedback", True), ("no feedback", False)):
        model = DistributedDataParallel(Gradient())
        hooked(model, simulate=Simulation(trim_rate=0.5, both_ways=False, error_feedback=feedback))
        total = torch.zeros(LENGTH)
        for _ in range(16):
            model.zero_grad()
            model(gradient(rank)).backward()
            total += model.module.weight.grad
        got[name] = (total / 16).numpy()
    model = DistributedDataParallel(Gradient())
    hooked(model, simulate=Simulation(trim_rate=0.5))
    own = gradient(rank)
    if rank == 1:
        own[7] = float("nan")
    model(own).backward()
    got["nan"] = bool(model.module.weight.grad.isnan().any())
    dist.barrier()
    dist.destroy_process_group()
    return got


@pytest.fixture(scope="module")
def simulated() -> list[dict[str, Any]]:
    return run(means, 2)


EXACT = sum(gradient(rank).double() for rank in range(2)).numpy() / 2


def of_rows(shares: dict[int, float], packets: int = 3) -> float:
    """The error to expect of rows of so few packets, of which each keeps planes by chance: what is left of a row is scaled by its own share."""
    alone = {planes: trimwire.expected_nmse({planes: 1.0}) for planes in shares}
    total = 0.0
    for row in product(shares, repeat=packets):
        kept = sum(0.0 if error is None else 1.0 / (1.0 + error) for error in (alone[planes] for planes in row)) / packets
        total += math.prod(shares[planes] for planes in row) * (1.0 / kept - 1.0 if kept else 1.0)
    return total


def test_nothing_cut_loses_nothing_and_replicas_are_the_same_bits(simulated: list[dict[str, Any]]) -> None:
    (first, measured), (second, _) = (result["nothing trimmed"] for result in simulated)
    assert (first == second).all()
    assert trimwire.nmse(first, EXACT) < 1e-8 and measured < 1e-8


@pytest.mark.parametrize(("name", "shares", "ways"), [("one way", {1: 0.5}, 1), ("both ways", {1: 0.5}, 2), ("mixed", {0: 0.05, 1: 0.0475, 8: 0.4275}, 1)])
def test_a_mean_loses_what_the_formula_says(simulated: list[dict[str, Any]], name: str, shares: dict[int, float], ways: int) -> None:
    error = of_rows({**shares, trimwire.PLANES: 1.0 - sum(shares.values())})
    # Of two independent contributions one travels, of two shards of the mean one: half of each way's error.
    expected = error / 2
    if ways == 2:
        expected += (1 + error / 2) * error / 2
    for result in simulated:
        got, measured = result[name]
        assert measured == pytest.approx(expected, rel=0.1)
        assert measured == pytest.approx(trimwire.nmse(got, EXACT), rel=0.05)


def test_consistent_ranks_lose_the_same_and_others_do_not(simulated: list[dict[str, Any]]) -> None:
    assert (simulated[0]["consistent"][0] == simulated[1]["consistent"][0]).all()
    assert (simulated[0]["both ways"][0] != simulated[1]["both ways"][0]).any()


def test_other_codecs_can_be_compared(simulated: list[dict[str, Any]]) -> None:
    for name in ("paper", "sign-magnitude"):
        assert 0.01 < simulated[0][name][1] < 1.0


def test_what_was_cut_is_added_to_the_next_gradient(simulated: list[dict[str, Any]]) -> None:
    for result in simulated:
        assert trimwire.nmse(result["feedback"], EXACT) < trimwire.nmse(result["no feedback"], EXACT) / 4


def test_a_nan_reaches_every_rank(simulated: list[dict[str, Any]]) -> None:
    assert all(result["nan"] for result in simulated)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trim_rate": 1.5}, r"trim_rate: 1\.5; a share is in \[0, 1\]"),
        ({"sent_planes": 11}, "sent_planes: 11; valid are whole numbers from 1 to 10"),
        ({"sent_planes": True}, "sent_planes: True; valid are whole numbers from 1 to 10"),
        ({"seed": -1}, "seed: -1; valid are whole numbers from 0 to 18446744073709551615"),
        ({"seed": 1.5}, r"seed: 1\.5; valid are whole numbers"),
        ({"codec": "RHT"}, "codec: 'RHT'; valid are 'rht', 'raw', 'rht-paper', 'sign-magnitude', 'sq', 'sd'"),
        ({"decoding": "best"}, "decoding: 'best'; valid are 'unbiased', 'mmse', 'paper'"),
        ({"consistent": "no"}, "consistent: 'no'; valid are True, False"),
    ],
)
def test_what_no_network_does_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Simulation(**given)


def apart(rank: int, world: int) -> tuple[float, float]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    found = []
    for simulation in (None, Simulation(trim_rate=1.0)):
        torch.manual_seed(1)
        model = DistributedDataParallel(torch.nn.Linear(200, 100))
        if simulation is not None:
            hooked(model, simulate=simulation)
        model(torch.randn(8, 200, generator=torch.Generator().manual_seed(rank))).square().sum().backward()
        found.append([parameter.grad for parameter in model.module.parameters()])
    dist.barrier()
    dist.destroy_process_group()
    weight, bias = (trimwire.nmse(got, exact) for exact, got in zip(*found, strict=True))
    return weight, bias


def test_norms_and_biases_are_exact_whatever_is_trimmed() -> None:
    for weight, bias in run(apart, 2):
        assert weight > 0.1 and bias < 1e-12
