# SPDX-License-Identifier: Apache-2.0
"""Promises of planes algorithms in PyTorch: ranks stay in step, and send what the algorithm says."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
import pytest

import trimwire
from trimwire._adaptive import busy

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from ranks import hooked, run  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import trimwire.torch  # noqa: E402
from trimwire.torch import Simulation, TrimwireState  # noqa: E402


def net() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))


def batch(rank: int, step: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1_000 * step + rank)
    return torch.randn(32, 64, generator=generator), torch.randint(0, 8, (32,), generator=generator)


def begin(backend: str = "gloo") -> None:
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))


def train(hook: Any, model: nn.Module, rank: int, steps: range) -> list[tuple[int, float, float]]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    sent = []
    for step in steps:
        x, y = batch(rank, step)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        sent.append((hook.adaptive.planes, hook.adaptive.ratio, hook.adaptive.pace))
        optimiser.step()
    return sent


def under_a_law(rank: int, world: int, law: str) -> dict[str, Any]:
    begin()
    model = DistributedDataParallel(net(), bucket_cap_mb=0.1)
    hook = hooked(model, options={"planes": 9, "adaptive": law})
    sent = train(hook, model, rank, range(8))
    kept = json.loads(json.dumps(hook.state_dict()))
    # Another job goes on from there.
    again = DistributedDataParallel(net(), bucket_cap_mb=0.1)
    resumed = hooked(again, options={"planes": 9, "adaptive": law})
    resumed.load_state_dict(kept)
    first = (resumed.adaptive.planes, resumed.adaptive.ratio, resumed.adaptive.pace)
    stats = hook.stats()
    last = (hook.adaptive.planes, hook.adaptive.ratio, hook.adaptive.pace)
    dist.destroy_process_group()
    return {"sent": sent, "kept": kept, "stats": stats, "first": first, "last": last}


@pytest.mark.parametrize("law", ["trim-feedback:first=0.2", "trim-feedback:budget_ms=0.05", "netsense", "progress"])
def test_ranks_send_alike_and_a_checkpoint_goes_on_where_the_law_was(law: str) -> None:
    ranks = run(under_a_law, 3, law)
    assert ranks[0]["sent"] == ranks[1]["sent"] == ranks[2]["sent"]
    assert ranks[0]["kept"] == ranks[1]["kept"] == ranks[2]["kept"]
    assert ranks[0]["first"] == ranks[0]["last"]
    stats = ranks[0]["stats"]
    assert stats["adaptive_steps"] + stats["adaptive_refused"] == 8 and 1 <= stats["adaptive_planes"] <= 9
    # The law does something: these grow, or fall, whatever is measured.
    assert law == "progress" or len({ratio for _, ratio, _ in ranks[0]["sent"]}) > 1


def at_a_ratio(rank: int, world: int, law: str) -> Any:
    begin()
    model = DistributedDataParallel(nn.Linear(256, 512, bias=False))
    hook = hooked(model, options={"planes": 9, "adaptive": law})
    generator = torch.Generator().manual_seed(rank)
    gradient = torch.randn(512, 256, generator=generator)
    (model(torch.eye(256)).T * gradient).sum().backward()
    got = model.module.weight.grad.clone()
    others = [torch.randn(512, 256, generator=torch.Generator().manual_seed(other)) for other in range(world)]
    exact = sum(others) / world
    dist.destroy_process_group()
    return trimwire.nmse(got.numpy(), exact.numpy()), hook.stats()["adaptive_planes"]


@pytest.mark.parametrize(("ratio", "planes"), [(0.1, 2), (0.3, 8)])
def test_the_ratio_is_the_planes_that_are_sent(ratio: float, planes: int) -> None:
    for error, sent in run(at_a_ratio, 2, f"fixed:first={ratio}"):
        assert sent == planes
        # Up and down, each at so many planes; independent errors of two ranks are halved in the mean.
        one = trimwire.expected_nmse({planes: 1.0})
        assert 0.7 * one < error < 2.6 * one, (error, one)


def from_other_states(rank: int, world: int) -> str:
    begin()
    model = DistributedDataParallel(net())
    hook = hooked(model, options={"planes": 9, "adaptive": "fixed:first=0.5"})
    if rank == 1:
        other = trimwire.Adaptive("fixed:first=0.5")
        kept = other.state_dict()
        kept["state"] = kept["state"].replace('"ratio":0.5', '"ratio":0.1')
        hook.load_state_dict({"step": 0, "adaptive": kept})
    try:
        train(hook, model, rank, range(3))
    except Exception as error:
        return str(error)
    return "no error"


def test_ranks_that_began_with_other_states_are_told_so() -> None:
    for said in run(from_other_states, 2):
        assert "rank 1 sent 2 planes, rank 0 8" in said and "load_state_dict" in said


def with_other_laws(rank: int, world: int) -> str:
    begin()
    model = DistributedDataParallel(net())
    with pytest.raises(RuntimeError) as caught:
        hooked(model, options={"adaptive": "da2" if rank else "da5"})
    return str(caught.value)


def test_ranks_with_other_laws_do_not_begin() -> None:
    for said in run(with_other_laws, 2):
        assert "adaptive" in said and "da2" in said and "da5" in said


def through_the_backend(rank: int, world: int) -> Any:
    trimwire.torch.options(gradients="lossy", adaptive="trim-feedback:first=0.2", smallest=1_000)
    begin("trimwire")
    group = dist.distributed_c10d._get_default_group()
    model = DistributedDataParallel(net(), bucket_cap_mb=0.1)
    sent = train(group, model, rank, range(6))
    stats = group.stats()
    dist.destroy_process_group()
    return sent, stats


def test_the_backends_sums_follow_a_law() -> None:
    ranks = run(through_the_backend, 2)
    assert ranks[0][0] == ranks[1][0]
    assert ranks[0][1]["adaptive_steps"] + ranks[0][1]["adaptive_refused"] == 5
    assert len({ratio for _, ratio, _ in ranks[0][0]}) > 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"adaptive": "da9"}, "adaptive: unknown algorithm 'da9'"),
        ({"adaptive": "da5:gamma=1"}, "adaptive: da5 has no parameter 'gamma'"),
        ({"adaptive": "netsense:k_min=2"}, "adaptive: netsense: k_min=2; valid are"),
        ({"adaptive": "da2:k_max=0.01"}, "adaptive: da2: k_max=0.01; valid are"),
        ({"adaptive": "da2", "planes": 11}, "planes: 11"),
    ],
)
def test_errors_name_the_option(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:
        TrimwireState(options=options)
    assert text in str(caught.value)


def test_a_simulation_goes_with_no_algorithm() -> None:
    with pytest.raises(ValueError, match="adaptive and simulate"):
        TrimwireState(simulate=Simulation(trim_rate=0.1), options={"adaptive": "da2"})


def test_time_under_way_is_counted_once() -> None:
    assert busy([]) == 0.0
    assert busy([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0), (5.2, 5.4)]) == 4.0


def test_a_law_takes_what_ranks_counted() -> None:
    law = trimwire.Adaptive("trim-feedback:first=0.512")
    assert (law.planes, law.pace) == (9, 1.0)
    measured, refused = law._native.step([[1_000, 500, 100, 50, 0, 0, 10**6, 0]])
    assert refused is None and measured is not None and measured["trimmed"] == 0.5 and measured["arrived"] == 0.5
    assert law.planes < 9 and law.pace == 0.5
    assert law._native.step([[0] * 8]) == (None, "delay_ns is 0: no communication takes no time")
    with pytest.raises(ValueError, match="state_dict"):
        law.load_state_dict({})
    np.testing.assert_equal(law.stats()["adaptive_refused"], 1)
