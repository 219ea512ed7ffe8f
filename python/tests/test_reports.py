# SPDX-License-Identifier: Apache-2.0
"""What people have reported of PyTorch's other backends in public, on this one: each by the report's number (docs/reference/python.md has the table)."""

from __future__ import annotations

import datetime
import gc
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from ranks import hooked, run  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import trimwire.torch  # noqa: E402, F401 - it makes the backend known

#: Each is called on both of two ranks, in this order, and says what is wrong, or nothing.
REPORTS: dict[str, Callable[[int], Any]] = {}


def report(number: str) -> Callable[[Callable[[int], Any]], Callable[[int], Any]]:
    def keep(function: Callable[[int], Any]) -> Callable[[int], Any]:
        REPORTS[number] = function
        return function

    return keep


def soon(done: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.005)
    return done()


@report("pytorch#94819")
def tags_find_their_messages_whatever_was_posted_first(rank: int) -> Any:
    ones, zeros = torch.ones(10_000), torch.zeros(10_000)
    if rank == 0:
        dist.send(ones, 1, tag=1)
        # Tag 2 depends on tag 1, which the other has asked for after it.
        dist.recv(torch.empty(1), 1, tag=3)
        dist.send(zeros, 1, tag=2)
        return None
    second, first = torch.full((10_000,), 7.0), torch.full((10_000,), 7.0)
    later, sooner = dist.irecv(second, 0, tag=2), dist.irecv(first, 0, tag=1)
    sooner.wait()
    dist.send(torch.ones(1), 0, tag=3)
    later.wait()
    return None if torch.equal(first, ones) and torch.equal(second, zeros) else (first[0], second[0])


@report("pytorch#109401")
def sends_and_receives_may_be_interleaved(rank: int) -> Any:
    other, works, got = 1 - rank, [], []
    for number in range(4):
        received = torch.empty(1)
        send, receive = (lambda: dist.isend(torch.tensor([float(10 * rank + number)]), other)), (lambda: dist.irecv(received, other))  # noqa: B023
        works += [send(), receive()] if rank == 0 else [receive(), send()]
        got.append(received)
    for work in works:
        work.wait()
    values = [float(one) for one in got]
    return None if values == [10.0 * other + number for number in range(4)] else values


@report("pytorch#30723")
def what_was_sent_is_there_without_a_wait(rank: int) -> Any:
    got = torch.zeros(1)
    work = dist.isend(torch.ones(1), 1) if rank == 0 else dist.irecv(got, 0)
    ended = soon(work.is_completed)
    seen = float(got)
    work.wait()
    return None if ended and (rank == 0 or seen == 1.0) else f"completed: {ended}, received {seen}"


@report("pytorch#192920")
def tensors_with_gaps_are_sent_as_what_they_are(rank: int) -> Any:
    def strided(value: float) -> torch.Tensor:
        return torch.tensor([value]).expand(2, 2).tril().contiguous()[:, 0]

    given, total, part = strided(rank + 1.0), strided(rank + 1.0), strided(0.0)
    dist.broadcast(given, 0)
    dist.reduce(total, 0)
    dist.scatter(part, [strided(3.0), strided(4.0)] if rank == 0 else None, src=0)
    got = [given.tolist(), total.tolist() if rank == 0 else None, part.tolist()]
    return None if got == [[1.0, 1.0], [3.0, 3.0] if rank == 0 else None, [rank + 3.0] * 2] else got


@report("pytorch#21480")
def a_sum_for_one_rank_leaves_the_others_tensors_alone(rank: int) -> Any:
    own = torch.full((100_000,), rank + 1.0)
    dist.reduce(own, 0)
    return None if bool((own == (3.0 if rank == 0 else 2.0)).all()) else own[0]


@report("pytorch#85234")
def nothing_at_all_may_be_gathered(rank: int) -> Any:
    lists = [torch.ones(1, 0, 2) for _ in range(2)]
    dist.all_gather(lists, torch.ones(1, 0, 2))
    return None if all(one.shape == (1, 0, 2) for one in lists) else lists


@report("pytorch#129868")
def groups_that_have_ended_hold_no_descriptors(rank: int) -> Any:
    def one() -> int:
        group = dist.new_group()
        dist.all_reduce(torch.ones(10), group=group)
        dist.destroy_process_group(group)
        del group
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    # Each would hold one, and some threads of the last may not have ended yet.
    counts = [one() for _ in range(9)]
    return None if soon(lambda: len(os.listdir("/proc/self/fd")) <= counts[0] + 4) else counts


@report("pytorch#60611")
def ranks_may_have_more_batches_than_others_with_a_hook(rank: int) -> Any:
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Linear(3, 1))
    state = hooked(model, local_size=1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for _ in range(2 + 3 * rank):
            optimiser.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            optimiser.step()
    state.close()
    weights = [torch.empty_like(model.module.weight) for _ in range(2)]
    dist.all_gather(weights, model.module.weight.detach())
    return None if torch.equal(*weights) else weights


@report("gloo#456")
def tensors_of_different_sizes_are_an_error_that_says_so(rank: int) -> Any:
    group = dist.new_group(timeout=datetime.timedelta(seconds=20))
    said = ""
    try:
        dist.all_reduce(torch.ones(1_000 + 2_000 * rank), group=group)
    except dist.DistError as error:
        said = str(error)
    return None if "length" in said or "elements" in said else said or "no error"


@report("pytorch#55967")
def a_group_is_made_anew_with_the_same_store(rank: int) -> Any:
    store = dist.distributed_c10d._get_default_store()
    backend = dist.get_backend()
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group(backend, store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=30))
    got = torch.ones(3)
    dist.all_reduce(got)
    return None if bool((got == 2.0).all()) else got


@report("pytorch#130345")
def a_rank_that_gives_up_does_not_wait_for_timeouts(rank: int) -> Any:
    dist.barrier()
    if rank == 1:
        return None
    work = dist.all_reduce(torch.ones(10), async_op=True)
    start = time.monotonic()
    dist.distributed_c10d._abort_process_group()
    try:
        work.wait()
        return "no error"
    except RuntimeError:
        took = time.monotonic() - start
        return None if took < 10.0 else f"{took} s"


def reported(rank: int, world: int, backend: str, numbers: tuple[str, ...]) -> dict[str, Any]:
    torch.set_num_threads(1)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=30))
    said = {}
    for number in numbers:
        try:
            said[number] = REPORTS[number](rank)
        except Exception as error:
            said[number] = f"{type(error).__name__}: {error}"
    return said


@pytest.fixture(scope="module")
def said() -> list[dict[str, Any]]:
    return run(reported, 2, "trimwire", tuple(REPORTS))


@pytest.mark.parametrize("number", REPORTS)
def test_reports(said: list[dict[str, Any]], number: str) -> None:
    assert [one[number] for one in said] == [None, None]
