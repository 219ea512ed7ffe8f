# SPDX-License-Identifier: Apache-2.0
"""Promises of the (state, hook) pair: two levels, warm-up, wrappers, frameworks' ways to it."""

from __future__ import annotations

import datetime
import pickle
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import ranks  # noqa: E402
from ranks import run  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import trimwire.torch  # noqa: E402
from trimwire.torch import Simulation, TrimwireState, trimwire_hook  # noqa: E402

#: Odd sizes, so that no bucket divides evenly.
SHAPES = (33, 257, 5)


def net() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(SHAPES[0], SHAPES[1]), nn.ReLU(), nn.Linear(SHAPES[1], SHAPES[1]), nn.ReLU(), nn.Linear(SHAPES[1], SHAPES[2]))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank * 1_000 + step)
    x = torch.randn(16, SHAPES[0], generator=generator)
    return x, (x.sum(1) > 0).long()


def train(rank: int, world: int, how: str, size: int, steps: int = 4) -> dict[str, Any]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    torch.set_num_threads(1)
    # Made before there are processes, as Lightning's strategy is told of it.
    state = TrimwireState(local_size=size, warmup_steps=2 if how == "warm" else 0, options={"planes": 9})
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    model = DistributedDataParallel(net(), bucket_cap_mb=0.1)
    if how == "wrapped":
        model.register_comm_hook(state, default_hooks.fp16_compress_wrapper(trimwire_hook))
    elif how != "gloo":
        model.register_comm_hook(state, trimwire_hook)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sent = []
    for step in range(steps):
        x, y = batch(rank, step)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
        sent.append(state.stats().get("bytes_sent", 0))
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).numpy().copy()
    dist.barrier()
    kept = pickle.loads(pickle.dumps(state)) if how != "gloo" else state
    assert kept.step == state.step and kept.local_size == size
    state.close()
    dist.destroy_process_group()
    return {"weights": weights, "sent": sent}


@pytest.fixture(scope="module")
def plain() -> Any:
    return run(train, 4, "gloo", 1)[0]["weights"]


@pytest.mark.parametrize(("how", "size"), [("one level", 1), ("two levels", 2), ("one host", 4), ("warm", 2)])
def test_two_levels_train_as_gloo_does_and_replicas_stay_the_same_bits(plain: Any, how: str, size: int) -> None:
    results = run(train, 4, "warm" if how == "warm" else "hook", size)
    for result in results:
        assert (result["weights"] == results[0]["weights"]).all()
        assert trimwire.nmse(result["weights"], plain) < 1e-6
    if how == "warm":
        assert results[0]["sent"][:2] == [0, 0] and results[0]["sent"][2] > 0


def test_between_hosts_a_rank_sends_its_part_of_a_bucket_alone() -> None:
    whole, part = (max(result["sent"][-1] for result in run(train, 4, "hook", size, 2)) for size in (1, 2))
    # Of 4 ranks each sends 3/2 of the bucket, of 2 × 2 each half of it.
    assert part < 0.5 * whole, (part, whole)


def test_a_wrapper_of_pytorchs_goes_around_it(plain: Any) -> None:
    results = run(train, 4, "wrapped", 2)
    assert (results[0]["weights"] == results[3]["weights"]).all()
    assert trimwire.nmse(results[0]["weights"], plain) < 1e-4


def resumed(rank: int, world: int) -> tuple[Any, Any, Any]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    state = TrimwireState(local_size=1, options=trimwire.torch.Options(adaptive="progress"))
    model = DistributedDataParallel(net())
    model.register_comm_hook(state, trimwire_hook)
    for step in range(3):
        x, y = batch(rank, step)
        nn.functional.cross_entropy(model(x), y).backward()
    kept = pickle.dumps(state)
    known = state.state_dict()
    dist.barrier()
    state.close()
    state = pickle.loads(kept)
    # Of a checkpoint that is kept before the first step, too.
    waiting = state.state_dict()
    state.connect()
    found = state.state_dict()
    dist.barrier()
    state.close()
    dist.destroy_process_group()
    return known, waiting, found


def test_a_checkpoint_keeps_what_the_rate_algorithm_knows_of_the_network() -> None:
    for known, waiting, found in run(resumed, 2):
        assert known["adaptive"] and known == waiting == found


def uneven(rank: int, world: int) -> str:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    try:
        TrimwireState(local_size=2).connect()
        return "no error"
    except ValueError as error:
        return str(error)
    finally:
        dist.barrier()


def test_hosts_of_other_sizes_are_refused() -> None:
    assert set(run(uneven, 3)) == {"local_size: 2, of 3 ranks in all; every host has to have as many"}


def test_a_wrong_variable_is_told_of_before_there_is_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMWIRE_PLANES", "99")
    with pytest.raises(ValueError, match="planes.*99"):
        TrimwireState()


def doubles(rank: int, world: int) -> Any:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    plain, hooked = (DistributedDataParallel(net().double()) for _ in range(2))
    ranks.hooked(hooked)
    x, y = batch(rank, 0)
    for model in (plain, hooked):
        nn.functional.cross_entropy(model(x.double()), y).backward()
    same = all(torch.allclose(*(parameter.grad for parameter in pair), rtol=1e-14) for pair in zip(plain.parameters(), hooked.parameters(), strict=True))
    dist.barrier()
    dist.destroy_process_group()
    return same


def test_gradients_of_float64_are_averaged_exactly_by_the_hook() -> None:
    assert run(doubles, 2) == [True, True]


def falls_back(rank: int, world: int) -> Any:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    # One rank listens nowhere that there is.
    options = {"network": {"address": "203.0.113.7" if rank == 1 else "127.0.0.1"}}
    state = TrimwireState(local_size=1, fallback=True, options=options)
    model = DistributedDataParallel(net())
    model.register_comm_hook(state, trimwire_hook)
    x, y = batch(rank, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nn.functional.cross_entropy(model(x), y).backward()
    gradient = model.module[0].weight.grad.clone()
    other = gradient.clone()
    dist.broadcast(other, src=0)
    dist.barrier()
    dist.destroy_process_group()
    return [str(warning.message) for warning in caught if "trimwire" in str(warning.message)], torch.equal(gradient, other)


def test_a_transport_that_cannot_start_at_one_rank_leaves_all_with_the_ordinary_way() -> None:
    for said, same in run(falls_back, 2):
        assert len(said) == 1 and "rank 1" in said[0] and "203.0.113.7" in said[0] and "go through gloo" in said[0], said
        assert same


def hybrid(rank: int, world: int, how: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    # Eight planes and rotations by chance are as far from exact as the losses may be.
    lossy = trimwire.torch.Options(gradients="lossy", smallest=1_000, planes=9)
    if how == "mesh":
        try:
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"), backend_override={"replicate": ("trimwire", lossy)})
        except TypeError:
            dist.barrier()
            return "no backend_override"
        groups = mesh.get_group("shard"), mesh.get_group("replicate")
    else:
        shards = [dist.new_group([2 * host, 2 * host + 1], backend="gloo") for host in range(2)]
        hosts = [dist.new_group([place, place + 2], backend="trimwire", pg_options=lossy) for place in range(2)]
        groups = shards[rank // 2], hosts[rank % 2]
    model: Any
    if how == "mesh":
        from torch.distributed.fsdp import fully_shard

        model = net()
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

        model = FullyShardedDataParallel(net(), process_group=groups, sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_id=torch.device("cpu"), use_orig_params=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(4):
        x, y = batch(rank, step)
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item())
    sums = trimwire.torch.of(groups[1]).stats()["operations"]
    dist.barrier()
    dist.destroy_process_group()
    return losses, sums


def alone(world: int) -> list[float]:
    model = net()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(4):
        optimiser.zero_grad()
        total = 0.0
        for rank in range(world):
            x, y = batch(rank, step)
            loss = nn.functional.cross_entropy(model(x), y)
            (loss / world).backward()
            total += loss.item()
        optimiser.step()
        losses.append(total)
    return losses


@pytest.mark.parametrize("how", ["mesh", "groups"])
def test_hybrid_sharding_sends_gradients_between_hosts_through_trimwire(how: str) -> None:
    results = run(hybrid, 4, how)
    if results[0] == "no backend_override":
        pytest.skip("SKIPPED: init_device_mesh of this PyTorch has no backend_override")
    for losses, sums in results:
        assert losses == pytest.approx(alone(4), rel=1e-4)
        assert sums >= 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"warmup_steps": "3"}, "warmup_steps: '3'; valid are whole numbers from 0 on"),
        ({"warmup_steps": True}, "warmup_steps: True; valid are whole numbers from 0 on"),
        ({"local_size": 0}, "local_size: 0; valid are whole numbers from 1 on"),
        ({"local_size": True}, "local_size: True; valid are whole numbers from 1 on"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TrimwireState(**given)


def shared(rank: int, world: int) -> tuple[int, str]:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    state = TrimwireState(simulate=Simulation(trim_rate=0.0))

    # Two buckets, which PyTorch deals anew after the first step.
    first, second = (DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), bucket_cap_mb=0.0001) for _ in range(2))
    for model in (first, second):
        model.register_comm_hook(state, trimwire_hook)
        for _ in range(3):
            model(torch.ones(2, 8)).sum().backward()
    # One in the other's place is none beside it.
    counted = state.step
    try:
        first(torch.ones(2, 8)).sum().backward()
        said = "nothing"
    except ValueError as error:
        said = str(error)
    dist.destroy_process_group()
    return counted, said


def test_two_models_need_two_states() -> None:
    ((counted, said),) = run(shared, 1)
    assert counted == 6 and "one TrimwireState averages two models" in said, said
