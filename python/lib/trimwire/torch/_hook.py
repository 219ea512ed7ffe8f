# SPDX-License-Identifier: Apache-2.0
"""A communication hook for DistributedDataParallel: gradients through Trimwire, everything else through the model's own group."""

from __future__ import annotations

import datetime
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from .._adaptive import Adaptive
from .._group import Group, Work
from .._native import PLANES
from ._device import Coder, on_host
from ._errors import CollectiveError
from ._future import Promise, until_done
from ._memory import length, of_one_dimension, padded, put_back, words
from ._operations import FLOATS
from ._options import Changes, Options, changed, current
from ._plan import Plan, Treatment
from ._rendezvous import announce, connect, decline
from ._simulated import SimulatedHook, Simulation

if TYPE_CHECKING:
    from typing_extensions import Unpack

_CLASSES = 8


class Hook:
    """What `register` gives DistributedDataParallel: averages buckets of gradients over the ranks."""

    def __init__(
        self,
        group: Group,
        options: Options,
        *,
        plan: Plan | None = None,
        names: dict[torch.nn.Parameter, str] | None = None,
    ) -> None:
        self.group, self.planes, self.consistent, self._smallest = group, options.planes, options.consistent, options.smallest
        self.adaptive = None if options.adaptive is None else Adaptive(options.adaptive, options.planes)
        self._plan, self._names = plan, names or {}
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
        if tensor.dtype not in FLOATS:
            return self._exactly(tensor, index)
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
        pieces = [(0, flat.numel(), Treatment(planes, full=False))]
        if self._plan is not None and bucket is not None:
            pieces = self._plan.pieces(bucket, self._names)
        small = of_one_dimension(bucket, self._smallest) if self._plan is None and bucket is not None else []
        # Norms and biases are few, and adaptive optimisers feel an error of any of them: they go exactly besides.
        apart = torch.cat([flat[begin:end] for begin, end in small]).float() if small else None
        works = [
            all_reduce(
                flat[begin:end],
                average=True,
                planes=treatment.planes,
                full=treatment.full,
                consistent=self.consistent,
                # Buckets have up to 2^16 pieces each.
                tag=index + (nth << 16),
                layer_class=layer_class,
                pace=pace,
            )
            for nth, (begin, end, treatment) in enumerate(pieces)
        ]
        if apart is not None:
            # Kernels sum what may be trimmed; without waiting for the GPU there is no more exact way. Replicas that
            # may differ may be GPUs and hosts, which have to send alike.
            raw = kernels is None and self.consistent
            exactly = {"exact": True} if raw else {"planes": PLANES, "full": True}
            works.append(all_reduce(apart, average=True, tag=index + (len(pieces) << 16), layer_class=layer_class, **exactly))
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

    def _exactly(self, tensor: torch.Tensor, index: int) -> torch.futures.Future[torch.Tensor]:
        """Of what the codec does not know, as float64: everybody gets everything, and takes the mean by itself."""
        own = tensor.detach().cpu().contiguous().view(-1)
        everything = torch.empty(self.group.world * padded(length(own)), dtype=torch.uint8)
        work = self.group.all_gather(words(own).clone(), everything)
        promise = Promise([tensor])

        def over() -> None:
            if (error := work.error()) is not None:
                promise.fail(CollectiveError(f"bucket {index}: {error}", rank=work.culprit()))
                return
            parts = everything.view(self.group.world, -1)[:, : length(own)].contiguous().view(-1).view(own.dtype)
            tensor.copy_(parts.view(self.group.world, -1).mean(0).view(tensor.shape))
            promise.fulfil(tensor)

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

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: with an algorithm what it knows of the network, the same at all ranks; else nothing."""
        return {} if self.adaptive is None else {"adaptive": self.adaptive.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what a checkpoint kept. On all ranks, before the first step."""
        if self.adaptive is not None:
            if "adaptive" not in state:
                raise ValueError("the state has no 'adaptive': it was kept without an algorithm")
            self.adaptive.load_state_dict(state["adaptive"])
        elif state:
            raise ValueError(f"the state has {', '.join(map(repr, state))}, and this hook no algorithm: register(model, adaptive=…)")

    def close(self) -> None:
        """Ends; what is under way fails."""
        self.group.close()


# Without annotations: DistributedDataParallel compares them with its own types, which are strings here.
def _average(hook, bucket):  # type: ignore[no-untyped-def]
    return hook.average(bucket)


def register(
    model: DistributedDataParallel,
    *,
    plan: str | os.PathLike[str] | None = None,
    fallback: bool = False,
    store: dist.Store | None = None,
    simulate: Simulation | None = None,
    options: Options | None = None,
    **changes: Unpack[Changes],
) -> Hook | SimulatedHook | None:
    """Has `model` average its gradients through Trimwire. Its process group, of whatever backend, does everything else.

    Buckets on a GPU are encoded and decoded there, in Triton's kernels (docs/reference/gpu.md); `codec="host"` has the host do it.

    Args:
        model: whose gradients may be trimmed.
        plan: a file of `trimwire-lab plan --json`: tensors are sent as it says. One that was made for another model is refused.
        fallback: a transport that cannot start is a warning, and gradients go the ordinary way, at all ranks alike.
        store: where ranks learn each other's addresses; the process group's by default.
        simulate: gradients go through the model's own group, and lose on their way what packets would lose in such a network.
        options: how the group works; those of `trimwire.torch.options` by default.
        changes: some of `Options`, of `adaptive` for instance: a planes algorithm says after every step with how many planes the next one is sent. Its state is in the hook's `state_dict()`.

    Returns:
        The hook; None where the transport cannot start and `fallback` is given.

    Raises:
        RuntimeError: the transport cannot start at a rank, which is named.
        TypeError: there is no such option; the text names the nearest.
        ValueError: an option has a value that it cannot have, or two of `plan`, `simulate` and `adaptive` are given.
    """
    process_group = model.process_group
    try:
        chosen = changed(current() if options is None else options, dict(changes))
    except ValueError as error:
        # Perhaps of this rank alone, and the others wait.
        if simulate is not None or not dist.is_initialized():
            raise
        agree_to_start(process_group, error, fallback=fallback, store=store)
        return None
    given = [name for name, value in (("adaptive", chosen.adaptive), ("plan", plan), ("simulate", simulate)) if value is not None]
    if len(given) > 1:
        raise ValueError(f"{given[0]} and {given[1]}: one of them says what is sent, give the other up")
    # What is wrong with these is the same at all ranks, and an error of its own.
    if chosen.adaptive is not None:
        Adaptive(chosen.adaptive, chosen.planes)
    made = None if plan is None else Plan(plan, chosen.planes)
    named = dict(model.module.named_parameters())
    if made is not None:
        made.check(named)
    if simulate is not None:
        simulated = SimulatedHook(process_group, simulate)
        model.register_comm_hook(simulated, _average)
        return simulated
    group = agree_to_start(process_group, chosen, fallback=fallback, store=store, plan=None if made is None else made.digest)
    if group is None:
        return None
    hook = Hook(group, chosen, plan=made, names={parameter: name for name, parameter in named.items()})
    model.register_comm_hook(hook, _average)
    return hook


def agree_to_start(process_group: dist.ProcessGroup, options: Options | ValueError, *, fallback: bool, store: dist.Store | None = None, plan: str | None = None, ranks: list[int] | None = None) -> Group | None:
    """A group of the ranks of `process_group`, or of some of them, where it can start at all ranks; None where it cannot and need not.

    Args:
        process_group: all of its ranks call this.
        options: how the group works; or why this rank cannot tell.
        fallback: it need not start.
        store: the process group's by default.
        plan: as `connect`.
        ranks: of the process group, those that this rank's group is of; all by default. Each rank is in one such group.

    Raises:
        RuntimeError: it cannot start, and has to.
    """
    rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
    members = list(range(world)) if ranks is None else ranks
    shared = store if store is not None else _store(process_group)
    shared = dist.PrefixStore("-".join(map(str, members[:1])), shared)
    timeout = _timeout(process_group)
    group: Group | None = None
    problem: str | None = None
    try:
        if isinstance(options, ValueError):
            decline(shared, members.index(rank), len(members), timeout, options)
            raise options
        group = connect(shared, members.index(rank), len(members), timeout=timeout, options=options, plan=plan)
    except Exception as error:  # Of whatever kind: the others have to hear of it.
        problem = f"rank {rank}: {type(error).__name__}: {error}"
    problems: list[str | None] = [None] * world
    dist.all_gather_object(problems, problem, group=process_group)
    said = [text for text in problems if text is not None]
    if not said:
        if group is not None and rank == 0 and isinstance(options, Options):
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
