# SPDX-License-Identifier: Apache-2.0
"""Promises of collectives on tensors of a GPU, over loopback and a network that cuts, against sums in float64 and ranks that work on the host.

    python -m pytest python/tests/test_cuda_collectives.py                         on a GPU
    TRITON_INTERPRET=1 python -m pytest python/tests/test_cuda_collectives.py      without: the same path with tensors of the host and interpreted kernels
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import trimwire
from kernels import DEVICE, INTERPRETED, skip_unless_they_run

skip_unless_they_run()

import torch
from cutting import Network
from ranks import hooked, run
from test_cuda import assert_near

import trimwire.cuda
from trimwire._transcript import Transcript
from trimwire.cuda import _collectives

LENGTH = 1_500


@contextmanager
def group_of(world: int, network: dict[str, Any] | None = None, channels: int = 1, **options: Any) -> Iterator[list[trimwire.Group]]:
    """Groups of one process, each rank's in its place; behind a network that cuts, if it is said how."""
    with ExitStack() as stack:
        groups = [trimwire.Group("127.0.0.1", paths=1, channels=channels) for _ in range(world)]
        addresses = [group.address for group in groups]
        wires = None if network is None else stack.enter_context(Network(addresses, **network))
        for rank, group in enumerate(groups):
            stack.enter_context(group.connect(rank, addresses if wires is None else wires.of(rank), seed=5, give_up=60.0, **options))
        yield groups
        if wires is not None:
            assert (wires.were_cut > 0) == (network.get("cut", 0) > 0) and (wires.were_lost > 0) == (network.get("lost", 0) > 0)


def part(rank: int, length: int = LENGTH, step: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = np.random.default_rng([rank, step]).standard_normal(length).astype(np.float32)
    # Rows of unlike energy, so that some are more important.
    return torch.from_numpy(values * np.linspace(0.1, 3.0, length, dtype=np.float32)).to(DEVICE, dtype)


def exact(world: int, length: int = LENGTH, step: int = 0, dtype: torch.dtype = torch.float32) -> np.ndarray:
    return sum(part(rank, length, step, dtype).double().cpu().numpy() for rank in range(world))


def both(works: list[trimwire.Work]) -> None:
    for work in works:
        work.wait(120)


def on(group: trimwire.Group, gpu: bool) -> Any:
    return group.on_gpu() if gpu else group


def settled(group: trimwire.Group) -> Any:
    """Its collectives, when nothing is under way: who waits may hear of it first."""
    collectives, deadline = group.on_gpu(), time.monotonic() + 30
    while True:
        # A desk that is over is in neither for a moment, to who does not lock.
        with collectives._lock:
            if not collectives._running:
                return collectives
        assert time.monotonic() < deadline, "something goes on"
        time.sleep(0.01)


@pytest.mark.parametrize("channels", [2, 3])
def test_several_channels_share_the_rows_of_a_shard_and_understand_ranks_on_the_host(channels: int) -> None:
    # Two rows a shard, the last of which is short: of three channels one has nothing to do.
    world, length = 2, 2 * (4_096 + 100)
    with group_of(world, channels=channels) as groups:
        for gpus in ((True, True),) if channels == 2 else ((True, False),):
            tensors = [part(rank, length) if gpu else part(rank, length).cpu() for rank, gpu in enumerate(gpus)]
            both([on(groups[rank], gpu).all_reduce(tensors[rank], average=True, planes=10, algorithm="direct") for rank, gpu in enumerate(gpus)])
            for tensor in tensors:
                assert trimwire.nmse(tensor.float().cpu().numpy(), exact(world, length) / world) < 1e-12
        if channels == 2:
            return
        inputs = [part(rank, length) for rank in range(world)]
        scattered = [torch.empty(length // world, device=tensor.device) for tensor in inputs]
        both([on(group, True).reduce_scatter(*pair) for group, pair in zip(groups, zip(inputs, scattered, strict=True), strict=True)])
        gathered = [torch.empty(length, device=tensor.device) for tensor in inputs]
        both([on(group, True).all_gather(*pair) for group, pair in zip(groups, zip(scattered, gathered, strict=True), strict=True)])
        for rank in range(world):
            assert trimwire.nmse(scattered[rank].cpu().numpy(), np.split(exact(world, length), world)[rank]) < 1e-8
            assert trimwire.nmse(gathered[rank].cpu().numpy(), exact(world, length)) < 1e-8
        both([on(group, True).all_reduce(tensor, consistent=True) for group, tensor in zip(groups, inputs, strict=True)])
        assert (inputs[0] == inputs[1]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_those_of_the_host_within_the_tolerance_and_one_at_all_ranks(dtype: torch.dtype) -> None:
    world = 3 if dtype == torch.float32 else 2
    results: dict[bool, list[list[torch.Tensor]]] = {}
    for gpu in (True, False):
        results[gpu] = []
        with group_of(world) as groups:
            for step in range(2):
                tensors = [part(rank, step=step, dtype=dtype) for rank in range(world)]
                if not gpu:
                    tensors = [tensor.cpu() for tensor in tensors]
                both([on(group, gpu).all_reduce(tensor, average=step == 1, planes=10, tag=4) for group, tensor in zip(groups, tensors, strict=True)])
                assert all((tensor == tensors[0]).all() for tensor in tensors)
                # The steps are under other keys, and the second one's rows have figures of importance.
                assert trimwire.nmse(tensors[0].float().cpu().numpy(), exact(world, step=step, dtype=dtype) / (world if step == 1 else 1)) < (1e-12 if dtype == torch.float32 else 4e-5)
                results[gpu].append(tensors)
            stats = groups[0].stats()
            assert stats["operations"] == 2 and stats["failed"] == 0 and stats["packets_missing"] == 0
            if gpu:
                assert 1 <= len(settled(groups[0])._free) <= 2, "desks are used again"
    if dtype == torch.float32:
        for mine, theirs in zip(results[True], results[False], strict=True):
            assert_near(mine[0].cpu().numpy(), theirs[0].numpy(), [LENGTH])


def test_ranks_on_the_host_understand_ranks_on_a_gpu() -> None:
    world = 3
    with group_of(world) as groups:
        tensors = [part(0), part(1).cpu(), part(2)]
        works = [on(groups[rank], rank != 1).all_reduce(tensors[rank], planes=9, algorithm="direct") for rank in range(world)]
        both(works)
        for tensor in tensors:
            assert trimwire.nmse(tensor.cpu().numpy(), exact(world)) < 1e-8
        assert (tensors[0] == tensors[2]).all()
        scattered = [torch.empty(LENGTH // world, device=part(rank).device if rank != 1 else "cpu") for rank in range(world)]
        inputs = [part(0), part(1).cpu(), part(2)]
        both([on(groups[rank], rank != 1).reduce_scatter(inputs[rank], scattered[rank], average=True, algorithm="direct") for rank in range(world)])
        for rank, shard in enumerate(scattered):
            assert trimwire.nmse(shard.cpu().numpy(), np.split(exact(world), world)[rank] / world) < 1e-8
        gathered = [torch.empty(LENGTH, device=shard.device) for shard in scattered]
        groups_ = [on(groups[rank], rank != 1) for rank in range(world)]
        both([groups_[1].all_gather(scattered[1], gathered[1], exact=False), *(groups_[rank].all_gather(scattered[rank], gathered[rank]) for rank in (0, 2))])
        for whole in gathered:
            assert trimwire.nmse(whole.cpu().numpy(), exact(world) / world) < 1e-8


def expected(said: Transcript, nth: int, receiver: int, parts: list[np.ndarray], consistent: bool, per_packet: int) -> float:
    """The error to expect of a sum by what arrived of each packet, in whole planes."""
    world = len(parts)

    def of(fates: np.ndarray, length: int) -> float:
        row, shares = 1 << (length - 1).bit_length(), dict.fromkeys(range(10), 0.0)
        assert len(fates) == -(-row // per_packet), "one row"
        # Packets of a row are of one length but for the last, in words of 32 bits.
        coordinates = -(-row // len(fates) // 32) * 32
        for packet, fate in enumerate(fates.tolist()):
            planes = 0 if fate == 0 else 9 if fate == 0xFFFF_FFFF else fate - 1 >> 16
            shares[planes] += min(coordinates, row - packet * coordinates) / row
        nmse = trimwire.expected_nmse(shares)
        assert nmse is not None
        return nmse

    wrong = whole = 0.0
    for owner, shards in enumerate(zip(*(np.split(part, world) for part in parts), strict=True)):
        energy, length = float((sum(shards) ** 2).sum()), len(shards[0])
        # Decoding is unbiased, so errors of independent messages add up, and the sum that the owner sends has its own.
        arrived = sum(of(said.to_owner(nth, sender, owner), length) * float((shards[sender] ** 2).sum()) for sender in range(world) if sender != owner)
        back = of(said.least(nth, owner), length) if consistent else 0.0 if owner == receiver else of(said.from_owner(nth, owner, receiver), length)
        wrong += arrived + back * (energy + arrived)
        whole += energy
    return wrong / whole


@pytest.mark.parametrize("key", [None, bytes(range(32))], ids=["bare", "sealed"])
def test_cut_and_lost_packets_cost_what_they_hold_and_consistent_replicas_are_one(key: bytes | None, tmp_path: Path) -> None:
    # Shards of 2,048: one row each.
    world, length, record = 3, 6_144, str(tmp_path / "run")
    # Two planes are left of a bare packet; of a sealed one, which has tags behind planes 0 and 7, one.
    with group_of(world, {"cut": 0.3, "left": 23 + 2 * 88, "lost": 0.08}, seal_key=key, loss=0.2, record=record) as groups:
        tensors = [part(rank, length) for rank in range(world)]
        works = [group.on_gpu().all_reduce(tensor, consistent=True) for group, tensor in zip(groups, tensors, strict=True)]
        both(works)
        assert all((tensor == tensors[0]).all() for tensor in tensors), "replicas are one"
        free = [part(rank, length) for rank in range(world)]
        both([group.on_gpu().all_reduce(tensor) for group, tensor in zip(groups, free, strict=True)])
        stats = groups[0].stats()
        assert stats["packets_trimmed"] > 0 and stats["failed"] == 0
    # What came of each packet is written down as where the host decodes: of two others in the reduce-scatter, and of two owners.
    written = trimwire._native.read_transcript(record, 0)
    assert len(written.messages) == 8 and written.lost == 0 and len(written.operations) == 2
    said, parts = Transcript(record), [part(rank, length).double().cpu().numpy() for rank in range(world)]
    for nth, results in enumerate((tensors, free)):
        for receiver, tensor in enumerate(results):
            error = trimwire.nmse(tensor.cpu().numpy(), exact(world, length))
            assert 0.5 < error / expected(said, nth, receiver, parts, nth == 0, 704 if key is None else 672) < 2.0, (nth, receiver, error)


def test_what_has_to_arrive_whole_is_repaired_over_a_network_that_cuts() -> None:
    with group_of(2, {"cut": 0.4, "left": 20 + 3 * 56 + 17, "lost": 0.1}) as groups:
        tensors = [part(rank, 4_000) for rank in range(2)]
        both([group.on_gpu().all_reduce(tensor, full=True, planes=10) for group, tensor in zip(groups, tensors, strict=True)])
        assert (tensors[0] == tensors[1]).all()
        assert trimwire.nmse(tensors[0].cpu().numpy(), exact(2, 4_000)) < 1e-12
        assert groups[0].stats()["packets_repaired"] > 0


def test_a_sealed_group_sums_on_a_gpu_and_on_the_host() -> None:
    with group_of(2, seal_key=bytes(range(32))) as groups:
        tensors = [part(0), part(1).cpu()]
        both([groups[0].on_gpu().all_reduce(tensors[0]), groups[1].all_reduce(tensors[1])])
        for tensor in tensors:
            assert trimwire.nmse(tensor.cpu().numpy(), exact(2)) < 1e-8


def test_a_kernel_that_fails_ends_its_operation_everywhere_with_the_cause_and_not_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with group_of(2) as groups:
        # Compiled, which runs kernels on a GPU.
        both([group.on_gpu().all_reduce(part(rank)) for rank, group in enumerate(groups)])
        run = trimwire.cuda.Decoder.run
        failures = iter([RuntimeError("no such luck")])

        def failing(self: Any, *arguments: Any, **options: Any) -> None:
            for failure in failures:
                raise failure
            run(self, *arguments, **options)

        monkeypatch.setattr(trimwire.cuda.Decoder, "run", failing)
        works = [group.on_gpu().all_reduce(part(rank)) for rank, group in enumerate(groups)]
        errors = []
        for work in works:
            with pytest.raises(trimwire.TransportError) as raised:
                work.wait(30)
            errors.append(str(raised.value))
        assert sum("a row is coded elsewhere, where that failed: RuntimeError: no such luck" in error for error in errors) == 1, errors
        assert sum("because of rank" in error for error in errors) == 1, errors
        tensors = [part(rank) for rank in range(2)]
        both([group.on_gpu().all_reduce(tensor) for group, tensor in zip(groups, tensors, strict=True)])
        assert trimwire.nmse(tensors[0].cpu().numpy(), exact(2)) < 1e-8


def test_what_is_under_way_when_a_group_closes_fails_and_its_threads_end() -> None:
    before = set(threading.enumerate())
    with group_of(2) as groups:
        called = threading.Event()
        work = groups[0].on_gpu().all_reduce(part(0))
        work.then(called.set)
        with pytest.raises(TimeoutError):
            work.wait(0.3)
        groups[0].close()
        with pytest.raises(trimwire.TransportError, match="cancelled"):
            work.wait(10)
        assert called.wait(10) and settled(groups[0])
        with pytest.raises(RuntimeError, match="closed"):
            groups[0].on_gpu().all_reduce(part(0))
    deadline = time.monotonic() + 10
    while set(threading.enumerate()) - before:
        assert time.monotonic() < deadline, "threads go on"
        time.sleep(0.01)


def test_many_operations_at_once_keep_apart_and_the_tensors_of_nobody_live_long_enough() -> None:
    with group_of(2) as groups:
        tensors = [[part(rank, 600, step) for step in range(3)] for rank in range(2)]
        works = [group.on_gpu().all_reduce(tensor, layer_class=7 - step) for group, own in zip(groups, tensors, strict=True) for step, tensor in enumerate(own)]
        works += [group.on_gpu().all_reduce(part(rank, 700)) for rank, group in enumerate(groups)]
        both(works)
        for own in tensors:
            for step, tensor in enumerate(own):
                assert trimwire.nmse(tensor.cpu().numpy(), exact(2, 600, step)) < 1e-8


def test_of_ever_new_lengths_only_the_latest_keep_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_collectives, "_MOST_DESKS", 3)
    with group_of(1) as groups:
        for length in range(40, 50):
            groups[0].on_gpu().all_reduce(part(0, length)).wait(10)
            settled(groups[0])
        assert [desk.shape.length for desk in groups[0].on_gpu()._free] == [47, 48, 49]


def test_a_rank_alone_has_its_own_mean_and_short_tensors_have_fewer_owners() -> None:
    with group_of(1) as groups:
        tensor = part(0)
        groups[0].on_gpu().all_reduce(tensor, average=True).wait(10)
        assert (tensor == part(0)).all()
    with group_of(3) as groups:
        for length in (1, 5, 500):
            tensors = [part(rank, length) for rank in range(3)]
            both([group.on_gpu().all_reduce(tensor, planes=10) for group, tensor in zip(groups, tensors, strict=True)])
            assert trimwire.nmse(tensors[2].cpu().numpy(), exact(3, length)) < 1e-9, length


def test_at_a_deadline_a_rank_that_is_late_is_not_waited_for() -> None:
    with group_of(3) as groups:
        early = [part(rank) for rank in range(2)]
        both([groups[rank].on_gpu().all_reduce(early[rank], deadline=2.0) for rank in range(2)])
        # How much of each other's parts came in time the machine decides; its own is there.
        shard, alone = slice(0, LENGTH // 3), trimwire.nmse(part(0).cpu().numpy()[: LENGTH // 3], exact(2)[: LENGTH // 3])
        assert trimwire.nmse(early[0].cpu().numpy()[shard], exact(2)[shard]) < alone + 1e-6


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda gpu: gpu.all_reduce(torch.zeros(4, 4, device=DEVICE).t()[1:]), ValueError, "tensor: not contiguous"),
        (lambda gpu: gpu.all_reduce(torch.zeros(9, dtype=torch.float64, device=DEVICE)), TypeError, "tensor: torch.float64"),
        (lambda gpu: gpu.all_reduce(torch.zeros(9, device=DEVICE), planes=11), ValueError, "planes: 11; valid are 1 to 10"),
        (lambda gpu: gpu.all_reduce(torch.zeros(9, device="meta")), ValueError, "device: meta"),
        (lambda gpu: gpu.reduce_scatter(torch.zeros(9, device=DEVICE), torch.zeros(9, device=DEVICE).half()), ValueError, "output: torch.float16"),
        (lambda gpu: gpu.reduce_scatter(torch.zeros(9, device=DEVICE), torch.zeros(4, device=DEVICE)).wait(10), trimwire.TransportError, "has 4 elements, and has to have 9"),
        (lambda gpu: gpu.all_gather(torch.zeros(4, device=DEVICE), torch.zeros(9, device=DEVICE)).wait(10), trimwire.TransportError, "has 4 elements, and has to have 9"),
        (lambda gpu: gpu.all_reduce(torch.zeros(9, device=DEVICE), algorithm="ring").wait(10), trimwire.TransportError, "need the direct algorithm, not ring"),
    ],
)
def test_errors_name_the_argument(call: Callable[[Any], object], error: type[Exception], text: str) -> None:
    with group_of(1) as groups:
        with pytest.raises(error, match=text):
            call(groups[0].on_gpu())
        # What failed has left nothing behind.
        tensor = part(0)
        groups[0].on_gpu().all_reduce(tensor).wait(10)
        assert (tensor == part(0)).all() and settled(groups[0])


def test_tensors_of_no_elements_are_summed_scattered_and_gathered() -> None:
    with group_of(2) as groups:
        for _ in range(2):
            empty = [[torch.empty(0, device=DEVICE) for _ in range(2)] for _ in range(2)]
            both([group.on_gpu().all_reduce(own[0]) for group, own in zip(groups, empty, strict=True)])
            both([group.on_gpu().reduce_scatter(own[0], own[1]) for group, own in zip(groups, empty, strict=True)])
            both([group.on_gpu().all_gather(own[0], own[1]) for group, own in zip(groups, empty, strict=True)])
        assert all(settled(group) for group in groups)


def test_threads_that_begin_at_once_share_one_stream_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    # Scratch is kept apart by the order of its stream alone.
    made = []

    def slow(device: Any) -> object:
        time.sleep(0.05)
        made.append(device)
        return object()

    monkeypatch.setattr(torch.cuda, "Stream", slow)
    with group_of(1) as groups:
        gpu, found = groups[0].on_gpu(), list[object]()
        threads = [threading.Thread(target=lambda: found.append(gpu._stream(torch.device("cuda", 0)))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        gpu._streams.clear()
    assert len(made) == 1 and len(found) == 4 and len({id(stream) for stream in found}) == 1


def test_threads_that_are_first_at_once_have_the_same_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    real = trimwire.cuda.Collectives

    def slow(*arguments: Any) -> Any:
        time.sleep(0.1)
        return real(*arguments)

    monkeypatch.setattr(trimwire.cuda, "Collectives", slow)
    with group_of(1) as groups:
        found: list[object] = []
        threads = [threading.Thread(target=lambda: found.append(groups[0].on_gpu())) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert len(found) == 3 and len({id(one) for one in found}) == 1
        groups[0].on_gpu().all_reduce(part(0)).wait(10)


def test_collectives_in_a_graph_that_is_captured_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with group_of(1) as groups:
        gpu = groups[0].on_gpu()
        with monkeypatch.context() as capturing:
            capturing.setattr(_collectives, "is_capturing", lambda device: True)
            with pytest.raises(RuntimeError, match="all_reduce: a CUDA graph is being captured"):
                gpu.all_reduce(part(0))
        gpu.all_reduce(part(0)).wait(10)


def test_what_is_launched_first_is_of_the_lowest_layer_class_then_what_came_first() -> None:
    def row(desk: int, number: int) -> Any:
        return SimpleNamespace(desk=desk, shard=0, row=number, own=True, encode=None, scale=None, contributions=[])

    rows = [row(9, 1), row(4, 0), row(9, 0), row(7, 3), row(4, 2), row(7, 2)]
    batches = _collectives._batches(rows, {9: 5, 4: 5, 7: 1})
    assert [[(one.desk, one.row) for one in batch] for batch in batches] == [[(7, 2), (7, 3)], [(9, 0), (9, 1)], [(4, 0)], [(4, 2)]]


def test_rows_that_cannot_even_be_sorted_fail_and_the_next_operation_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with group_of(1) as groups:
        batches = _collectives._batches
        failures = iter([RuntimeError("out of order")])

        def failing(*arguments: Any) -> Any:
            for failure in failures:
                raise failure
            return batches(*arguments)

        monkeypatch.setattr(_collectives, "_batches", failing)
        with pytest.raises(trimwire.TransportError, match="RuntimeError: out of order"):
            groups[0].on_gpu().all_reduce(part(0)).wait(10)
        tensor = part(0)
        groups[0].on_gpu().all_reduce(tensor).wait(10)
        assert (tensor == part(0)).all() and settled(groups[0])


def _training(rank: int, world: int, codecs: list[str]) -> dict[str, Any]:
    import datetime

    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import trimwire.torch

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=200))
    found: dict[str, Any] = {"launched": 0}
    run = trimwire.cuda.Encoder.run

    def counted(self: Any, *arguments: Any) -> Any:
        found["launched"] += 1
        return run(self, *arguments)

    trimwire.cuda.Encoder.run = counted  # type: ignore[method-assign]

    # Replicas are equal only where all ranks code alike.
    alike = len(set(codecs)) == 1

    def train(way: str) -> torch.Tensor:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 2)).to(DEVICE if codecs[rank] == "triton" else "cpu")
        group = None if way != "backend" else dist.new_group(backend="trimwire")
        model = DistributedDataParallel(model, process_group=group)
        hook = hooked(model, options={"codec": codecs[rank], "give_up": 100.0, "consistent": alike, "planes": 9}) if way == "hook" else None
        optimiser = torch.optim.SGD(model.parameters(), lr=0.2)
        for step in range(2):
            x = torch.randn(16, 12, generator=torch.Generator().manual_seed(10 * step + rank)).to(next(model.parameters()).device)
            optimiser.zero_grad()
            (model(x) - x[:, :2]).square().mean().backward()
            optimiser.step()
        if hook is not None:
            assert hook.stats()["packets_received"] > 0
            hook.close()
        weights = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).cpu()
        if way == "backend":
            assert group.stats()["failed"] == 0
            found["shards"] = scattered(group)
            group.shutdown()
        return weights

    def scattered(group: Any) -> float:
        device = DEVICE if codecs[rank] == "triton" else "cpu"
        output = torch.empty(LENGTH // world, device=device)
        dist.reduce_scatter_tensor(output, part(rank).to(device), group=group)
        return trimwire.nmse(output.cpu().numpy(), np.split(exact(world), world)[rank])

    with trimwire.torch.options(gradients="lossy", codec=codecs[rank], smallest=200, give_up=100.0, consistent=alike, planes=9):
        for way in ("gloo", "hook", "backend"):
            found[way] = train(way).numpy()
    dist.barrier()
    return found


@pytest.mark.parametrize("codecs", [["triton", "triton"], ["triton", "host"]], ids=["all on GPUs", "one on the host"])
def test_hook_and_backend_train_as_gloo_does_where_buckets_are_on_a_gpu(codecs: list[str]) -> None:
    results = run(_training, 2, codecs, timeout=400)
    for codec, found in zip(codecs, results, strict=True):
        assert (found["launched"] > 0) == (codec == "triton")
        for way in ("hook", "backend"):
            assert trimwire.nmse(found[way], found["gloo"]) < 1e-8, way
        assert found["shards"] < 1e-8
    if codecs[1] == "triton":
        assert (results[0]["hook"] == results[1]["hook"]).all(), "the same packets are the same bits"


def _mixed(rank: int, world: int) -> str:
    import datetime

    import torch.distributed as dist

    import trimwire.torch

    with trimwire.torch.options(codec=("host", "triton")[rank], consistent=True), pytest.raises(RuntimeError) as raised:
        dist.init_process_group("trimwire", timeout=datetime.timedelta(seconds=100))
    return str(raised.value)


def test_consistent_replicas_that_would_code_differently_are_refused_by_name() -> None:
    for text in run(_mixed, 2, timeout=200):
        assert "rank 1 codes with triton, rank 0 with host: consistent replicas need all ranks to code alike" in text


def test_kernels_that_give_other_packets_than_the_host_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from trimwire.torch import _device

    monkeypatch.setattr(_device, "_said", set())
    try:
        _device._fault.cache_clear()
        assert _device._fault(DEVICE) is None and _device.codec_of("triton") == "triton"
        right = trimwire.cuda.Encoder.to_bytes
        monkeypatch.setattr(trimwire.cuda.Encoder, "to_bytes", lambda encoder: [packet[:-1] + bytes([packet[-1] ^ 1]) for packet in right(encoder)])
        _device._fault.cache_clear()
        with pytest.raises(RuntimeError, match="other packets than the host"):
            _device.codec_of("triton")
        monkeypatch.setattr(_device.torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(_device.torch.cuda, "is_initialized", lambda: False)
        monkeypatch.setattr(_device.torch.cuda, "device_count", lambda: 4)
        monkeypatch.setenv("LOCAL_RANK", "6")
        monkeypatch.setattr(_device, "_fault", lambda card: f"the kernels do not run on {card}")
        with pytest.warns(RuntimeWarning, match="encoded and decoded there: the kernels do not run on cuda:2"):
            assert _device.codec_of("auto") == "host"
    finally:
        monkeypatch.undo()
        _device._fault.cache_clear()


def test_a_card_that_cannot_run_the_kernels_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from trimwire.torch import _device

    def failing(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("out of resource: shared memory")

    monkeypatch.setattr(trimwire.cuda.Encoder, "run", failing)
    try:
        _device._fault.cache_clear()
        assert _device._fault(DEVICE) == "the kernels do not run (RuntimeError: out of resource: shared memory)"
    finally:
        _device._fault.cache_clear()
