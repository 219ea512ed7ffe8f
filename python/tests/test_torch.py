# SPDX-License-Identifier: Apache-2.0
"""Promises of the backend and the hook, against PyTorch's own sums on one process."""

from __future__ import annotations

import datetime
import sys
import time
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from ranks import hooked, run  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import trimwire.torch  # noqa: E402
from trimwire import nmse  # noqa: E402

LARGE = 100_000


def begin(backend: str = "trimwire", **options: Any) -> None:
    # Nine planes tell a wrong sum from one that is not exact.
    trimwire.torch.options(**{"gradients": "lossy", "planes": 9, **options})
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))


def values(rank: int, length: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1_000 + rank)
    if dtype.is_floating_point:
        return torch.randn(length, generator=generator).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, (length,), generator=generator).bool()
    return torch.randint(0, 100, (length,), generator=generator).to(dtype)


def collectives(rank: int, world: int) -> dict[str, Any]:
    begin()
    problems = []

    def check(name: str, got: torch.Tensor, expected: torch.Tensor, error: float) -> None:
        if error == 0.0 and not torch.equal(got, expected):
            problems.append(f"{name}: not the same bits")
        elif error > 0.0 and nmse(got.double(), expected.double()) > error:
            problems.append(f"{name}: NMSE {nmse(got.double(), expected.double())}")

    for dtype, error in [(torch.float32, 1e-8), (torch.float16, 1e-5), (torch.bfloat16, 1e-4)]:
        parts = [values(other, LARGE, dtype) for other in range(world)]
        total = torch.stack(parts).double().sum(0)
        got = parts[rank].clone()
        dist.all_reduce(got)
        check(f"all_reduce {dtype}", got, total, error)
        got = parts[rank].clone()
        dist.all_reduce(got, op=dist.ReduceOp.AVG)
        check(f"mean {dtype}", got, total / world, error)
        shard = torch.empty(LARGE // world, dtype=dtype)
        dist.reduce_scatter_tensor(shard, parts[rank][: LARGE // world * world].clone())
        check(f"reduce_scatter {dtype}", shard, total[: LARGE // world * world].view(world, -1)[rank], error)
    for dtype in [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16]:
        for length in [0, 1, 7, 1_001]:
            parts = [values(other, length, dtype) for other in range(world)]
            got = parts[rank].clone()
            dist.broadcast(got, src=world - 1)
            check(f"broadcast {dtype} {length}", got, parts[world - 1], 0.0)
            everything = torch.empty(world * length, dtype=dtype)
            dist.all_gather_into_tensor(everything, parts[rank])
            check(f"all_gather_into_tensor {dtype} {length}", everything, torch.cat(parts), 0.0)
            gathered = [torch.empty(length, dtype=dtype) for _ in range(world)]
            dist.all_gather(gathered, parts[rank])
            check(f"all_gather {dtype} {length}", torch.cat(gathered), torch.cat(parts), 0.0)
            parts_of = [values(100 + other, length, dtype) for other in range(world)]
            got = torch.empty(length, dtype=dtype)
            dist.scatter(got, parts_of if rank == world - 1 else None, src=world - 1)
            check(f"scatter {dtype} {length}", got, parts_of[rank], 0.0)
            gathered = [torch.empty(length, dtype=dtype) for _ in range(world)] if rank == 0 else None
            dist.gather(parts[rank], gathered, dst=0)
            if gathered is not None:
                check(f"gather {dtype} {length}", torch.cat(gathered), torch.cat(parts), 0.0)
            if length > 0 and dtype != torch.bool:
                got = parts[rank].clone()
                dist.all_reduce(got, op=dist.ReduceOp.MAX)
                check(f"max {dtype} {length}", got, torch.stack(parts).amax(0), 0.0)
                got = parts[rank].clone()
                dist.reduce(got, dst=0)
                expected = torch.stack(parts).sum(0, dtype=dtype) if rank == 0 else parts[rank]
                check(f"reduce {dtype} {length}", got, expected, 0.0)
    # Of any strides.
    matrix = values(rank, 60_000).view(200, 300)
    got = matrix.clone().t()
    dist.all_reduce(got)
    check("transposed", got, sum(values(other, 60_000).view(200, 300).t().double() for other in range(world)), 1e-8)
    # Small sums are exact: every rank adds the same numbers in the same order.
    small = torch.tensor([0.1 * (rank + 1)], dtype=torch.float32)
    dist.all_reduce(small)
    exact = torch.tensor(0.0)
    for other in range(world):
        exact = exact + torch.tensor(0.1 * (other + 1), dtype=torch.float32)
    check("small", small, exact.view(1), 0.0)
    said: list[Any] = [None] * world
    dist.all_gather_object(said, {"rank": rank, "text": "x" * rank})
    if said != [{"rank": other, "text": "x" * other} for other in range(world)]:
        problems.append(f"all_gather_object: {said}")
    dist.barrier()
    # NaN anywhere reaches every rank.
    got = values(rank, LARGE)
    if rank == world - 1:
        got[5] = float("nan")
    dist.all_reduce(got)
    if not got[5].isnan():
        problems.append("a NaN is lost")
    # Several at once, waited for in another order.
    tensors = [values(rank, LARGE) * (n + 1) for n in range(4)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    total = torch.stack([values(other, LARGE) for other in range(world)]).double().sum(0)
    for n, tensor in enumerate(tensors):
        check(f"at once {n}", tensor, total * (n + 1), 1e-8)
    half = dist.new_group(list(range(world // 2 + 1)))
    if rank <= world // 2:
        got = values(rank, LARGE)
        dist.all_reduce(got, group=half)
        check("subgroup", got, torch.stack([values(other, LARGE) for other in range(world // 2 + 1)]).double().sum(0), 1e-8)
        dist.destroy_process_group(half)
    # Several tensors, by rank.
    lists = [[torch.empty(7), torch.empty(3, 5)] for _ in range(world)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.all_gather_coalesced(lists, [values(rank, 7), values(rank, 15).view(3, 5)])
    for other, (first, second) in enumerate(lists):
        check("coalesced", first, values(other, 7), 0.0)
        check("coalesced", second, values(other, 15).view(3, 5), 0.0)
    try:
        dist.all_reduce(torch.eye(4).to_sparse())
        problems.append("a sparse tensor is taken")
    except NotImplementedError as error:
        if "sparse_coo" not in str(error):
            problems.append(f"sparse: {error}")
    dist.barrier()
    dist.destroy_process_group()
    return {"problems": problems}


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_collective_gives_what_it_should(world: int) -> None:
    for result in run(collectives, world):
        assert result["problems"] == []


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.front = nn.Linear(64, 512)
        self.norm = nn.BatchNorm1d(512)
        self.middle = nn.Linear(512, 512)
        self.back = nn.Linear(512, 10)
        self.unused = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.front(x)))
        return self.back(torch.relu(self.middle(x)))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank * 1_000 + step)
    x = torch.randn(32, 64, generator=generator)
    return x, (x.sum(1) > 0).long()


def train(rank: int, world: int, how: str, steps: int) -> dict[str, Any]:
    begin("trimwire" if how == "backend" else "gloo")
    model = DistributedDataParallel(Net(), find_unused_parameters=True, bucket_cap_mb=1)
    hook = hooked(model) if how == "hook" else None
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        x, y = batch(rank, step)
        optimiser.zero_grad()
        if step % 3 == 2:
            with model.no_sync():
                nn.functional.cross_entropy(model(x), y).backward()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        losses.append(loss.item())
    state = torch.cat([parameter.detach().view(-1) for parameter in model.parameters()])
    stats = hook.stats() if hook else {}
    if hook:
        hook.close()
    dist.barrier()
    dist.destroy_process_group()
    return {"losses": losses, "state": state.numpy(), "stats": stats}


@pytest.mark.parametrize("how", ["backend", "hook"])
def test_models_train_as_with_gloo_and_replicas_stay_the_same_bits(how: str) -> None:
    ours, theirs = run(train, 2, how, 12), run(train, 2, "gloo", 12)
    assert (ours[0]["state"] == ours[1]["state"]).all()
    # Nine planes of every step's gradients: 6e-10 each.
    assert nmse(ours[0]["state"], theirs[0]["state"]) < 1e-6
    assert ours[0]["losses"] == pytest.approx(theirs[0]["losses"], rel=1e-2)
    if how == "hook":
        assert ours[0]["stats"]["operations"] >= 12 and ours[0]["stats"]["failed"] == 0


def sharded(rank: int, world: int, backend: str) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    begin(backend)
    model = FullyShardedDataParallel(Net(), device_id=torch.device("cpu"), use_orig_params=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(4):
        x, y = batch(rank, step)
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    dist.barrier()
    dist.destroy_process_group()
    return losses


def test_fsdp_trains_as_with_gloo() -> None:
    ours, theirs = run(sharded, 2, "trimwire"), run(sharded, 2, "gloo")
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=1e-3)


def dies(rank: int, world: int) -> Any:
    import os

    begin(give_up=2.0)
    got = values(rank, LARGE)
    dist.all_reduce(got)
    if rank == 2:
        time.sleep(0.3)  # Others have what it has sent.
        os._exit(7)
    begun = time.monotonic()
    try:
        dist.all_reduce(got)
    except Exception as error:
        return str(error), time.monotonic() - begun
    return "no error", 0.0


def test_a_rank_that_dies_is_named_in_time() -> None:
    for text, took in run(dies, 3, dying=1):
        assert "rank 2" in text, text
        assert took < 10.0


def goes_on(rank: int, world: int) -> Any:
    import os

    begin(give_up=2.0)
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Linear(200, 100))
    inputs = values(rank, 400).view(2, 200)
    model(inputs).sum().backward()
    if rank == 1:
        os._exit(7)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    try:
        model(inputs).sum().backward()
        dist.barrier()
        return "no error"
    except Exception as error:
        assert "rank 1" in str(error), error
    epoch = trimwire.torch.shrink()
    assert epoch.members == (0, 2, 3) and (dist.get_rank(), dist.get_world_size()) == (epoch.rank, 3), epoch
    total = values(rank, LARGE)
    dist.all_reduce(total)
    assert nmse(total, sum(values(other, LARGE) for other in epoch.members)) < 1e-8
    # Means are over three, once the model is wrapped anew; of four there is none.
    with pytest.raises(RuntimeError, match="made anew"):
        model(inputs).sum().backward()
    model = DistributedDataParallel(model.module)
    model.zero_grad(set_to_none=True)
    model(inputs).sum().backward()
    expected = torch.stack([values(other, 400).view(2, 200).sum(0) for other in epoch.members]).mean(0)
    assert nmse(model.module.weight.grad[0], expected) < 1e-6
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    # A second one dies, and groups of those that are left are made by the store.
    group = dist.new_group([0, 1])
    if dist.get_rank() == 2:
        os._exit(7)
    got = torch.ones(5)
    dist.all_reduce(got, group=group)
    assert (got == 2).all()
    try:
        dist.all_reduce(total)
        return "no error"
    except Exception as error:
        # As in the beginning.
        assert "rank 3" in str(error), error
    epoch = trimwire.torch.shrink()
    assert (epoch.number, epoch.members) == (2, (0, 2)), epoch
    got = torch.full((5,), float(rank))
    dist.all_reduce(got)
    return got.tolist()


def test_those_that_are_left_go_on_when_a_rank_dies_and_another_one() -> None:
    assert run(goes_on, 4, dying=2) == [[2.0] * 5, [2.0] * 5]


def begins_again(rank: int, world: int) -> Any:
    import os

    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=rank == 0, wait_for_workers=False)
    trimwire.torch.options(give_up=2.0)

    def generation(number: int, rank: int, world: int) -> None:
        dist.init_process_group("trimwire", store=dist.PrefixStore(f"generation {number}", store), rank=rank, world_size=world)

    generation(0, rank, world)
    got = values(rank, LARGE)
    dist.all_reduce(got)
    if rank == 1:
        time.sleep(0.3)  # Others have what it has sent.
        os._exit(7)
    try:
        dist.all_reduce(got)
        return "no error"
    except Exception as error:
        assert "rank 1" in str(error), error
    # As torchft's manager does: somebody else knows who is left, and says where to meet.
    dist.destroy_process_group()
    generation(1, rank // 2, 2)
    got = torch.full((5,), float(rank))
    dist.all_reduce(got)
    dist.barrier()
    return got.tolist()


def test_a_process_group_is_made_anew_under_another_prefix_without_restarting_processes() -> None:
    assert run(begins_again, 3, dying=1) == [[2.0] * 5, [2.0] * 5]


SCRIPT = """
import os, signal
import torch, torch.distributed as dist
import trimwire.torch

trimwire.torch.options(give_up=5.0)
dist.init_process_group("trimwire")
rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
got = torch.full((50_000,), rank + 1.0)
dist.all_reduce(got)
if rank == 1 and attempt == 0:
    os.kill(os.getpid(), signal.SIGKILL)
got = torch.full((5,), rank + 1.0)
dist.all_reduce(got)
print(f"rank {rank} attempt {attempt} sum {got[0].item()}", flush=True)
dist.destroy_process_group()
"""


def test_torchrun_starts_all_ranks_again_when_one_is_killed(tmp_path: Any) -> None:
    import subprocess

    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", str(script)]
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=180)
    assert ran.returncode == 0, ran.stderr
    for rank in range(2):
        assert f"rank {rank} attempt 1 sum 3.0" in ran.stdout, ran.stdout + ran.stderr


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        trimwire.torch.options(nonsense=1)  # type: ignore[call-arg]


def test_it_is_said_once_why_a_devices_tensors_go_through_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from trimwire.torch import _device

    monkeypatch.setattr(_device, "_said", set())
    assert _device.on_host(torch.ones(1))
    elsewhere = torch.empty(1, device="meta")
    with pytest.warns(RuntimeWarning, match="copied to the host, and encoded and decoded there: there are kernels for CUDA, and none for meta"):
        assert not _device.on_host(elsewhere)
    assert _device.codec_of("auto") == ("triton" if torch.cuda.is_available() else "host")
    # A GPU is there, and the kernels are not.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "trimwire.cuda", None)
    monkeypatch.delattr(trimwire, "cuda", raising=False)
    with pytest.warns(RuntimeWarning, match="the kernels cannot be used"):
        assert _device.codec_of("auto") == "host"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not _device.on_host(elsewhere)
        assert _device.codec_of("auto") == _device.codec_of("host") == "host"
    with pytest.raises(ImportError):
        _device.codec_of("triton")
    with pytest.raises(ValueError, match="codec: 'cuda'; valid are 'auto', 'host', 'triton'"):
        _device.codec_of("cuda")


def by_channels(rank: int, world: int, channels: tuple[int, ...]) -> str:
    try:
        begin(network={"channels": channels[rank]})
        got = values(rank, 4 * LARGE)
        dist.all_reduce(got)
        error = nmse(got.double(), sum(values(other, 4 * LARGE).double() for other in range(world)))
        dist.destroy_process_group()
        return "right" if error < 1e-8 else f"NMSE {error}"
    except RuntimeError as error:
        return str(error)


def test_channels_sum_as_one_does_and_have_to_be_as_many_at_all_ranks() -> None:
    assert run(by_channels, 2, (2, 2)) == ["right", "right"]
    assert all("channels 1, rank 0 2" in said for said in run(by_channels, 2, (2, 1)))
