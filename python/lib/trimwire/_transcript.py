# SPDX-License-Identifier: Apache-2.0
"""Recorded networks: what arrived of the packets of all-reduces (docs/reference/transcript.md)."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from . import _native

Fates = npt.NDArray[np.uint32]


class Transcript:
    """What all ranks of a job recorded, in files as `Group.connect(record=…)` and `trimwire-agent perf --record` write them.

    Of each all-reduce that might be trimmed and ended well, in order, what was there of each packet of each message. Everything is in memory: four bytes a packet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.fspath(path)
        first = _native.read_transcript(name, 0)
        self.world: int = first.world
        ranks = [first, *(_native.read_transcript(name, rank) for rank in range(1, self.world))]
        for rank, said in enumerate(ranks):
            if (said.rank, said.world, said.seed) != (rank, first.world, first.seed):
                raise ValueError(f"transcript: {name}: the file of rank {rank} is rank {said.rank}'s of {said.world}, with seed {said.seed}; rank 0's is of {first.world}, with seed {first.seed}")
            if said.lost:
                raise ValueError(f"transcript: {name}: {said.lost} records of rank {rank} were lost while it was written")
        ended = [{number for number, what, _, exact, failed in said.operations if what == "all-reduce" and not exact and failed is None} for said in ranks]
        #: Numbers of the operations, in order.
        self.operations = [number for number, *_ in first.operations if all(number in numbers for numbers in ended)]
        if not self.operations:
            raise ValueError(f"transcript: {name}: no all-reduce in it that might be trimmed and ended well at all {self.world} ranks")
        self._messages: list[dict[tuple[int, int, int, int], Fates]] = []
        for said in ranks:
            of_rank = {}
            for number, phase, shard, sender, _, fates in said.messages:
                if shard >= self.world:
                    raise ValueError(f"transcript: {name}: ranks had several channels; what is to be replayed here is recorded with channels=1, the default of groups that record")
                of_rank[number, phase, shard, sender] = np.frombuffer(fates, dtype=np.uint32)
            self._messages.append(of_rank)

    def _message(self, nth: int, phase: int, shard: int, sender: int, receiver: int) -> Fates:
        # Those that are over again begin again.
        number = self.operations[nth % len(self.operations)]
        try:
            return self._messages[receiver][number, phase, shard, sender]
        except KeyError:
            way = "on its way to its owner" if phase == 0 else "from its owner"
            raise ValueError(
                f"transcript: operation {number}: shard {shard} of rank {sender}, {way}, is not in the file of rank {receiver}; all-reduces of the direct algorithm can be replayed"
            ) from None

    def to_owner(self, nth: int, sender: int, owner: int) -> Fates:
        """What the owner of a shard had of a rank's part, in the `nth` all-reduce (from 0; after the last comes the first)."""
        return self._message(nth, 0, owner, sender, owner)

    def from_owner(self, nth: int, owner: int, receiver: int) -> Fates:
        """What a rank had of the sum of a shard."""
        return self._message(nth, 1, owner, owner, receiver)

    def least(self, nth: int, owner: int) -> Fates:
        """What all ranks had of the sum of a shard."""
        everyone = [self.from_owner(nth, owner, receiver) for receiver in range(self.world) if receiver != owner]
        return np.minimum.reduce(everyone) if everyone else np.empty(0, dtype=np.uint32)

