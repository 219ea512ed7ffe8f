# SPDX-License-Identifier: Apache-2.0
"""Every call of torch.distributed, on the backend and on Gloo side by side: bit for bit."""

from __future__ import annotations

import datetime
import os
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from ranks import run  # noqa: E402

import trimwire.torch  # noqa: E402

#: Custom backends in Python may be mixed with others from here on.
MIXES = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 15)

Group = Any
Call = Callable[[int, int, Group], Any]
CALLS: dict[str, Call] = {}


def call(function: Call) -> Call:
    CALLS[function.__name__] = function
    return function


def values(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers, of which every order of additions gives the same sum in any type."""
    generator = torch.Generator().manual_seed(1_000 + rank)
    numbers = torch.randint(1, 5, shape, generator=generator)
    return (numbers % 2).bool() if dtype == torch.bool else numbers.to(dtype)


def _reductions() -> None:
    for op in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8):
            if op == "AVG" and not dtype.is_floating_point:
                continue

            def one(rank: int, world: int, group: Group, op: str = op, dtype: torch.dtype = dtype) -> Any:
                got = values(rank, 1_001, dtype=dtype)
                # Gloo has no mean.
                if op == "AVG" and dist.get_backend(group) == "gloo":
                    dist.all_reduce(got, group=group)
                    return got / world
                dist.all_reduce(got, op=getattr(dist.ReduceOp, op), group=group)
                return got

            CALLS[f"all_reduce_{op}_{str(dtype).removeprefix('torch.')}"] = one
    for op in ("BAND", "BOR", "BXOR"):

        def bits(rank: int, world: int, group: Group, op: str = op) -> Any:
            got = values(rank, 100, dtype=torch.int32)
            dist.all_reduce(got, op=getattr(dist.ReduceOp, op), group=group)
            return got

        CALLS[f"all_reduce_{op}"] = bits


_reductions()


@call
def all_reduce_large(rank: int, world: int, group: Group) -> Any:
    # What was taken for a gradient: a confusion matrix, averaged parameters.
    got = values(rank, 300, 300) * 1.25
    dist.all_reduce(got, group=group)
    return got


@call
def all_reduce_complex(rank: int, world: int, group: Group) -> Any:
    got = torch.complex(values(rank, 50), values(rank + 10, 50))
    dist.all_reduce(got, group=group)
    return got


@call
def all_reduce_transposed(rank: int, world: int, group: Group) -> Any:
    got = values(rank, 20, 30).t()
    dist.all_reduce(got, group=group)
    return got


@call
def all_reduce_scalar(rank: int, world: int, group: Group) -> Any:
    got = torch.tensor(float(rank))
    dist.all_reduce(got, group=group)
    return got


@call
def all_reduce_empty(rank: int, world: int, group: Group) -> Any:
    got = torch.empty(0)
    dist.all_reduce(got, group=group)
    return got


@call
def all_reduce_async(rank: int, world: int, group: Group) -> Any:
    tensors = [values(rank, 5_000) * (nth + 1) for nth in range(4)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    assert all(work.is_completed() for work in works)
    return tensors


@call
def all_reduce_coalesced(rank: int, world: int, group: Group) -> Any:
    tensors = [values(rank, 10), values(rank, 2, 3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.all_reduce_coalesced(tensors, group=group)
    return tensors


@call
def coalescing_manager(rank: int, world: int, group: Group) -> Any:
    tensors = [values(rank, 10) * nth for nth in range(3)]
    if dist.get_backend(group) == "gloo":
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
        return tensors
    with dist._coalescing_manager(group, device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    manager.wait()
    return tensors


@call
def get_future(rank: int, world: int, group: Group) -> Any:
    got = values(rank, 30)
    return dist.all_reduce(got, group=group, async_op=True).get_future().then(lambda future: future.value()[0] * 2).wait()


@call
def a_callback_that_waits(rank: int, world: int, group: Group) -> Any:
    def again(future: Any) -> torch.Tensor:
        got = future.value()[0]
        dist.all_reduce(got, group=group)
        return got + 0

    got = [values(rank, 30) for _ in range(3)]
    return [dist.all_reduce(one, group=group, async_op=True).get_future().then(again).wait() for one in got]


def _by_type() -> None:
    for dtype in (torch.float32, torch.float64, torch.int8, torch.bool, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")

        def broadcast(rank: int, world: int, group: Group, dtype: torch.dtype = dtype) -> Any:
            got = values(rank, 7, dtype=dtype)
            dist.broadcast(got, src=world - 1, group=group)
            return got

        def all_gather(rank: int, world: int, group: Group, dtype: torch.dtype = dtype) -> Any:
            got = [torch.empty(7, dtype=dtype) for _ in range(world)]
            dist.all_gather(got, values(rank, 7, dtype=dtype), group=group)
            return got

        def all_gather_into_tensor(rank: int, world: int, group: Group, dtype: torch.dtype = dtype) -> Any:
            got = torch.empty(7 * world, dtype=dtype)
            dist.all_gather_into_tensor(got, values(rank, 7, dtype=dtype), group=group)
            return got

        for function in (broadcast, all_gather, all_gather_into_tensor):
            CALLS[f"{function.__name__}_{name}"] = function


_by_type()


@call
def all_gather_uneven(rank: int, world: int, group: Group) -> Any:
    got = [torch.empty(3 * (other + 1)) for other in range(world)]
    if dist.get_backend(group) == "gloo":
        # Gloo wants one size.
        return [values(other, 3 * (other + 1)) for other in range(world)]
    dist.all_gather(got, values(rank, 3 * (rank + 1)), group=group)
    return got


@call
def all_gather_coalesced(rank: int, world: int, group: Group) -> Any:
    lists = [[torch.empty(7), torch.empty(3, 5)] for _ in range(world)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.all_gather_coalesced(lists, [values(rank, 7), values(rank, 3, 5)], group=group)
    return [tensor for tensors in lists for tensor in tensors]


@call
def all_gather_object(rank: int, world: int, group: Group) -> Any:
    got: list[Any] = [None] * world
    dist.all_gather_object(got, {"rank": rank, "text": "x" * rank}, group=group)
    return got


@call
def gather_object(rank: int, world: int, group: Group) -> Any:
    got: list[Any] | None = [None] * world if rank == 0 else None
    dist.gather_object(("of", rank), got, dst=0, group=group)
    return got


@call
def broadcast_object_list(rank: int, world: int, group: Group) -> Any:
    got = ["some", {"thing": world}] if rank == 0 else [None, None]
    dist.broadcast_object_list(got, src=0, group=group)
    return got


@call
def scatter_object_list(rank: int, world: int, group: Group) -> Any:
    got: list[Any] = [None]
    dist.scatter_object_list(got, [f"for {other}" for other in range(world)] if rank == 0 else None, src=0, group=group)
    return got


@call
def reduce(rank: int, world: int, group: Group) -> Any:
    got = values(rank, 100)
    dist.reduce(got, dst=world - 1, group=group)
    # What others have is theirs to define.
    return got if rank == world - 1 else None


@call
def reduce_int64(rank: int, world: int, group: Group) -> Any:
    got = values(rank, 33, dtype=torch.int64)
    dist.reduce(got, dst=0, op=dist.ReduceOp.MAX, group=group)
    return got if rank == 0 else None


@call
def gather(rank: int, world: int, group: Group) -> Any:
    got = [torch.empty(5) for _ in range(world)] if rank == 0 else None
    dist.gather(values(rank, 5), got, dst=0, group=group)
    return got


@call
def scatter(rank: int, world: int, group: Group) -> Any:
    got = torch.empty(5, dtype=torch.uint8)
    dist.scatter(got, [values(other, 5, dtype=torch.uint8) for other in range(world)] if rank == world - 1 else None, src=world - 1, group=group)
    return got


@call
def reduce_scatter_list(rank: int, world: int, group: Group) -> Any:
    got = torch.empty(9)
    if dist.get_backend(group) == "gloo":
        # Gloo's came late.
        whole = values(rank, world, 9)
        dist.all_reduce(whole, group=group)
        return whole[rank]
    dist.reduce_scatter(got, list(values(rank, world, 9).unbind()), group=group)
    return got


@call
def reduce_scatter_tensor(rank: int, world: int, group: Group) -> Any:
    got = torch.empty(40_000)
    dist.reduce_scatter_tensor(got, values(rank, world * 40_000), group=group)
    return got


@call
def reduce_scatter_tensor_int64(rank: int, world: int, group: Group) -> Any:
    got = torch.empty(5, dtype=torch.int64)
    dist.reduce_scatter_tensor(got, values(rank, world * 5, dtype=torch.int64), op=dist.ReduceOp.SUM, group=group)
    return got


@call
def all_to_all(rank: int, world: int, group: Group) -> Any:
    got = [torch.empty(3, 2) for _ in range(world)]
    if dist.get_backend(group) == "gloo":
        return [values(other * world + rank, 3, 2) for other in range(world)]
    dist.all_to_all(got, [values(rank * world + other, 3, 2) for other in range(world)], group=group)
    return got


@call
def all_to_all_single(rank: int, world: int, group: Group) -> Any:
    got = torch.empty(world * 2, 3)
    dist.all_to_all_single(got, values(rank, world * 2, 3), group=group)
    return got


@call
def all_to_all_single_uneven(rank: int, world: int, group: Group) -> Any:
    # From rank r to rank k: r + k rows of three bytes, none from 0 to 0.
    sends = [rank + other for other in range(world)]
    got = torch.empty(sum(sends), 3, dtype=torch.uint8)
    dist.all_to_all_single(got, values(rank, sum(sends), 3, dtype=torch.uint8), sends, sends, group=group)
    return got


@call
def send_and_recv(rank: int, world: int, group: Group) -> Any:
    got = torch.zeros(5)
    if rank == 0:
        for other in range(1, world):
            dist.send(values(other, 5), dst=other, group=group)
        return None
    source = dist.recv(got, src=0, group=group)
    return got, source


@call
def around_the_ring(rank: int, world: int, group: Group) -> Any:
    got = torch.zeros(1_000, dtype=torch.int16)
    works = [dist.isend(values(rank, 1_000, dtype=torch.int16), dst=(rank + 1) % world, group=group), dist.irecv(got, src=(rank - 1) % world, group=group)]
    for work in works:
        work.wait()
    return got


@call
def tags(rank: int, world: int, group: Group) -> Any:
    if rank == 0:
        works = [dist.isend(torch.tensor([float(tag)]), dst=1, tag=tag, group=group) for tag in (1, 2, 3)]
        for work in works:
            work.wait()
        return None
    if rank > 1:
        return None
    got = []
    for tag in (3, 1, 2):
        one = torch.zeros(1)
        dist.recv(one, src=0, tag=tag, group=group)
        got.append(one)
    return got


@call
def a_tag_that_comes_later_holds_no_other_back(rank: int, world: int, group: Group) -> Any:
    answer = torch.zeros(1)
    if rank == 0:
        dist.send(torch.tensor([1.0]), dst=1, tag=1, group=group)
        dist.recv(answer, src=1, group=group)
        dist.send(answer + 1.0, dst=1, tag=2, group=group)
    if rank == 1:
        two, one = torch.zeros(1), torch.zeros(1)
        later, first = dist.irecv(two, src=0, tag=2, group=group), dist.irecv(one, src=0, tag=1, group=group)
        first.wait()
        dist.send(one, dst=0, group=group)
        later.wait()
        return one, two
    return None


@call
def recv_from_anybody(rank: int, world: int, group: Group) -> Any:
    if rank:
        dist.send(torch.tensor([float(rank)]), dst=0, group=group)
        return None
    got = []
    for _ in range(world - 1):
        one = torch.zeros(1)
        source = dist.recv(one, group=group)
        assert int(one) == source, (one, source)
        got.append(float(one))
    return sorted(got)


@call
def batch_isend_irecv(rank: int, world: int, group: Group) -> Any:
    got = torch.zeros(64)
    operations = [dist.P2POp(dist.isend, values(rank, 64), (rank + 1) % world, group), dist.P2POp(dist.irecv, got, (rank - 1) % world, group)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return got


@call
def send_object_list(rank: int, world: int, group: Group) -> Any:
    got: list[Any] = [None]
    if rank == 0:
        dist.send_object_list([{"a": 1}], dst=1, group=group)
    elif rank == 1:
        dist.recv_object_list(got, src=0, group=group)
    return got


@call
def barrier(rank: int, world: int, group: Group) -> Any:
    dist.barrier(group=group)
    return None


@call
def subgroup(rank: int, world: int, group: Group) -> Any:
    half = dist.new_group(list(range(world // 2, world)), backend=dist.get_backend(group))
    if rank < world // 2:
        return None
    got = values(rank, 10)
    dist.all_reduce(got, group=half)
    dist.broadcast(got, src=world - 1, group=half)
    names = dist.get_process_group_ranks(half)
    dist.destroy_process_group(half)
    return got, names


@call
def functional(rank: int, world: int, group: Group) -> Any:
    import torch.distributed._functional_collectives as collectives

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summed = collectives.all_reduce(values(rank, 12), "sum", group)
        gathered = collectives.all_gather_tensor(values(rank, 3), 0, group)
    return summed + 0, gathered + 0


def _bits(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return [str(result.dtype), list(result.shape), result.detach().reshape(-1).tolist()]
    if isinstance(result, list | tuple):
        return [_bits(part) for part in result]
    return result


#: PyTorch's handles of a Backend in Python do not tell these (PyWorkHolder): whether a work is completed, and who sent what was received from anybody.
UNTOLD = {"all_reduce_async", "recv_from_anybody"}


def side_by_side(rank: int, world: int, names: str) -> dict[str, str]:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    limit = datetime.timedelta(seconds=100)
    dist.init_process_group("gloo", timeout=limit)
    ours, theirs = dist.new_group(backend=names, timeout=limit), dist.group.WORLD
    differing = {}
    for name, function in CALLS.items():
        if "," in names and name in UNTOLD:
            continue
        got: list[Any] = []
        for group in (theirs, ours):
            # Who receives from anybody would take what is sent to it by the next call.
            dist.barrier()
            try:
                got.append(_bits(function(rank, world, group)))
            except Exception:
                got.append(traceback.format_exc())
        if got[0] != got[1] or isinstance(got[1], str):
            differing[name] = f"Gloo: {got[0]}\nTrimwire: {got[1]}"
    dist.barrier()
    dist.destroy_process_group()
    return differing


@pytest.mark.parametrize(("world", "names"), [(2, "trimwire"), (4, "trimwire"), (2, "cuda:gloo,cpu:trimwire")])
def test_every_call_gives_what_gloo_gives(world: int, names: str) -> None:
    if not MIXES and "," in names:
        pytest.skip("SKIPPED: backends in Python can be mixed with others from PyTorch 2.15 on")
    assert len(CALLS) >= 70
    for rank, differing in enumerate(run(side_by_side, world, names)):
        text = "\n".join(f"{name}\n{what}" for name, what in differing.items())
        assert not differing, f"rank {rank} of {world}: {len(differing)} of {len(CALLS)}\n{text}"


def as_the_default(rank: int, world: int) -> Any:
    torch.set_num_threads(1)
    dist.init_process_group("trimwire", timeout=datetime.timedelta(seconds=40))
    before = trimwire.torch.of()._get_sequence_number_for_group()
    got = values(rank, 40_000) * 1.0001
    dist.all_reduce(got)
    total = values(0, 40_000) * 1.0001
    for other in range(1, world):
        total += values(other, 40_000) * 1.0001
    after = trimwire.torch.of()._get_sequence_number_for_group()
    name = dist.get_backend()
    dist.barrier()
    dist.destroy_process_group()
    return torch.equal(got, total), after - before, name


def test_a_default_backend_is_exact_and_counts_its_operations() -> None:
    assert run(as_the_default, 3) == [(True, 1, "trimwire")] * 3


def mixed(rank: int, world: int, names: str) -> Any:
    torch.set_num_threads(1)
    try:
        dist.init_process_group(names, timeout=datetime.timedelta(seconds=40))
    except RuntimeError as error:
        return str(error)
    got = torch.full((100,), rank + 1.0)
    dist.all_reduce(got)
    dist.barrier()
    served = type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__
    sent = trimwire.torch.of().stats()["operations"]
    dist.destroy_process_group()
    return got[0].item(), served, sent > 0


@pytest.mark.parametrize("names", ["cpu:gloo,cuda:trimwire", "cuda:trimwire,cpu:gloo", "cpu:trimwire"])
def test_each_device_has_the_backend_that_was_named_for_it(names: str) -> None:
    for result in run(mixed, 2, names):
        if not MIXES and "gloo" in names:
            assert "mixed with others from PyTorch 2.15 on" in result
        elif "gloo" in names:
            assert result == (3.0, "ProcessGroupGloo", False)
        else:
            assert result[0] == 3.0 and result[2]


def detailed(rank: int, world: int, names: str) -> Any:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    dist.set_debug_level_from_env()
    try:
        dist.init_process_group(names, timeout=datetime.timedelta(seconds=40))
    except RuntimeError as error:
        return str(error)
    model = DistributedDataParallel(nn.Linear(10, 10))
    model(torch.full((2, 10), rank + 1.0)).sum().backward()
    gradient = model.module.weight.grad[0, 0].item()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if MIXES:
            dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=7))
        else:
            # Earlier PyTorch sets it for the names 'gloo' and 'nccl'.
            trimwire.torch.of().set_timeout(datetime.timedelta(seconds=7))
    timeout = trimwire.torch.of().timeout.total_seconds()
    dist.barrier()
    dist.destroy_process_group()
    return gradient, timeout


@pytest.mark.parametrize("names", ["trimwire", "cuda:gloo,cpu:trimwire"])
def test_models_train_under_pytorchs_debugging_and_timeouts_can_be_set(names: str) -> None:
    if not MIXES and "," in names:
        pytest.skip("SKIPPED: backends in Python can be mixed with others from PyTorch 2.15 on")
    results = run(detailed, 2, names)
    if "," in names:
        # The store is rank 0's, and gone with it.
        assert "DETAIL does not go with 'trimwire' beside gloo" in results[0]
    else:
        assert results == [(3.0, 7.0)] * 2


def late(rank: int, world: int, how: str) -> Any:
    torch.set_num_threads(1)
    limit = 30.0 if how == "set" else 2.0
    dist.init_process_group("trimwire", timeout=datetime.timedelta(seconds=limit))
    dist.barrier()
    store = dist.distributed_c10d._get_default_store()
    if how == "set":
        trimwire.torch.of().set_timeout(datetime.timedelta(seconds=2.0))
    if rank == world - 1:
        # Is well, and does not come.
        while not all(store.check([f"over {other}"]) for other in range(world - 1)):
            time.sleep(0.05)
        # The store is rank 0's.
        store.set("seen", b"")
        return None
    begun = time.monotonic()
    got = torch.ones(100)
    try:
        if how == "future":
            dist.all_reduce(got, async_op=True).get_future().wait()
        else:
            dist.all_reduce(got)
    except RuntimeError as error:
        took = time.monotonic() - begun
        said = str(error), isinstance(error, dist.DistError), isinstance(error, trimwire.TransportError), getattr(error, "rank", None), took
        return said
    else:
        return "no error"
    finally:
        store.set(f"over {rank}", b"")
        if rank == 0:
            store.get("seen")


@pytest.mark.parametrize("how", ["group", "set", "future"])
def test_a_rank_that_does_not_come_is_named_when_the_groups_time_is_over(how: str) -> None:
    first, second, _ = run(late, 3, how)
    for text, is_dist, is_ours, rank, took in (first, second):
        assert "rank 2" in text and "all_reduce of 100 × float32" in text, text
        # What C++ passes on loses its type, and has no stack in its text.
        assert "File \"" not in text and "At:" not in text, text
        if how != "future":
            assert is_dist and is_ours and rank == 2, (text, rank)
        assert 1.5 < took < 12.0, took


def missing(rank: int, world: int) -> Any:
    dist.init_process_group("trimwire", timeout=datetime.timedelta(seconds=30))
    ours = trimwire.torch.of()
    if MIXES:
        dist.monitored_barrier()
    else:
        # Earlier PyTorch has it for the name 'gloo'.
        ours.monitored_barrier()
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.get("over")
        store.set("seen", b"")
        return None
    options = dist.BarrierOptions()
    options.timeout = datetime.timedelta(seconds=0.5)
    try:
        ours.monitored_barrier(options)
        return "no error"
    except dist.DistError as error:
        return str(error)
    finally:
        if rank == 0:
            store.get("heard")
            store.set("over", b"")
            store.get("seen")
        else:
            store.set("heard", b"")


def test_a_monitored_barrier_names_who_is_missing() -> None:
    for said in run(missing, 3)[::2]:
        assert "Rank 1 failed to pass monitoredBarrier in 0.5 s" in said


def dead(rank: int, world: int) -> Any:
    torch.set_num_threads(1)
    dist.init_process_group("trimwire", timeout=datetime.timedelta(seconds=60), pg_options=trimwire.torch.Options(give_up=1.0))
    dist.barrier()
    if rank == 1:
        time.sleep(0.3)  # Others have what it has sent.
        os._exit(7)
    try:
        dist.all_reduce(torch.ones(1_000))
        return "no error"
    except dist.DistError as error:
        return error.rank, str(error), isinstance(error, trimwire.torch.CollectiveError)  # type: ignore[attr-defined]


def test_a_dead_rank_is_a_dist_error_with_its_number() -> None:
    for blamed, text, ours in run(dead, 3, dying=1):
        assert blamed == 1 and ours and "rank 1" in text and "doctor" in text, text


def aborted(rank: int, world: int) -> Any:
    torch.set_num_threads(1)
    dist.init_process_group("trimwire", timeout=datetime.timedelta(seconds=60))
    dist.barrier()
    if rank == 0:
        work = dist.all_reduce(torch.ones(10), async_op=True)
        receiving = dist.irecv(torch.ones(10), src=1)
        trimwire.torch.of().abort()
        said = []
        for one in (work, receiving):
            try:
                one.wait()
                said.append("no error")
            except dist.DistError as error:
                said.append(str(error))
        return said
    return None


def test_what_is_under_way_fails_when_a_group_is_aborted() -> None:
    said, _ = run(aborted, 2)
    assert "cancelled" in said[0] and "closed" in said[1], said


def on_a_group(rank: int, world: int) -> Any:
    torch.set_num_threads(1)
    dist.init_process_group("trimwire", timeout=datetime.timedelta(seconds=60))
    group = trimwire.torch.of()
    own = torch.full((8,), float(rank + 1))
    total, largest, given = own.clone(), own.clone(), own.clone()
    everybody = [torch.zeros(8) for _ in range(world)]
    for work in (group.allreduce(total), group.allreduce(largest, dist.ReduceOp.MAX), group.broadcast(given, root=1), group.allgather(everybody, own)):
        work.wait()
    said = []
    for wrong in (lambda: group.allreduce([]), lambda: group.broadcast(own, root=world), lambda: group.reduce(own, -1)):
        try:
            wrong()
        except ValueError as error:
            said.append(str(error))
    if MIXES:
        # Older ones refuse before they ask.
        try:
            dist.split_group(split_ranks=[[0], [1]])
        except NotImplementedError as error:
            said.append(str(error))
    dist.barrier()
    dist.destroy_process_group()
    return [float(tensor[0]) for tensor in (total, largest, given, *everybody)], said


def test_who_calls_a_group_itself_gives_tensors_in_lists_or_not() -> None:
    for got, said in run(on_a_group, 2):
        assert got == [3.0, 2.0, 2.0, 1.0, 2.0]
        assert said == [
            "trimwire: requires non-empty tensor list",
            "trimwire: invalid root rank: 2; there are 2 ranks",
            "trimwire: invalid root rank: -1; there are 2 ranks",
            *(["trimwire: split_group is not there; dist.new_group(ranks) makes a group of some ranks"] if MIXES else []),
        ]


def lossy(rank: int, world: int) -> Any:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    exact = dist.new_group(backend="trimwire")
    chosen = dist.new_group(backend="trimwire", pg_options=trimwire.torch.Options(gradients="lossy", planes=9))
    generator = torch.Generator().manual_seed(rank)
    own = torch.randn(50_000, generator=generator)
    got = []
    for group in (dist.group.WORLD, exact, chosen):
        tensor = own.clone()
        dist.all_reduce(tensor, group=group)
        got.append(tensor)
    dist.barrier()
    dist.destroy_process_group()
    return torch.equal(got[0], got[1]), torch.equal(got[0], got[2]), trimwire.nmse(got[2], got[0])


def at_once(rank: int, world: int, count: int) -> Any:
    torch.set_num_threads(1)
    dist.init_process_group("trimwire", timeout=datetime.timedelta(seconds=60))
    tensors = [torch.full((1_000,), float(rank + number % 7)) for number in range(count)]
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()
    expected = [sum(other + number % 7 for other in range(world)) for number in range(count)]
    wrong = [number for number, tensor in enumerate(tensors) if not bool(torch.all(tensor == expected[number]))]
    # What has not begun when a group ends is told, too.
    late = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(200)] if rank == 0 else []
    said = set()
    if rank == 0:
        trimwire.torch.of().abort()
    for work in late:
        try:
            work.wait()
        except dist.DistError as error:
            said.add("cancelled" in str(error) or "closed" in str(error))
    return wrong, said


def test_thousands_of_operations_at_once_end_with_the_right_sums() -> None:
    (wrong, said), (others, _) = run(at_once, 2, 3_000)
    assert not wrong and not others and said == {True}, (wrong[:5], others[:5], said)


def test_losing_is_what_a_group_asks_for() -> None:
    for as_gloo, lossy_too, error in run(lossy, 2):
        assert as_gloo and not lossy_too and error < 1e-8


def test_options_that_there_are_not_and_values_that_cannot_be_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="'plane' is no option \\(planes is one\\)"):
        trimwire.torch.options(plane=9)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="planes: 42; valid are whole numbers from 1 to 10"):
        trimwire.torch.options(planes=42)
    with pytest.raises(TypeError, match=r"'port' is an option of the network: network=\{'port': …\}"):
        trimwire.torch.options(port=9)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'prot' is no option of the network \\(port is one\\)"):
        trimwire.torch.options(network={"prot": 9})
    with pytest.raises(ValueError, match="paths: 0; valid are whole numbers from 1 to 256"):
        trimwire.torch.options(network={"paths": 0})
    with pytest.raises(ValueError, match="gradients: 'trimmed'; valid are 'exact', 'lossy'"):
        trimwire.torch.Options(gradients="trimmed")
    from trimwire.torch import _options

    monkeypatch.setenv("TRIMWIRE_GIVE_UP", "2.5")
    monkeypatch.setenv("TRIMWIRE_GRADIENTS", "lossy")
    monkeypatch.setenv("TRIMWIRE_CONSISTENT", "1")
    monkeypatch.setenv("TRIMWIRE_RATE_BPS", "1000000")
    there = _options.from_environment()
    assert (there.give_up, there.gradients, there.consistent, there.network.rate_bps) == (2.5, "lossy", True, 1_000_000)
    monkeypatch.setenv("TRIMWIRE_PLANES", "42")
    with pytest.raises(ValueError, match="TRIMWIRE_PLANES=42: planes: 42; valid are whole numbers from 1 to 10"):
        _options.from_environment()
    monkeypatch.delenv("TRIMWIRE_PLANES")
    secret = tmp_path / "job.key"
    monkeypatch.setenv("TRIMWIRE_SEAL_KEY", str(secret))
    with pytest.raises(ValueError, match=r"TRIMWIRE_SEAL_KEY=.*job.key: No such file or directory; valid are names of files"):
        _options.from_environment()
    for wrong, said in (((b"5ec4e7" * 3)[:15], "15"), (b"5ec4e7" * 6, "more than 32")):
        secret.write_bytes(wrong)
        with pytest.raises(ValueError, match=f"job.key: {said} bytes; valid are 16 and 32") as raised:
            _options.from_environment()
        assert "5ec4e7" not in str(raised.value), "a secret"
    for length in (16, 32):
        secret.write_bytes(bytes(range(length)))
        there = _options.from_environment()
        assert there._secret == bytes(range(length)) == trimwire.torch.Options(seal_key=bytes(range(length)))._secret
        assert "seal_key" not in repr(there), "a secret"
    with pytest.raises(TypeError, match="pg_options: str; the backend 'trimwire' takes trimwire.torch.Options"):
        _options.given("fast")
    # Keywords for editors are the options.
    assert list(_options.Changes.__annotations__) == list(_options._FIELDS)
