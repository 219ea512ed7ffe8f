# SPDX-License-Identifier: Apache-2.0
"""The communication hook, a (state, hook) pair as PyTorch's own: for DistributedDataParallel, and for whoever takes such pairs (Lightning, Accelerate, Trainer).

With several ranks a host the mean is taken on two levels. `local_size` is L below:

    bucket ── reduce-scatter inside the host ──► 1/L of it ── all-reduce between hosts, through Trimwire ──► ── all-gather inside the host ──► bucket

Inside a host it is the process group's own backend that works (NCCL on GPUs). Between hosts a rank carries 1/L of the bucket, with the ranks that have its place on the other hosts.
"""

from __future__ import annotations

import os
import queue
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from .._adaptive import Adaptive
from ._future import Promise
from ._hook import Hook, agree_to_start
from ._operations import FLOATS
from ._options import Options, given, one_of, within
from ._simulated import SimulatedHook, Simulation


class TrimwireState:
    """What `trimwire_hook` works with. Nothing is connected before the first bucket that needs it, so that it may be made before `init_process_group`.

    Args:
        process_group: the model's; None: the default one.
        local_size: ranks of each host, which have successive numbers; None: what TRIMWIRE_LOCAL_SIZE says, or torchrun in LOCAL_WORLD_SIZE, or else 1. 1 has every rank send for itself.
        warmup_steps: gradients of the first steps go the ordinary way, exactly.
        fallback: a transport that cannot start is a warning, and gradients go the ordinary way, at all ranks alike.
        simulate: gradients go through the model's own group, and lose on their way what packets would lose in such a network. All ranks are hosts then.
        options: how the group between hosts works, `Options` or a dict of some of them; those of `trimwire.torch.options` by default.

    Raises:
        TypeError: there is no such option; the text names the nearest.
        ValueError: `warmup_steps`, `local_size` or an option cannot be; an environment variable of `trimwire.torch.options` has a value that cannot be; and, from the first backward pass, where `local_size` does not divide the number of ranks.
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        local_size: int | None = None,
        warmup_steps: int = 0,
        fallback: bool = False,
        simulate: Simulation | None = None,
        options: Options | dict[str, Any] | None = None,
    ) -> None:
        within("warmup_steps", warmup_steps, 0)
        within("local_size", 1 if local_size is None else local_size, 1)
        one_of("fallback", fallback, True, False)
        self.process_group, self.warmup_steps, self.fallback, self.simulate, self.options = process_group, warmup_steps, fallback, simulate, options
        # What is wrong with them is told where the program begins, not in the first backward pass.
        self._chosen = given(options)
        if simulate is not None and self._chosen.adaptive is not None:
            raise ValueError("adaptive and simulate: one of them says what is sent, give the other up")
        #: The planes algorithm, where options name one.
        self.adaptive = None if self._chosen.adaptive is None else Adaptive(self._chosen.adaptive, self._chosen.planes)
        self._local_size = local_size
        #: Steps that have begun.
        self.step = 0
        self._failed = False
        self._hook: Hook | SimulatedHook | None = None
        self._levels: _Levels | None = None
        #: Parameters of the model that was averaged last, and of the one before it, by their ids.
        self._parameters: dict[int, weakref.ref[torch.Tensor]] = {}
        self._earlier: dict[int, weakref.ref[torch.Tensor]] = {}

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
        if self.simulate is not None:
            self._hook = SimulatedHook(self.group, self.simulate)
            return
        rank, world, size = dist.get_rank(self.group), dist.get_world_size(self.group), self.local_size
        if size < 1 or world % size:
            raise ValueError(f"local_size: {size}, of {world} ranks in all; every host has to have as many")
        if size == world > 1 and rank == 0:
            warnings.warn(f"local_size is {size}, and there are {world} ranks: all are on one host, and no gradient goes through trimwire. TRIMWIRE_LOCAL_SIZE=1 has every rank send for itself", RuntimeWarning, stacklevel=2)
        group = agree_to_start(self.group, self._chosen, fallback=self.fallback, ranks=list(range(rank % size, world, size)))
        if group is None:
            self._failed = True
            return
        self._hook = hook = Hook(group, self._chosen, self.adaptive)
        if size > 1:
            self._levels = _Levels(hook, self.group, size)

    def average(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """The mean of a bucket over all ranks, in place.

        Raises:
            ValueError: buckets of two models take turns.
        """
        self._refuse_two_models(bucket)
        if bucket.index() == 0:
            self.step += 1
        if self.step > self.warmup_steps:
            self.connect()
        # What the codec does not know, float64, goes the ordinary way, too.
        if self._hook is None or self.step <= self.warmup_steps or bucket.buffer().dtype not in FLOATS:
            return self._plainly(bucket.buffer())
        if self._levels is not None:
            return self._levels.average(bucket.buffer(), bucket.index(), bucket.is_last())
        return self._hook.average(bucket)

    def _refuse_two_models(self, bucket: Any) -> None:
        """Steps would count twice, and the operations of one model would be taken for those of the other."""
        own = bucket.parameters()

        def among(known: dict[int, weakref.ref[torch.Tensor]]) -> bool:
            return (found := known.get(id(own[0]))) is not None and found() is own[0]

        if among(self._earlier):
            raise ValueError("one TrimwireState averages two models: each needs a state of its own")
        if bucket.index() == 0 and not among(self._parameters):
            # Another one in its place is none beside it, unless the first comes again.
            self._earlier, self._parameters = self._parameters, {}
        self._parameters |= {id(parameter): weakref.ref(parameter) for parameter in own if id(parameter) not in self._parameters}

    def _plainly(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        # Divided first, as PyTorch's own hook does: sums of float16 overflow later.
        tensor.div_(dist.get_world_size(self.group))
        work = dist.all_reduce(tensor, group=self.group, async_op=True)
        first: Callable[[Any], torch.Tensor] = lambda future: future.value()[0]  # noqa: E731
        return work.get_future().then(first)

    def stats(self) -> dict[str, float]:
        """Totals of what went between hosts, and with a planes algorithm its ratio, planes, pace and steps; nothing before the first bucket."""
        return {} if self._hook is None else self._hook.stats()

    def close(self) -> None:
        """Ends; what is under way fails."""
        if self._levels is not None:
            self._levels.close()
        if self._hook is not None:
            self._hook.close()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: the step, and what a planes algorithm knows of the network, the same at all ranks."""
        return {"step": self.step, "adaptive": None if self.adaptive is None else self.adaptive.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what a checkpoint kept. On all ranks, before the first step.

        Raises:
            ValueError: it was kept with another planes algorithm, or one with and the other without.
        """
        kept = state["adaptive"]
        if (kept is None) != (self.adaptive is None):
            raise ValueError(f"adaptive: the state was kept {'without' if kept is None else 'with'} an algorithm, and the options are {'without' if self.adaptive is None else 'with'} one")
        if self.adaptive is not None:
            self.adaptive.load_state_dict(kept)
        self.step = state["step"]

    def __getstate__(self) -> dict[str, Any]:
        """For checkpoints: connections are made anew."""
        arguments = {"local_size": self._local_size, "warmup_steps": self.warmup_steps, "fallback": self.fallback, "simulate": self.simulate, "options": self.options}
        return {"arguments": arguments, "state": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(None, **state["arguments"])  # type: ignore[misc]
        self.load_state_dict(state["state"])


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

