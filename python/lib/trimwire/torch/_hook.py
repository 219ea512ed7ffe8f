# SPDX-License-Identifier: Apache-2.0
"""A communication hook for DistributedDataParallel: gradients through Trimwire, everything else through the model's own group."""

from __future__ import annotations

import datetime
import threading
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import record_function

from .._adaptive import Adaptive
from .._group import Group, Work
from .._native import PLANES
from ._device import Coder, on_host
from ._errors import CollectiveError
from ._future import Promise, until_done
from ._memory import of_one_dimension, put_back
from ._options import Options
from ._rendezvous import announce, connect

_CLASSES = 8


class Hook:
    """Averages buckets of gradients over the ranks of a group."""

    def __init__(self, group: Group, options: Options, adaptive: Adaptive | None) -> None:
        self.group, self.planes, self.consistent, self._smallest = group, options.planes, options.consistent, options.smallest
        self.adaptive = adaptive
        self._coder = Coder(group, options.codec)
        self._buckets = 1
        self._lock = threading.Lock()
        #: Operations of this step, how many of its buckets are not over, and whether its last one has begun.
        self._works: list[Work] = []
        self._open, self._last = 0, False

    def average(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """The mean of a bucket (torch.distributed.GradBucket) over the ranks, in place."""
        with record_function(f"trimwire::bucket {bucket.index()}") as whole:
            return until_done(whole, self.begin(bucket.buffer(), bucket.index(), bucket.is_last(), bucket))

    def begin(self, tensor: torch.Tensor, index: int, last: bool, bucket: Any = None) -> torch.futures.Future[torch.Tensor]:
        """The mean of a tensor over the ranks, in place: bucket `index` of a step, or this rank's part of it."""
        if tensor.layout != torch.strided:
            raise NotImplementedError(f"trimwire: bucket {index} is {tensor.layout}; gradients that travel are dense: nn.Embedding(sparse=False), whose rows without a gradient stay 0")
        self._buckets = max(self._buckets, index + 1)
        # Buckets come from the last layers to the first, which the next forward pass needs first.
        layer_class = (_CLASSES - 1) * (self._buckets - 1 - index) // max(self._buckets - 1, 1)
        kernels = self._coder.kernels(tensor)
        flat = tensor if kernels is not None or on_host(tensor) else tensor.cpu()
        all_reduce = self.group.all_reduce if kernels is None else kernels.all_reduce
        planes, pace = self.planes, 1.0
        if self.adaptive is not None:
            if not self._works:
                # What the ranks have told each other of the step before: the computation since then has hidden it.
                self.adaptive.hear()
            planes, pace = self.adaptive.planes, self.adaptive.pace
        small = [] if bucket is None else of_one_dimension(bucket, self._smallest)
        # Norms and biases are few, and adaptive optimisers feel an error of any of them: they go exactly besides.
        apart = torch.cat([flat[begin:end] for begin, end in small]).float() if small else None
        works = [all_reduce(flat, average=True, planes=planes, consistent=self.consistent, tag=index, layer_class=layer_class, pace=pace)]
        if apart is not None:
            # Kernels sum what may be trimmed; without waiting for the GPU there is no more exact way. Replicas that
            # may differ may be GPUs and hosts, which have to send alike.
            raw = kernels is None and self.consistent
            exactly = {"exact": True} if raw else {"planes": PLANES, "full": True}
            works.append(all_reduce(apart, average=True, tag=index + (1 << 16), layer_class=layer_class, **exactly))
        with self._lock:
            self._works += works
            self._open, self._last = self._open + len(works), last
        promise = Promise([tensor])
        left = len(works)

        def over() -> None:
            nonlocal left
            with self._lock:
                left -= 1
                self._open -= 1
                ended = self._last and self._open == 0
                bucket_over = left == 0
            error = next((error for error in (work.error() for work in works) if error is not None), None)
            try:
                if ended:
                    self._end_step(error)
            except Exception as reason:
                error = error or str(reason)
            if not bucket_over:
                return
            if error is not None:
                promise.fail(CollectiveError(f"bucket {index}: {error}", rank=next((rank for work in works if (rank := work.culprit()) is not None), None)))
                return
            try:
                if apart is not None:
                    put_back(flat, small, apart)
                if flat is not tensor:
                    tensor.copy_(flat)
            except Exception as reason:  # Who waits has to hear of it.
                promise.fail(reason)
                return
            promise.fulfil(tensor)

        for work in works:
            work.then(over)
        return promise.future

    def _end_step(self, error: str | None) -> None:
        """All buckets of a step are over. Before the last of them is said to be: no other step begins until then, so that ranks' operations stay in order."""
        works, self._works = self._works, []
        self._last = False
        if self.adaptive is not None and error is None:
            self.adaptive.tell(self.group, works)

    def stats(self) -> dict[str, float]:
        """Totals: operations, packets received, trimmed and missing, bytes sent, seconds; with an algorithm, its ratio, planes, pace and steps."""
        return {**self.group.stats(), **({} if self.adaptive is None else self.adaptive.stats())}

    def close(self) -> None:
        """Ends; what is under way fails."""
        self.group.close()


def agree_to_start(process_group: dist.ProcessGroup, options: Options, *, fallback: bool, ranks: list[int]) -> Group | None:
    """A group of some of the ranks of `process_group`, where it can start at all ranks; None where it cannot and need not.

    Args:
        process_group: all of its ranks call this.
        options: how the group works.
        fallback: it need not start.
        ranks: of the process group, those that this rank's group is of. Each rank is in one such group.

    Raises:
        RuntimeError: it cannot start, and has to.
    """
    rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
    shared = dist.PrefixStore(str(ranks[0]), _store(process_group))
    timeout = _timeout(process_group)
    group: Group | None = None
    problem: str | None = None
    try:
        group = connect(shared, ranks.index(rank), len(ranks), timeout=timeout, options=options)
    except Exception as error:  # Of whatever kind: the others have to hear of it.
        problem = f"rank {rank}: {type(error).__name__}: {error}"
    problems: list[str | None] = [None] * world
    dist.all_gather_object(problems, problem, group=process_group)
    said = [text for text in problems if text is not None]
    if not said:
        if group is not None and rank == 0:
            announce(group, options, lossy=True)
        return group
    if group is not None:
        group.close()
    text = "trimwire cannot start: " + "; ".join(said)
    if not fallback:
        raise RuntimeError(text)
    warnings.warn(f"{text}; gradients go through {dist.get_backend(process_group)}", RuntimeWarning, stacklevel=3)
    return None


def _timeout(process_group: dist.ProcessGroup) -> datetime.timedelta:
    """That of a group, where its backend tells it."""
    for device in ("cpu", "cuda"):
        try:
            found = process_group._get_backend(torch.device(device)).options._timeout
        except (RuntimeError, AttributeError):
            continue
        if isinstance(found, datetime.timedelta):
            return found
    default: datetime.timedelta = dist.default_pg_timeout
    return default


_registered = 0


def _store(process_group: dist.ProcessGroup) -> dist.Store:
    """The launcher's store, with a prefix of its own for every model."""
    global _registered
    _registered += 1
    store = dist.distributed_c10d._get_process_group_store(process_group)
    return dist.PrefixStore(f"trimwire-hook-{_registered}", store)
