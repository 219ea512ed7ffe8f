"""A communication hook for DistributedDataParallel: gradients through Trimwire, everything else through the model's own group."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from .._adaptive import Adaptive
from .._group import DEFAULT_PLANES, Group, Work
from ._device import Coder, on_host
from ._future import Promise, until_done
from ._plan import Plan, Treatment
from ._rendezvous import connect
from ._simulated import SimulatedHook, Simulation

_CLASSES = 8


class Hook:
    """What `register` gives DistributedDataParallel: averages buckets of gradients over the ranks."""

    def __init__(
        self,
        group: Group,
        *,
        planes: int = DEFAULT_PLANES,
        consistent: bool = False,
        adaptive: Adaptive | None = None,
        plan: Plan | None = None,
        names: dict[torch.nn.Parameter, str] | None = None,
        codec: str = "auto",
    ) -> None:
        self.group, self.planes, self.consistent = group, planes, consistent
        self.adaptive, self._plan, self._names = adaptive, plan, names or {}
        self._coder = Coder(group, codec)
        self._buckets = 1
        self._lock = threading.Lock()
        #: Operations of this step, how many of its buckets are not over, and whether its last one has begun.
        self._works: list[Work] = []
        self._open, self._last = 0, False

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
        if self._plan is not None:
            pieces = self._plan.pieces(bucket, self._names)
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
        with self._lock:
            self._works += works
            self._open, self._last = self._open + len(works), bucket.is_last()
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
                promise.fail(RuntimeError(f"bucket {index}: {error}"))
                return
            try:
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
        """Totals: operations, packets received, cut and missing, bytes sent, seconds; with a law, its ratio, planes, pace and steps."""
        return {**self.group.stats(), **({} if self.adaptive is None else self.adaptive.stats())}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: with a law what it knows of the network, the same at all ranks; else nothing."""
        return {} if self.adaptive is None else {"adaptive": self.adaptive.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what a checkpoint kept. On all ranks, before the first step."""
        if self.adaptive is not None:
            if "adaptive" not in state:
                raise ValueError("the state has no 'adaptive': it was kept without a law")
            self.adaptive.load_state_dict(state["adaptive"])
        elif state:
            raise ValueError(f"the state has {', '.join(map(repr, state))}, and this hook no law: register(model, adaptive=…)")

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
    adaptive: str | None = None,
    plan: str | os.PathLike[str] | None = None,
    fallback: bool = False,
    store: dist.Store | None = None,
    simulate: Simulation | None = None,
    codec: str = "auto",
    **arguments: Any,
) -> Hook | SimulatedHook | None:
    """Has `model` average its gradients through Trimwire. Its process group, of whatever backend, does everything else.

    With `fallback`, a transport that cannot start is a warning, and gradients go the ordinary way (gives None); otherwise it is an error. Where some ranks can
    start and others cannot, all of them do the same. Further arguments are those of `trimwire.Group.connect`.

    With `adaptive`, a law (`netsense`, `da2`, `trim-feedback:budget_ms=20`, …; docs/planner.md) says after every step with how many planes, up to `planes`, the next one is sent;
    its state is in the hook's `state_dict()`. With `plan`, a file of `trimwire plan --json`, tensors are sent as it says; one that was made for another model is refused.

    Buckets on a GPU are encoded and decoded there, in Triton's kernels (docs/gpu.md); `codec="host"` has the host do it.

    With `simulate` nothing of that: gradients go through the model's own group, and lose on their way what packets would lose in such a network.
    """
    process_group = model.process_group
    given = [name for name, value in (("adaptive", adaptive), ("plan", plan), ("simulate", simulate)) if value is not None]
    if len(given) > 1:
        raise ValueError(f"{given[0]} and {given[1]}: one of them says what is sent, give the other up")
    # What is wrong with these is the same at all ranks, and an error of its own.
    law = None if adaptive is None else Adaptive(adaptive, planes)
    made = None if plan is None else Plan(plan, planes)
    named = dict(model.module.named_parameters())
    if made is not None:
        made.check(named)
    if simulate is not None:
        simulated = SimulatedHook(process_group, simulate)
        model.register_comm_hook(simulated, _average)
        return simulated
    rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
    if law is not None:
        arguments.setdefault("rate_law", law.rate_law)
    shared = store if store is not None else _store(process_group)
    group: Group | None = None
    problem: str | None = None
    try:
        group = connect(shared, rank, world, timeout=dist.default_pg_timeout, planes=planes, adaptive=adaptive, plan=None if made is None else made.digest, codec=codec, consistent=consistent, **arguments)
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
    names = {parameter: name for name, parameter in named.items()}
    hook = Hook(group, planes=planes, consistent=consistent, adaptive=law, plan=made, names=names, codec=codec)
    model.register_comm_hook(hook, _average)
    return hook


_registered = 0


def _store(process_group: dist.ProcessGroup) -> dist.Store:
    """The launcher's store, with a prefix of its own for every model."""
    global _registered
    _registered += 1
    store = dist.distributed_c10d._get_process_group_store(process_group)
    return dist.PrefixStore(f"trimwire-hook-{_registered}", store)
