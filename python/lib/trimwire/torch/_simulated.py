"""Trimming without a network: what packets would lose, inside of an ordinary all-reduce on whatever backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import record_function

from .._codec import shares_of, through_network
from .._group import DEFAULT_PLANES


@dataclass(frozen=True)
class Simulation:
    """A network that cuts and loses packets of gradients by chance, as `trimwire.simulate` has it.

    All-reduce is the agent's: every rank sends its part of each shard to the shard's owner, who sends the sum to everyone. Both ways are cut; what a rank keeps for
    itself is not.
    """

    #: Share of the packets that are cut.
    trim_rate: float = 0.25
    #: To how many planes; several with their weights: `{1: 0.2, 8: 0.8}`.
    planes: int | Mapping[int, float] = 1
    #: Share of the packets that are lost.
    drop_rate: float = 0.0
    #: Planes sent, 1 to 10 (of codec `rht`); None: all.
    sent_planes: int | None = DEFAULT_PLANES
    #: `rht`, `rht-paper`, `sign-magnitude`, `sq`, `sd` or `raw`.
    codec: str = "rht"
    #: `unbiased`, `mmse` or `paper`.
    decoding: str = "unbiased"
    #: The same at all ranks.
    seed: int = 0
    #: Whether the sums on their way back are cut, too.
    both_ways: bool = True
    #: All ranks lose the same of a sum: replicas stay the same bits.
    consistent: bool = False
    #: What was cut of a rank's contribution is added to its next one.
    error_feedback: bool = False
    #: Sums everything exactly, too, and tells the error (`stats()["nmse"]`).
    measure: bool = False

    def shares(self) -> list[tuple[int, float]]:
        """How many planes (0: lost) what share of the packets keeps."""
        return shares_of(self.trim_rate, self.planes, self.drop_rate)

    def carry(self, source: torch.Tensor, message: int, sender: int, receiver: int, whole: bool = False) -> torch.Tensor:
        """What `receiver` has of a flat tensor of `sender`, as float32; with nothing cut where it is `whole`."""
        out = torch.empty(source.numel(), dtype=torch.float32)
        if source.numel() == 0:
            return out
        # The baselines have planes of their own number.
        sent = self.sent_planes if self.codec in ("rht", "rht-paper") else None
        through_network(
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
        )
        return out


class SimulatedHook:
    """What `register(model, simulate=…)` gives DistributedDataParallel."""

    def __init__(self, process_group: dist.ProcessGroup, simulation: Simulation) -> None:
        simulation.shares()  # Wrong ones are told here.
        self.simulation = simulation
        self._group = process_group
        self._rank, self._world = dist.get_rank(process_group), dist.get_world_size(process_group)
        self._operations = 0
        #: By bucket: what was cut of this rank's contribution.
        self._residuals: dict[int, torch.Tensor] = {}
        self._error = self._energy = 0.0

    def _shards(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """As even a division as possible, in order of rank."""
        return list(torch.tensor_split(tensor, self._world))

    def _contribute(self, own: torch.Tensor, message: int) -> torch.Tensor:
        """What the owners of the shards get of this rank's gradient."""
        parts = [
            shard.float() if owner == self._rank else self.simulation.carry(shard, message, self._rank, owner)
            for owner, shard in enumerate(self._shards(own))
        ]
        return torch.cat(parts)

    def _hand_out(self, mean: torch.Tensor, message: int) -> torch.Tensor:
        """What this rank gets of the owners' means."""
        receiver = 0 if self.simulation.consistent else self._rank
        parts = []
        for owner, shard in enumerate(self._shards(mean)):
            # An owner keeps what whole packets decode to.
            whole = owner == self._rank and not self.simulation.consistent
            parts.append(self.simulation.carry(shard, message, owner, receiver, whole))
        return torch.cat(parts)

    def average(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """The mean of a bucket (torch.distributed.GradBucket) over the ranks, less what was cut, in place."""
        tensor: torch.Tensor = bucket.buffer()
        index: int = bucket.index()
        message = 2 * self._operations
        self._operations += 1
        own = tensor.detach().to("cpu")
        residual = self._residuals.get(index)
        if residual is not None and residual.numel() == own.numel():
            own = own.float() + residual
        with record_function("trimwire::simulate parts"):
            cut = self._contribute(own, message)
        if self.simulation.error_feedback:
            self._residuals[index] = torch.nan_to_num(own.float() - cut, 0.0, 0.0, 0.0)
        together = [cut]
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
                    got = self._hand_out(got, message + 1)
            if self.simulation.measure:
                exact = mean[tensor.numel() :].double()
                self._error += float((got.double() - exact).square().sum())
                self._energy += float(exact.square().sum())
            tensor.copy_(got)
            return tensor

        return future.then(finish)

    def stats(self) -> dict[str, float]:
        """Operations, and with `measure` the NMSE of all means so far."""
        stats: dict[str, float] = {"operations": self._operations}
        if self.simulation.measure and self._energy > 0.0:
            stats["nmse"] = self._error / self._energy
        return stats

    def close(self) -> None:
        """Nothing is held."""
