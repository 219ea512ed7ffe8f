# SPDX-License-Identifier: Apache-2.0
"""Trimming without a network: what packets would lose, inside of an ordinary all-reduce on whatever backend."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.profiler import record_function

from .._codec import shares_of, through_network
from .._native import PLANES
from .._transcript import Fates, Transcript
from ._memory import of_one_dimension, put_back
from ._options import Options, one_of, within


@dataclass(frozen=True)
class Simulation:
    """A network that trims and loses packets of gradients by chance, as `trimwire.simulate` has it, or as a recorded one did.

    All-reduce is the agent's: every rank sends its part of each shard to the shard's owner, who sends the sum to everyone. Both ways are trimmed; what a rank keeps for
    itself is not.
    """

    #: Share of the packets that are trimmed.
    trim_rate: float = 0.25
    #: To how many planes; several with their weights: `{1: 0.2, 8: 0.8}`.
    planes: int | Mapping[int, float] = 1
    #: Share of the packets that are lost.
    drop_rate: float = 0.0
    #: Instead of chance: what all ranks of a job recorded (a file name as for `Network(record=…)`). The hook's all-reduces take the recorded ones in order, and from the first again after the last; of
    #: messages of another size each packet takes that at its share of the way.
    transcript: str | os.PathLike[str] | None = None
    #: Planes sent, 1 to 10 (of codec `rht`; the papers' have two: heads, and the rest); None: all.
    sent_planes: int | None = Options.planes
    #: `rht` or `raw`; or, as figures of what nobody sends, the papers' `rht-paper`, `sign-magnitude`, `sq` or `sd`.
    codec: str = "rht"
    #: `unbiased`, `mmse` or `paper`.
    decoding: str = "unbiased"
    #: The same at all ranks.
    seed: int = 0
    #: Whether the sums on their way back are trimmed, too.
    both_ways: bool = True
    #: All ranks lose the same of a sum: replicas stay the same bits. The transport, whose default that is, sends again what it would cost.
    consistent: bool = False
    #: What was trimmed of a rank's contribution is added to its next one.
    error_feedback: bool = False
    #: Sums everything exactly, too, and tells the error (`stats()["nmse"]`).
    measure: bool = False

    def __post_init__(self) -> None:
        """Refuses what no network does."""
        self.shares()
        within("sent_planes", PLANES if self.sent_planes is None else self.sent_planes, 1, PLANES)
        within("seed", self.seed, 0, 2**64 - 1)
        one_of("codec", self.codec, "rht", "raw", "rht-paper", "sign-magnitude", "sq", "sd")
        one_of("decoding", self.decoding, "unbiased", "mmse", "paper")
        for name in ("both_ways", "consistent", "error_feedback", "measure"):
            one_of(name, getattr(self, name), True, False)

    def shares(self) -> list[tuple[int, float]]:
        """How many planes (0: lost) what share of the packets keeps."""
        return shares_of(self.trim_rate, self.planes, self.drop_rate)

    def carry(self, source: torch.Tensor, message: int, sender: int, receiver: int, whole: bool = False) -> torch.Tensor:
        """What `receiver` has of a flat tensor of `sender`, as float32; with nothing trimmed where it is `whole`. By chance: who replays a transcript says which message it is."""
        if self.transcript is not None:
            raise ValueError("transcript: only all-reduces of the hook can be replayed (trimwire.torch.TrimwireState)")
        return self._carry(source, message, sender, receiver, whole)[0]

    def _carry(
        self, source: torch.Tensor, message: int, sender: int, receiver: int, whole: bool, written: Fates | None = None
    ) -> tuple[torch.Tensor, tuple[int, int, int]]:
        """Also gives how many packets were whole, trimmed and missing."""
        out = torch.empty(source.numel(), dtype=torch.float32)
        if source.numel() == 0:
            return out, (0, 0, 0)
        # Others have planes of their own number.
        sent = self.sent_planes if self.codec == "rht" else None
        counts = through_network(
            source,
            out.numpy(),
            [] if whole else self.shares(),
            sent_planes=sent,
            codec=self.codec,
            decoding=self.decoding,
            seed=self.seed,
            message=message,
            rank=sender,
            receiver=receiver,
            written=None if whole else written,
        )
        return out, counts


class SimulatedHook:
    """Averages as `Hook` does, in a network that is simulated."""

    def __init__(self, process_group: dist.ProcessGroup, simulation: Simulation) -> None:
        self.simulation = simulation
        self._group = process_group
        self._rank, self._world = dist.get_rank(process_group), dist.get_world_size(process_group)
        self._transcript = None if simulation.transcript is None else Transcript(simulation.transcript)
        if self._transcript is not None and self._transcript.world != self._world:
            raise ValueError(f"transcript: {simulation.transcript} is of {self._transcript.world} ranks; the model's group has {self._world}")
        self._operations = 0
        self._packets = np.zeros(3, dtype=np.int64)
        #: By bucket: what was trimmed of this rank's contribution.
        self._residuals: dict[int, torch.Tensor] = {}
        self._error = self._energy = 0.0

    def _shards(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """As even a division as possible, in order of rank."""
        return list(torch.tensor_split(tensor, self._world))

    def _carried(self, source: torch.Tensor, message: int, sender: int, receiver: int, written: Fates | None) -> torch.Tensor:
        got, counts = self.simulation._carry(source, message, sender, receiver, False, written)
        self._packets += counts
        return got

    def _contribute(self, own: torch.Tensor, operation: int) -> torch.Tensor:
        """What the owners of the shards get of this rank's gradient."""
        parts = []
        for owner, shard in enumerate(self._shards(own)):
            if owner == self._rank or shard.numel() == 0:
                parts.append(shard.float())
            else:
                written = None if self._transcript is None else self._transcript.to_owner(operation, self._rank, owner)
                parts.append(self._carried(shard, 2 * operation, self._rank, owner, written))
        return torch.cat(parts)

    def _hand_out(self, mean: torch.Tensor, operation: int) -> torch.Tensor:
        """What this rank gets of the owners' means."""
        message, consistent = 2 * operation + 1, self.simulation.consistent
        parts = []
        for owner, shard in enumerate(self._shards(mean)):
            if owner == self._rank and not consistent:
                # An owner keeps what whole packets decode to.
                parts.append(self.simulation._carry(shard, message, owner, owner, True)[0])
                continue
            written = None
            if self._transcript is not None and shard.numel() > 0:
                written = self._transcript.least(operation, owner) if consistent else self._transcript.from_owner(operation, owner, self._rank)
            parts.append(self._carried(shard, message, owner, 0 if consistent else self._rank, written))
        return torch.cat(parts)

    def average(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """The mean of a bucket (torch.distributed.GradBucket) over the ranks, less what was trimmed, in place."""
        tensor: torch.Tensor = bucket.buffer()
        index: int = bucket.index()
        operation = self._operations
        self._operations += 1
        own = tensor.detach().to("cpu")
        residual = self._residuals.get(index)
        if residual is not None and residual.numel() == own.numel():
            own = own.float() + residual
        with record_function("trimwire::simulate parts"):
            cut = self._contribute(own, operation)
        # Sent exactly besides, as the transport's hook does.
        small = of_one_dimension(bucket, Options.smallest)
        if self.simulation.error_feedback:
            residual = torch.nan_to_num(own.float() - cut, 0.0, 0.0, 0.0)
            for begin, end in small:
                residual[begin:end] = 0.0
            self._residuals[index] = residual
        exact_parts = [tensor.detach()[begin:end].to("cpu", torch.float32) for begin, end in small]
        together = [cut, *exact_parts]
        if self.simulation.measure:
            together.append(tensor.detach().to("cpu", torch.float32, copy=True))
        device = tensor.device
        summed = torch.cat(together).to(device)
        future = dist.all_reduce(summed, group=self._group, async_op=True).get_future()

        def finish(done: Any) -> torch.Tensor:
            done.value()
            mean = summed.to("cpu") / self._world
            got = mean[: tensor.numel()]
            if self.simulation.both_ways:
                with record_function("trimwire::simulate sums"):
                    got = self._hand_out(got, operation)
            apart = sum(end - begin for begin, end in small)
            put_back(got, small, mean[tensor.numel() : tensor.numel() + apart])
            if self.simulation.measure:
                exact = mean[tensor.numel() + apart :].double()
                self._error += float((got.double() - exact).square().sum())
                self._energy += float(exact.square().sum())
            tensor.copy_(got)
            return tensor

        return future.then(finish)

    def stats(self) -> dict[str, float]:
        """Operations, packets that this rank sent to owners and got from them, which of them were trimmed and which are missing, and with `measure` the NMSE of all means so far."""
        stats: dict[str, float] = {"operations": self._operations, "packets": int(self._packets.sum())}
        stats |= {"packets_trimmed": int(self._packets[1]), "packets_missing": int(self._packets[2])}
        if self.simulation.measure and self._energy > 0.0:
            stats["nmse"] = self._error / self._energy
        return stats

    def close(self) -> None:
        """Nothing is held."""
