# SPDX-License-Identifier: Apache-2.0
"""Groups that go on when a rank dies, and when it comes back: threads of one process are its ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import trimwire

LENGTH = 50_000


def ranks(world: int, function: Callable[[trimwire.Group, int, list[str]], Any], **options: Any) -> list[Any]:
    groups = [trimwire.Group("127.0.0.1") for _ in range(world)]
    addresses = [group.address for group in groups]
    results: list[Any] = [None] * world

    def one(rank: int) -> None:
        try:
            results[rank] = function(groups[rank].connect(rank, addresses, give_up=1.0, seed=5, **options), rank, addresses)
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    for group in groups:
        group.close()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def total(group: trimwire.Group, rank: int) -> float:
    """The sum of all ranks' numbers and one."""
    tensor = np.full(LENGTH, rank + 1.0, dtype=np.float32)
    group.all_reduce(tensor, exact=True).wait(30)
    assert (tensor == tensor[0]).all()
    return float(tensor[0])


def dies(group: trimwire.Group) -> None:
    # Others have what it has sent.
    group.close()


@pytest.mark.parametrize("key", [None, bytes(range(32))])
def test_a_group_goes_on_without_a_rank_that_has_died(key: bytes | None) -> None:
    def work(group: trimwire.Group, rank: int, addresses: list[str]) -> Any:
        assert total(group, rank) == 10
        if rank == 1:
            return dies(group)
        with pytest.raises(trimwire.TransportError, match="rank 1"):
            total(group, rank)
        epoch = group.shrink()
        assert epoch == (1, [0, None, 1, 2][rank], 3, (0, 2, 3), ())
        assert (group.rank, group.world) == epoch[1:3]
        for _ in range(3):
            assert total(group, rank) == 8
        # Shards are those of three.
        shard = np.empty(1_000, dtype=np.float32)
        group.reduce_scatter(np.arange(3_000, dtype=np.float32), shard, exact=True).wait(30)
        assert (shard == 3 * np.arange(1_000 * group.rank, 1_000 * group.rank + 1_000)).all()
        tensor = np.full(10, float(rank), dtype=np.float32)
        group.broadcast(tensor, root=1).wait(30)
        assert (tensor == 2).all(), "ranks are counted among those that are left"

    ranks(4, work, seal_key=key)


def test_a_rank_that_starts_anew_is_let_in() -> None:
    known = threading.Barrier(3)

    def work(group: trimwire.Group, rank: int, addresses: list[str]) -> Any:
        assert total(group, rank) == 6
        if rank == 2:
            dies(group)
            # In its place another one, elsewhere.
            again = trimwire.Group("127.0.0.1")
            addresses[2] = again.address
            known.wait(30)
            again.connect(2, addresses, give_up=1.0, seed=5)
            epoch = again.join()
            assert epoch == (2, 2, 3, (0, 1, 2), (2,))
            assert total(again, rank) == 6
            return again.close()
        with pytest.raises(trimwire.TransportError, match="rank 2"):
            total(group, rank)
        assert group.shrink().members == (0, 1)
        assert total(group, rank) == 3
        # All have to hear where it is, as by a launcher's store.
        known.wait(30)
        group.admit(2, addresses[2])
        # Ranks tell each other that somebody knocks: all let it in between the same two operations.
        while True:
            seen = np.array([float(2 in group.knocking())], dtype=np.float32)
            group.all_reduce(seen, exact=True).wait(30)
            if seen[0] == 2:
                break
        assert group.grow() == (2, rank, 3, (0, 1, 2), (2,))
        assert total(group, rank) == 6

    ranks(3, work)


def test_too_few_ranks_do_not_go_on() -> None:
    def work(group: trimwire.Group, rank: int, addresses: list[str]) -> Any:
        assert total(group, rank) == 3
        if rank == 0:
            return dies(group)
        with pytest.raises(trimwire.TransportError, match="rank 0"):
            total(group, rank)
        with pytest.raises(trimwire.TransportError, match="half with rank 0 among them"):
            group.shrink()
        with pytest.raises(trimwire.TransportError, match="epoch 0 is over"):
            total(group, rank)

    ranks(2, work)
