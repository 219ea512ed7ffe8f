"""A communication hook for DistributedDataParallel: gradients through Trimwire, everything else through the model's own group."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from .._group import DEFAULT_PLANES, Group
from ._device import on_host
from ._future import Promise, until_done
from ._rendezvous import connect
from ._simulated import SimulatedHook, Simulation

_CLASSES = 8


class Hook:
    """What `register` gives DistributedDataParallel: averages buckets of gradients over the ranks."""

    def __init__(self, group: Group, *, planes: int = DEFAULT_PLANES, consistent: bool = False) -> None:
        self.group, self.planes, self.consistent = group, planes, consistent
        self._buckets = 1

    def average(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """The mean of a bucket (torch.distributed.GradBucket) over the ranks, in place."""
        with record_function(f"trimwire::bucket {bucket.index()}") as whole:
            return until_done(whole, self._begin(bucket))

    def _begin(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        tensor: torch.Tensor = bucket.buffer()
        index: int = bucket.index()
        self._buckets = max(self._buckets, index + 1)
        # Buckets come from the last layers to the first, which the next forward pass needs first.
        layer_class = (_CLASSES - 1) * (self._buckets - 1 - index) // max(self._buckets - 1, 1)
        flat = tensor if on_host(tensor) else tensor.cpu()
        work = self.group.all_reduce(
            flat, average=True, planes=self.planes, consistent=self.consistent, tag=index, layer_class=layer_class
        )
        promise = Promise()

        def over() -> None:
            error = work.error()
            if error is not None:
                promise.fail(RuntimeError(f"bucket {index}: {error}"))
                return
            try:
                if flat is not tensor:
                    tensor.copy_(flat)
            except Exception as reason:  # Who waits has to hear of it.
                promise.fail(reason)
                return
            promise.fulfil(tensor)

        work.then(over)
        return promise.future

    def stats(self) -> dict[str, float]:
        """Totals: operations, packets received, cut and missing, bytes sent, seconds."""
        return self.group.stats()

    def close(self) -> None:
        """Ends; what is under way fails."""
        self.group.close()


# Without annotations: DistributedDataParallel compares them with its own types, which are strings here.
def _average(hook, bucket):  # type: ignore[no-untyped-def]
    return hook.average(bucket)


def register(
    model: DistributedDataParallel,
    *,
    planes: int = DEFAULT_PLANES,
    consistent: bool = False,
    fallback: bool = False,
    store: dist.Store | None = None,
    simulate: Simulation | None = None,
    **arguments: Any,
) -> Hook | SimulatedHook | None:
    """Has `model` average its gradients through Trimwire. Its process group, of whatever backend, does everything else.

    With `fallback`, a transport that cannot start is a warning, and gradients go the ordinary way (gives None); otherwise it is an error. Where some ranks can
    start and others cannot, all of them do the same. Further arguments are those of `trimwire.Group.connect`.

    With `simulate` nothing of that: gradients go through the model's own group, and lose on their way what packets would lose in such a network.
    """
    process_group = model.process_group
    if simulate is not None:
        simulated = SimulatedHook(process_group, simulate)
        model.register_comm_hook(simulated, _average)
        return simulated
    rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
    shared = store if store is not None else _store(process_group)
    group: Group | None = None
    problem: str | None = None
    try:
        group = connect(shared, rank, world, timeout=dist.default_pg_timeout, planes=planes, **arguments)
    except Exception as error:  # Of whatever kind: the others have to hear of it.
        problem = f"rank {rank}: {type(error).__name__}: {error}"
    problems: list[str | None] = [None] * world
    dist.all_gather_object(problems, problem, group=process_group)
    said = [text for text in problems if text is not None]
    if said or group is None:
        if group is not None:
            group.close()
        text = "trimwire cannot start: " + "; ".join(said)
        if not fallback:
            raise RuntimeError(text)
        warnings.warn(f"{text}; gradients go through {dist.get_backend(process_group)}", RuntimeWarning, stacklevel=2)
        return None
    hook = Hook(group, planes=planes, consistent=consistent)
    model.register_comm_hook(hook, _average)
    return hook


_registered = 0


def _store(process_group: dist.ProcessGroup) -> dist.Store:
    """The launcher's store, with a prefix of its own for every model."""
    global _registered
    _registered += 1
    store = dist.distributed_c10d._get_process_group_store(process_group)
    return dist.PrefixStore(f"trimwire-hook-{_registered}", store)
