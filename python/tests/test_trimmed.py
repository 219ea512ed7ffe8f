# SPDX-License-Identifier: Apache-2.0
"""Promises of training jobs on a network that trims and loses packets: hook and backend, on the host's codec."""

from __future__ import annotations

import datetime
import os
import socket
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from cutting import Network  # noqa: E402
from ranks import hooked, run  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import trimwire.torch  # noqa: E402
from trimwire import nmse  # noqa: E402


def ports(count: int) -> list[int]:
    """Free ones, of UDP."""
    held = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    found = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return found


def through(told: list[str]) -> None:
    """Has this rank's groups find the others where the network stands in for them."""
    from trimwire.torch import _rendezvous

    exchange = _rendezvous._exchange

    def instead(*arguments: Any) -> list[dict[str, Any]]:
        return [{**said, "address": address} for said, address in zip(exchange(*arguments), told, strict=True)]

    _rendezvous._exchange = instead


def net() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def train(rank: int, world: int, way: str, told: list[list[str]], listening: list[int], consistent: bool) -> Any:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    # Of an Ethernet's packets 200 bytes are the header and a plane; of the loopback's longer ones they would be less than a plane, which is sent again.
    os.environ["TRIMWIRE_MTU"] = "1500"
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    through(told[rank])
    chosen = trimwire.torch.Options(gradients="lossy", consistent=consistent, smallest=1_000, network=trimwire.torch.Network(address="127.0.0.1", port=listening[rank], paths=1))
    group = dist.new_group(backend="trimwire", pg_options=chosen) if way == "backend" else dist.group.WORLD
    model = DistributedDataParallel(net(), process_group=group)
    hook = hooked(model, options=chosen) if way == "hook" else None
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    # The parameters that rank 0 sends at first are exact.
    before = trimwire.torch.of(group).stats() if way == "backend" else {}
    spreads = []
    for step in range(5):
        generator = torch.Generator().manual_seed(rank * 100 + step)
        x = torch.randn(16, 64, generator=generator)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long()).backward()
        optimiser.step()
        own = flat(model)
        everyone = [torch.empty_like(own) for _ in range(world)]
        dist.all_gather(everyone, own)
        spreads.append(float(max((other - everyone[0]).abs().max() for other in everyone)))
    stats = hook.stats() if hook is not None else trimwire.torch.of(group).stats()
    stats = {name: value - before.get(name, 0) for name, value in stats.items()}
    weights = flat(model).numpy().copy()
    dist.barrier()
    if hook is not None:
        hook.close()
    dist.destroy_process_group()
    return weights, spreads, stats


def were_trimmed(stats: dict[str, float]) -> bool:
    """A good part of the packets, as the network says: 30 %."""
    return 0.2 * stats["packets_received"] < stats["packets_trimmed"] < 0.4 * stats["packets_received"]


def trained(way: str, *, cut: float, lost: float = 0.0, consistent: bool = False) -> list[Any]:
    listening = ports(2)
    with Network([f"127.0.0.1:{port}" for port in listening], cut=cut, lost=lost, left=200) as network:
        results = run(train, 2, way, [network.of(rank) for rank in range(2)], listening, consistent)
        assert network.were_cut > 0
    return results


@pytest.fixture(scope="module")
def whole() -> Any:
    return run(plainly, 2)[0]


def plainly(rank: int, world: int) -> Any:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    model = DistributedDataParallel(net())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(5):
        generator = torch.Generator().manual_seed(rank * 100 + step)
        x = torch.randn(16, 64, generator=generator)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long()).backward()
        optimiser.step()
    weights = flat(model).numpy().copy()
    dist.barrier()
    dist.destroy_process_group()
    return weights


@pytest.mark.parametrize("way", ["hook", "backend"])
def test_gradients_that_are_trimmed_are_taken_as_they_come(way: str, whole: Any) -> None:
    results = trained(way, cut=0.3)
    for weights, _, stats in results:
        assert were_trimmed(stats) and stats["failed"] == 0
        # Of weights after five steps, of which a third of the gradients' packets kept some planes.
        assert nmse(weights, whole) < 1e-2
    # Each rank's own cuts: without `consistent` replicas drift.
    assert results[0][1][4] > 0.0


@pytest.mark.parametrize("way", ["hook", "backend"])
def test_consistent_replicas_keep_the_same_bits_whatever_is_trimmed_and_lost(way: str, whole: Any) -> None:
    for weights, spreads, stats in trained(way, cut=0.3, lost=0.02, consistent=True):
        assert were_trimmed(stats) and spreads == [0.0] * 5
        assert nmse(weights, whole) < 1e-2
