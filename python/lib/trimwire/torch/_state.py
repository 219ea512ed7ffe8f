# SPDX-License-Identifier: Apache-2.0
"""A (state, hook) pair as PyTorch's own: for DistributedDataParallel, and for whoever takes such pairs (Lightning, Accelerate, Trainer).

With several ranks a host the mean is taken on two levels. `local_size` is L below:

    bucket ── reduce-scatter inside the host ──► 1/L of it ── all-reduce between hosts, through Trimwire ──► ── all-gather inside the host ──► bucket

Inside a host it is the process group's own backend that works (NCCL on GPUs). Between hosts a rank carries 1/L of the bucket, with the ranks that have its place on the other hosts.
"""

from __future__ import annotations

import os
import queue
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ._future import Promise
from ._hook import Hook, agree_to_start
from ._options import Options, current, given


class TrimwireState:
    """What `trimwire_hook` works with. Nothing is connected before the first bucket that needs it, so that it may be made before `init_process_group`.

    Args:
        process_group: the model's; None: the default one.
        local_size: ranks of each host, which have successive numbers; None: what TRIMWIRE_LOCAL_SIZE says, or torchrun in LOCAL_WORLD_SIZE, or else 1. 1 has every rank send for itself.
        warmup_steps: gradients of the first steps go the ordinary way, exactly.
        fallback: a transport that cannot start is a warning, and gradients go the ordinary way, at all ranks alike.
        options: how the group between hosts works, `Options` or a dict of some of them; those of `trimwire.torch.options` by default.

    Raises:
        TypeError: there is no such option; the text names the nearest.
        ValueError: `warmup_steps`, `local_size` or an option cannot be; an environment variable of `trimwire.torch.options` has a value that cannot be; and, from the first backward pass, where `local_size` does not divide the number of ranks.
    """

    def __init__(self, process_group: dist.ProcessGroup | None = None, *, local_size: int | None = None, warmup_steps: int = 0, fallback: bool = False, options: Options | dict[str, Any] | None = None) -> None:
        for name, value, least in (("warmup_steps", warmup_steps, 0), ("local_size", 1 if local_size is None else local_size, 1)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name}: {value!r}; valid are whole numbers from {least} on")
        self.process_group, self.warmup_steps, self.fallback = process_group, warmup_steps, fallback
        # What is wrong with them is told where the program begins, not in the first backward pass.
        chosen = given(options)
        self.options = None if options is None else chosen
        self._local_size = local_size
        #: Steps that have begun.
        self.step = 0
        self._failed = False
        #: What a checkpoint kept of the hook, until there is one.
        self._kept: dict[str, Any] = {}
        self._hook: Hook | None = None
        self._levels: _Levels | None = None

    @property
    def local_size(self) -> int:
        """Ranks of each host."""
        if self._local_size is not None:
            return self._local_size
        return int(os.environ.get("TRIMWIRE_LOCAL_SIZE") or os.environ.get("LOCAL_WORLD_SIZE") or 1)

    @property
    def group(self) -> dist.ProcessGroup:
        """The model's process group."""
        return dist.group.WORLD if self.process_group is None else self.process_group

    def connect(self) -> None:
        """What the first bucket would do otherwise; all ranks call it.

        Raises:
            RuntimeError: the transport cannot start, and there is no `fallback`.
            ValueError: as the class.
        """
        if self._hook is not None or self._failed:
            return
        rank, world, size = dist.get_rank(self.group), dist.get_world_size(self.group), self.local_size
        if size < 1 or world % size:
            raise ValueError(f"local_size: {size}, of {world} ranks in all; every host has to have as many")
        if size == world > 1 and rank == 0:
            warnings.warn(f"local_size is {size}, and there are {world} ranks: all are on one host, and no gradient goes through trimwire. TRIMWIRE_LOCAL_SIZE=1 has every rank send for itself", RuntimeWarning, stacklevel=2)
        chosen = current() if self.options is None else self.options
        group = agree_to_start(self.group, chosen, fallback=self.fallback, ranks=list(range(rank % size, world, size)))
        if group is None:
            self._failed = True
            return
        self._hook = Hook(group, chosen)
        if self._kept:
            self._hook.load_state_dict(self._kept)
        if size > 1:
            self._levels = _Levels(self._hook, self.group, size)

    def average(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """The mean of a bucket over all ranks, in place."""
        if bucket.index() == 0:
            self.step += 1
        if self.step > self.warmup_steps:
            self.connect()
        if self._hook is None or self.step <= self.warmup_steps:
            return self._plainly(bucket.buffer())
        if self._levels is not None:
            return self._levels.average(bucket.buffer(), bucket.index(), bucket.is_last())
        return self._hook.average(bucket)

    def _plainly(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        # Divided first, as PyTorch's own hook does: sums of float16 overflow later.
        tensor.div_(dist.get_world_size(self.group))
        work = dist.all_reduce(tensor, group=self.group, async_op=True)
        first: Callable[[Any], torch.Tensor] = lambda future: future.value()[0]  # noqa: E731
        return work.get_future().then(first)

    def stats(self) -> dict[str, float]:
        """Totals of what went between hosts; nothing before the first bucket."""
        return {} if self._hook is None else self._hook.stats()

    def close(self) -> None:
        """Ends; what is under way fails."""
        if self._levels is not None:
            self._levels.close()
        if self._hook is not None:
            self._hook.close()

    def __getstate__(self) -> dict[str, Any]:
        """For checkpoints: connections are made anew."""
        return {"local_size": self._local_size, "warmup_steps": self.warmup_steps, "fallback": self.fallback, "options": self.options, "step": self.step, "hook": self._kept if self._hook is None else self._hook.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(None, local_size=state["local_size"], warmup_steps=state["warmup_steps"], fallback=state["fallback"], options=state["options"])  # type: ignore[misc]
        self.step, self._kept = state["step"], state["hook"]


# Without annotations: DistributedDataParallel compares them with its own types, which are strings here.
def trimwire_hook(state, bucket):  # type: ignore[no-untyped-def]
    """The mean of a bucket of gradients over all ranks: `model.register_comm_hook(TrimwireState(), trimwire_hook)`."""
    return state.average(bucket)


class _Levels:
    """Buckets under way, in the order of their numbers on both levels, as every rank has to call the same operations in the same order."""

    def __init__(self, hook: Hook, group: dist.ProcessGroup, size: int) -> None:
        self._hook, self._size = hook, size
        rank = dist.get_rank(group)
        first = rank - rank % size
        members = [dist.get_global_rank(group, first + place) for place in range(size)]
        backend = dist.get_backend(group)
        # One is used by who computes gradients, the other by a thread: each in an order of its own.
        self._scattering, self._gathering = (dist.new_group(members, backend=backend, use_local_synchronization=True, group_desc=f"trimwire-{way}") for way in ("scatter", "gather"))
        self._place = rank % size
        self._scattered: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._averaged: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, args=arguments, name=f"trimwire-level-{nth}", daemon=True) for nth, arguments in enumerate(((self._scattered, self._between), (self._averaged, self._inside)))]
        for thread in self._threads:
            thread.start()

    def average(self, tensor: torch.Tensor, index: int, last: bool) -> torch.futures.Future[torch.Tensor]:
        """Begins."""
        promise = Promise([tensor])
        length = tensor.numel()
        shard = -(-length // self._size)
        whole = tensor
        if shard * self._size != length:
            whole = torch.nn.functional.pad(tensor, (0, shard * self._size - length))
        own = torch.empty(shard, dtype=tensor.dtype, device=tensor.device)
        # A mean inside and a mean between are the mean of all.
        whole = whole.div(self._size)
        work = dist.reduce_scatter_tensor(own, whole, group=self._scattering, async_op=True)
        stream = torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None
        self._scattered.put((promise, stream, work, (tensor, whole, own, index, last)))
        return promise.future

    def _between(self, promise: Promise, stream: Any, state: Any) -> None:
        tensor, whole, own, index, last = state
        self._averaged.put((promise, stream, self._hook.begin(own, index, last), (tensor, whole, own)))

    def _inside(self, promise: Promise, stream: Any, state: Any) -> None:
        tensor, whole, own = state
        work = dist.all_gather_into_tensor(whole, own, group=self._gathering, async_op=True)
        # The next bucket has this thread only when this one is there: its memory is the gradient's.
        work.wait()
        tensor.copy_(whole[: tensor.numel()])
        promise.fulfil(tensor)

    def _run(self, waiting: queue.SimpleQueue[Any], go_on: Callable[..., None]) -> None:
        while (item := waiting.get()) is not None:
            promise, stream, work, state = item
            try:
                # What is waited for on a stream of this thread's is there for what this thread does next.
                with torch.cuda.stream(stream):
                    work.wait()
                    go_on(promise, stream, state)
            except BaseException as error:  # Who waits for the bucket has to hear of it.
                promise.fail(error.with_traceback(None))

    def close(self) -> None:
        """No more buckets."""
        self._scattered.put(None)
        self._averaged.put(None)

