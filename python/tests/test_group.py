# SPDX-License-Identifier: Apache-2.0
"""Promises of a group without PyTorch: threads of one process are its ranks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import trimwire


def ranks(world: int, function: Callable[[trimwire.Group, int], Any], **options: Any) -> list[Any]:
    groups = [trimwire.Group("127.0.0.1") for _ in range(world)]
    addresses = [group.address for group in groups]
    results: list[Any] = [None] * world

    def one(rank: int) -> None:
        try:
            results[rank] = function(groups[rank].connect(rank, addresses, **options), rank)
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    for group in groups:
        group.close()
    return results


def part(rank: int, length: int = 50_000) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(length).astype(np.float32)


def succeeded(results: list[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def test_sums_means_and_shards() -> None:
    def work(group: trimwire.Group, rank: int) -> None:
        total = sum(part(other).astype(np.float64) for other in range(group.world))
        tensor = part(rank)
        group.all_reduce(tensor).wait(30)
        assert trimwire.nmse(tensor, total) < 1e-8
        tensor = part(rank)
        group.all_reduce(tensor, average=True, exact=True).wait(30)
        assert trimwire.nmse(tensor, total / group.world) < 1e-13
        shard = np.empty(50_000 // group.world, dtype=np.float32)
        group.reduce_scatter(part(rank)[: shard.size * group.world], shard).wait(30)
        assert trimwire.nmse(shard, total[rank * shard.size : (rank + 1) * shard.size]) < 1e-8
        everything = np.empty((group.world, 1_000), dtype=np.int64)
        group.all_gather(np.full(1_000, rank, dtype=np.int64), everything).wait(30)
        assert (everything == np.arange(group.world)[:, None]).all()
        text = np.frombuffer(bytearray(b"hello, everybody"), dtype=np.uint8).copy() if rank == 1 else np.zeros(16, dtype=np.uint8)
        group.broadcast(text, root=1).wait(30)
        assert text.tobytes() == b"hello, everybody"
        group.barrier().wait(30)
        stats = group.stats()
        assert stats["operations"] == 6 and stats["failed"] == 0 and stats["packets_missing"] == 0

    succeeded(ranks(3, work))


def test_a_sealed_group_sums_and_one_with_another_key_is_not_heard() -> None:
    def work(group: trimwire.Group, rank: int) -> None:
        tensor = np.ones(9_000, dtype=np.float32)
        group.all_reduce(tensor).wait(30)
        assert trimwire.nmse(tensor, np.full(9_000, 2.0)) < 1e-8
        exact = np.arange(50_000, dtype=np.int64) * (rank + 1)
        group.broadcast(exact, root=1).wait(30)
        assert (exact == np.arange(50_000) * 2).all()

    succeeded(ranks(2, work, seal_key=bytes(range(32))))
    groups = [trimwire.Group("127.0.0.1") for _ in range(2)]
    addresses = [group.address for group in groups]
    for rank, group in enumerate(groups):
        group.connect(rank, addresses, seal_key=bytes([rank] * 32), operation_timeout=1.0)
    works = [group.all_reduce(np.ones(100, dtype=np.float32)) for group in groups]
    for rank, work_ in enumerate(works):
        with pytest.raises(trimwire.TransportError, match=f"rank {1 - rank}"):
            work_.wait(30)
    for group in groups:
        group.close()


def test_a_wait_may_be_short_and_what_is_under_way_when_a_group_closes_fails() -> None:
    groups = [trimwire.Group("127.0.0.1") for _ in range(2)]
    addresses = [group.address for group in groups]
    first = groups[0].connect(0, addresses)
    work = first.all_reduce(np.ones(100, dtype=np.float32))
    called = threading.Event()
    work.then(called.set)
    with pytest.raises(TimeoutError):
        work.wait(0.05)
    assert not work.done() and work.stats() is None
    first.close()
    with pytest.raises(trimwire.TransportError, match="cancelled"):
        work.wait(10)
    assert called.wait(10) and work.done()
    with pytest.raises(RuntimeError, match="closed"):
        first.all_reduce(np.ones(1, dtype=np.float32))


def test_a_panic_of_the_network_thread_fails_what_is_under_way_and_what_comes_later_by_name() -> None:
    groups = [trimwire.Group("127.0.0.1") for _ in range(2)]
    group = groups[0].connect(0, [each.address for each in groups])
    works = [group.all_reduce(np.ones(length, dtype=np.float32)) for length in (1, 300_000)]
    called = threading.Event()
    works[0].then(called.set)
    assert group._group is not None
    group._group._panic()
    works.append(group.all_reduce(np.ones(100, dtype=np.float32)))
    for work in works:
        with pytest.raises(trimwire.TransportError, match="network's thread panicked.*: a test asked for it"):
            work.wait(30)
    assert called.wait(30)
    with pytest.raises(trimwire.TransportError, match="panicked"):
        group.all_reduce(np.ones(100, dtype=np.float32)).wait(30)
    for each in groups:
        each.close()


def test_tensors_live_as_long_as_they_are_needed() -> None:
    def work(group: trimwire.Group, rank: int) -> None:
        # Nobody else holds these.
        works = [group.all_reduce(np.full(20_000, rank + 1.0, dtype=np.float32)) for _ in range(20)]
        for one in works:
            one.wait(30)

    succeeded(ranks(2, work))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda group: group.all_reduce(np.zeros(3)), TypeError, "tensor: float64"),
        (lambda group: group.all_reduce(np.zeros((4, 4), np.float32)[:, ::2]), ValueError, "tensor: not contiguous"),
        (lambda group: group.all_reduce(np.zeros(3, np.float32), planes=0), ValueError, "planes: 0"),
        (lambda group: group.all_gather(np.zeros(3, np.uint8), np.zeros(3, np.uint8)), ValueError, "input: 3 bytes"),
    ],
)
def test_errors_name_the_argument(call: Callable[[trimwire.Group], object], error: type[Exception], text: str) -> None:
    with trimwire.Group("127.0.0.1") as group:
        group.connect(0, [group.address])
        with pytest.raises(error, match=text):
            call(group)


def test_groups_that_cannot_begin_say_why() -> None:
    with pytest.raises(ValueError, match="'nowhere' is no IP address"):
        trimwire.Group("nowhere")
    group = trimwire.Group("127.0.0.1")
    with pytest.raises(RuntimeError, match="connect"):
        group.all_reduce(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"peers\[1\]: 'x' is no IP:PORT"):
        group.connect(0, [group.address, "x"])
    with pytest.raises(ValueError, match="rank: 2 of 2"):
        group.connect(2, [group.address, "127.0.0.1:9"])
    with pytest.raises(ValueError, match="another family"):
        group.connect(0, [group.address, "[::1]:9"])
    with pytest.raises(ValueError, match="seal_key: "):
        trimwire.Group("127.0.0.1").connect(0, [group.address], seal_key=b"short")


def test_mismatched_lengths_fail_on_the_rank_that_sees_them() -> None:
    with trimwire.Group("127.0.0.1") as group:
        group.connect(0, [group.address])
        work = group.reduce_scatter(np.zeros(8, np.float32), np.zeros(3, np.float32))
        with pytest.raises(trimwire.TransportError, match="output has 3 elements, and has to have 8"):
            work.wait(10)


@pytest.mark.parametrize("algorithm", ["direct", "ring"])
def test_every_algorithm_gives_the_sum_and_the_same_bits_everywhere(algorithm: str) -> None:
    def work(group: trimwire.Group, rank: int) -> np.ndarray:
        tensor = part(rank)
        group.all_reduce(tensor, algorithm=algorithm).wait(30)
        return tensor

    results = succeeded(ranks(4, work))
    total = sum(part(other).astype(np.float64) for other in range(4))
    assert all(trimwire.nmse(result, total) < 1e-8 for result in results)
    assert all((result == results[0]).all() for result in results)


def test_at_a_deadline_a_rank_that_is_late_is_not_waited_for() -> None:
    late = threading.Event()

    def work(group: trimwire.Group, rank: int) -> np.ndarray:
        group.barrier().wait(30)
        if rank == 2:
            late.wait(30)
        tensor = part(rank)
        group.all_reduce(tensor, deadline=0.3).wait(30)
        if rank == 0:
            late.set()
        return tensor

    results = succeeded(ranks(3, work))
    without = part(0).astype(np.float64) + part(1)
    first = 50_000 // 3
    # The shard that the late rank would have summed is nobody's; the others lack its part.
    assert trimwire.nmse(results[0][:first], without[:first]) < 1e-8


def test_what_cannot_be_is_said_by_name() -> None:
    def work(group: trimwire.Group, rank: int) -> None:
        with pytest.raises(ValueError, match="algorithm is 'star'; valid are 'auto', 'direct', 'ring', 'two-level'"):
            group.all_reduce(part(rank), algorithm="star")
        with pytest.raises(ValueError, match="deadline is 0 s"):
            group.all_reduce(part(rank), deadline=0.0)
        with pytest.raises(trimwire.TransportError, match="direct algorithm, not ring"):
            group.all_reduce(part(rank), algorithm="ring", consistent=True).wait(30)

    succeeded(ranks(2, work))


def test_a_rank_may_have_several_addresses() -> None:
    groups = [trimwire.Group("127.0.0.1,127.0.0.2"), trimwire.Group("127.0.0.3,127.0.0.4")]
    addresses = [group.address for group in groups]
    assert [address.split(":")[0] for address in addresses] == ["127.0.0.1", "127.0.0.3"]
    with groups[0], groups[1]:
        for rank, group in enumerate(groups):
            group.connect(rank, addresses)
        arrays = [np.full(200_000, float(rank + 1), dtype=np.float32) for rank in range(2)]
        works = [group.all_reduce(array) for group, array in zip(groups, arrays)]
        for work in works:
            work.wait()
        for array in arrays:
            assert trimwire.nmse(array, np.full(200_000, 3.0, dtype=np.float32)) < 1e-6


def test_addresses_that_do_not_go_together_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="::1 is of another family than 127.0.0.1"):
        trimwire.Group("127.0.0.1,::1")
    with pytest.raises(ValueError, match="'nowhere' is no IP address"):
        trimwire.Group("127.0.0.1,nowhere")


@pytest.mark.parametrize("delay", [0.0, -1.0, float("nan"), float("inf")])
def test_a_trim_delay_that_is_no_time_is_refused_by_name(delay: float) -> None:
    group = trimwire.Group("127.0.0.1")
    with pytest.raises(ValueError, match="trim_delay"):
        group.connect(0, [group.address], trim_delay=delay)
    # What was wrong can be mended, and tried again.
    group.connect(0, [group.address], trim_delay=0.001)
    group.close()


@pytest.mark.parametrize(("mtu", "coordinates"), [(576, 224), (1450, 672), (1500, 704), (9000, 4448)])
def test_packets_fit_the_mtu_that_ranks_agree_on(mtu: int, coordinates: int) -> None:
    groups = [trimwire.Group("127.0.0.1") for _ in range(2)]
    addresses = [group.address for group in groups]
    tensors = [np.full(100_000, rank + 1, np.float32) for rank in range(2)]
    for rank, group in enumerate(groups):
        group.connect(rank, addresses, mtu=mtu)
        assert group._native_group().coordinates_per_packet(9) == coordinates
    for exact in (False, True):
        works = [group.all_reduce(tensor.copy() if not exact else tensor, exact=exact) for group, tensor in zip(groups, tensors)]
        for work in works:
            work.wait(30)
    assert all((tensor == 3).all() for tensor in tensors)
    for group in groups:
        group.close()


def test_a_group_tells_its_interfaces_mtu_unless_a_smaller_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIMWIRE_MTU", raising=False)
    with trimwire.Group("127.0.0.1") as group:
        assert group.mtu == 9216
        monkeypatch.setenv("TRIMWIRE_MTU", "1450")
        assert group.mtu == 1450
        monkeypatch.setenv("TRIMWIRE_MTU", "much")
        with pytest.raises(ValueError, match="TRIMWIRE_MTU: 'much'"):
            _ = group.mtu
        with pytest.raises(ValueError, match="mtu: 500; valid are 576 to 9216"):
            group.connect(0, [group.address], mtu=500)


@pytest.mark.parametrize("world", [2, 3])
def test_channels_sum_as_one_does_and_the_group_counts_all_of_them(world: int) -> None:
    groups = [trimwire.Group("127.0.0.1", channels=2) for _ in range(world)]
    addresses = [group.address for group in groups]
    results: list[Any] = [None] * world

    def one(rank: int) -> None:
        try:
            group = groups[rank].connect(rank, addresses)
            assert group.channels == 2
            total = sum(part(other, 300_001).astype(np.float64) for other in range(world))
            tensor = part(rank, 300_001)
            group.all_reduce(tensor).wait(30)
            assert trimwire.nmse(tensor, total) < 1e-8
            exact = np.arange(300_001, dtype=np.int64) * (rank + 1)
            group.broadcast(exact, root=1).wait(30)
            assert (exact == np.arange(300_001) * 2).all()
            stats = group.stats()
            assert stats["operations"] == 2 and stats["packets_received"] >= 300_001 // 704
            group.barrier().wait(30)
            results[rank] = True
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    for group in groups:
        group.close()
    assert succeeded(results) == [True] * world


def test_a_rank_with_another_number_of_channels_is_an_error_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [trimwire.Group("127.0.0.1", channels=channels) for channels in (2, 1)]
    addresses = [group.address for group in groups]
    errors: list[str] = []

    def one(rank: int) -> None:
        group = groups[rank].connect(rank, addresses, give_up=3.0, operation_timeout=5.0)
        try:
            group.all_reduce(part(rank, 300_000)).wait(30)
        except trimwire.TransportError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    for group in groups:
        group.close()
    assert len(errors) == 2 and any("channels" in error for error in errors), errors
    with pytest.raises(ValueError, match="channels: 0; valid are 1 to 16"):
        trimwire.Group("127.0.0.1", channels=0)
    monkeypatch.setenv("TRIMWIRE_CHANNELS", "many")
    with pytest.raises(ValueError, match="TRIMWIRE_CHANNELS: 'many'"):
        trimwire.Group("127.0.0.1")


@pytest.mark.parametrize("channels", [1, 4])
def test_a_group_takes_eight_descriptors_at_most_besides_those_that_all_groups_share(channels: int) -> None:
    with ExitStack() as groups:
        counts = []
        for _ in range(8):
            group = groups.enter_context(trimwire.Group("127.0.0.1", channels=channels))
            group.connect(0, [group.address])
            counts.append(len(os.listdir("/proc/self/fd")))
    # The first brings the ports with it that data leaves by.
    assert counts[-1] - counts[0] <= 8 * 7, counts
