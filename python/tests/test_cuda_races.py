# SPDX-License-Identifier: Apache-2.0
"""Streams, events and pinned memory of `trimwire.cuda` on a GPU that is not there (`fake_gpu`): every access is ordered, and every wait is needed for that.

    TRITON_INTERPRET=1 python -m pytest python/tests/test_cuda_races.py
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import trimwire
from kernels import INTERPRETED, skip_unless_they_run

skip_unless_they_run()
if not INTERPRETED:
    pytest.skip("the GPU that is not there needs Triton's interpreter (TRITON_INTERPRET=1)", allow_module_level=True)

import torch
from fake_gpu import Collectives, FakeGpu
from test_cuda_collectives import group_of

import trimwire.cuda
from trimwire.cuda import _codec, _desk, _tensors


def finished(works: list[trimwire.Work]) -> None:
    for work in works:
        work.wait(120)


def all_reduce(gpu: FakeGpu, device: str = "cuda") -> None:
    """Two steps at the same desks: the second adds up what the first has left."""
    with group_of(2) as groups:
        ranks = [Collectives(gpu, group) for group in groups]
        tensors = [torch.full((120,), 1.0 + rank, device=device) for rank in range(2)]
        for step in range(2):
            for tensor in tensors:
                tensor.mul_(1.0)
            finished([rank.all_reduce(tensor, planes=10) for rank, tensor in zip(ranks, tensors, strict=True)])
            assert all(np.allclose(tensor.tolist(), 3.0 * 2**step, rtol=1e-4) for tensor in tensors)


def other_operations(gpu: FakeGpu) -> None:
    with group_of(2) as groups:
        ranks = [Collectives(gpu, group) for group in groups]
        tensors, shards = [torch.full((120,), 2.0, device="cuda") for _ in ranks], [torch.empty(60, device="cuda") for _ in ranks]
        finished([rank.all_reduce(tensor, consistent=True, average=True) for rank, tensor in zip(ranks, tensors, strict=True)])
        finished([rank.reduce_scatter(tensor, shard) for rank, tensor, shard in zip(ranks, tensors, shards, strict=True)])
        for tensor in tensors:
            tensor.zero_()
        finished([rank.all_gather(shard, tensor) for rank, tensor, shard in zip(ranks, tensors, shards, strict=True)])
        assert all(np.allclose(tensor.tolist(), 4.0, rtol=1e-3) for tensor in tensors)


def a_failure(gpu: FakeGpu) -> None:
    """A launch that fails behind others: who is told of it may do to tensors what he likes."""
    with group_of(2) as groups:
        ranks = [Collectives(gpu, group) for group in groups]
        tensors = [torch.full((120,), 1.0, device="cuda") for _ in ranks]
        finished([rank.all_reduce(tensor) for rank, tensor in zip(ranks, tensors, strict=True)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_desk.Outgoing, "send", lambda outgoing, rows: 1 / 0)
            for work in [rank.all_reduce(tensor) for rank, tensor in zip(ranks, tensors, strict=True)]:
                with pytest.raises(trimwire.TransportError):
                    work.wait(120)
            for tensor in tensors:
                tensor.zero_()


def judged(scenario: Callable[[FakeGpu], None], dropped: str | None = None) -> FakeGpu:
    gpu = FakeGpu(dropped)
    with gpu.installed():
        scenario(gpu)
    return gpu


#: Who waits for what, by the function that does; the waits of each are dropped in the scenario that needs them.
NEEDED = {all_reduce: {"_launch", "_finish"}, a_failure: {"_settle"}}
#: Where no access needs it: kernels are to be ready, and errors to be said, when `compile` returns.
UNNEEDED = {"_placeholders"}


@pytest.mark.parametrize("scenario", NEEDED, ids=lambda scenario: scenario.__name__)
def test_all_accesses_are_ordered_and_without_any_one_of_the_waits_they_are_not(scenario: Callable[[FakeGpu], None]) -> None:
    gpu = judged(scenario)
    assert gpu.races == []
    by_function = {wait: wait.split("(")[1].rstrip(")") for wait in sorted(gpu.waits)}
    assert NEEDED[scenario] <= set(by_function.values()) <= UNNEEDED.union(*NEEDED.values())
    for wait, function in by_function.items():
        if function in NEEDED[scenario]:
            assert judged(scenario, dropped=wait).races, f"nothing is found without {wait}"


def test_consistent_sums_shards_and_gathered_tensors_are_ordered() -> None:
    gpu = judged(other_operations)
    assert gpu.races == [] and gpu.counts["launches"] > 0


def test_plans_of_two_streams_share_nothing_that_is_not_there_yet() -> None:
    def plans(gpu: FakeGpu) -> None:
        # A row of 2^11: the shortest that all tables are read for.
        for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                trimwire.cuda.Encoder([2_048]).encode([torch.zeros(2_048, device="cuda")])

    assert judged(plans).races == []


def test_a_card_that_is_not_the_current_one_runs_what_is_its_own() -> None:
    gpu = judged(lambda gpu: all_reduce(gpu, "cuda:1"))
    assert gpu.races == [] and gpu.counts["launches"] > 0


def test_a_launch_on_another_card_than_the_tensors_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_codec, "guard", lambda device: _tensors.guard(torch.device("cuda", 0)))

    def encode(gpu: FakeGpu) -> None:
        trimwire.cuda.Encoder([40], device="cuda:1").encode([torch.zeros(40, device="cuda:1")])

    races = judged(encode).races
    assert any(re.search("encode_rows .* on cuda:0 touches what .* made, which is cuda:1's", race) for race in races), races


def test_a_graph_that_is_captured_on_a_card_concerns_tensors_of_that_card() -> None:
    gpu = FakeGpu()
    with gpu.installed(), group_of(1) as groups:
        encoder, rank = trimwire.cuda.Encoder([40], device="cuda:1"), Collectives(gpu, groups[0])
        first, second = torch.zeros(40, device="cuda:1"), torch.zeros(40, device="cuda:1")
        gpu.capturing = {gpu.stream("cuda:0")}
        encoder.bind([first])
        finished([rank.all_reduce(first)])
        gpu.capturing = {gpu.stream("cuda:1")}
        with pytest.raises(RuntimeError, match="before a graph is captured"):
            encoder.bind([second])
        with pytest.raises(RuntimeError, match="all_reduce: a CUDA graph is being captured"):
            rank.all_reduce(second)


def planted(order: str) -> list[str]:
    """Two streams, and the host's pinned memory, with what orders them, or not."""

    def scenario(gpu: FakeGpu) -> None:
        first, second = torch.cuda.Stream(), torch.cuda.Stream()
        pinned = torch.zeros(8, pin_memory=True)
        with torch.cuda.stream(first):
            tensor = torch.zeros(8, device="cuda")
            event = first.record_event()
            if order == "an event too early":
                tensor.add_(1.0)
        if order != "nothing":
            second.wait_event(event)
        with torch.cuda.stream(second):
            if order == "other bytes":
                with torch.cuda.stream(first):
                    tensor[:4].add_(1.0)
                tensor[4:].add_(1.0)
            pinned.copy_(tensor if order != "other bytes" else tensor[4:].repeat(2), non_blocking=True)
            copied = second.record_event()
        if order != "the host is early":
            copied.synchronize()
        pinned[3].item()
        if order == "memory that is freed":
            with torch.cuda.stream(second):
                tensor.mul_(2.0)
            del tensor

            # Torch gives it to who asks next on the first stream.
            torch.zeros(8, device="cuda")

    return judged(scenario).races


@pytest.mark.parametrize("order", ["an event", "other bytes"])
def test_what_is_ordered_or_apart_is_no_race(order: str) -> None:
    assert planted(order) == []


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ("nothing", "stream 2: copy_ .* is not behind stream 1, which wrote byte 0 of what .*test_cuda_races.py.* made: zeros at"),
        ("an event too early", "stream 2: copy_ .* is not behind stream 1, which wrote byte 0 of .*: add_ at"),
        ("the host is early", "thread MainThread: .* is not behind stream 2, which wrote byte 12 of .*: copy_ at"),
        ("memory that is freed", "stream 1: gets back memory that nobody has is not behind stream 2, which wrote byte 0 of .*: mul_ at"),
    ],
)
def test_a_planted_race_is_found_and_said_where(order: str, text: str) -> None:
    races = planted(order)
    assert any(re.search(text, race) for race in races), races
