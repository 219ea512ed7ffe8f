"""A ProcessGroup in Python, over the native collectives."""

from __future__ import annotations

import datetime
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import record_function

from .._adaptive import Adaptive
from .._group import DEFAULT_PLANES, Group
from .._native import Work
from ._device import Coder, on_host
from ._future import Promise, until_done
from ._rendezvous import connect
from ._tags import Tags

BACKEND = "trimwire"

#: What can be cut and summed. All else travels bit by bit.
#: Sums of a step that a law hears of, at most.
_REMEMBERED = 4_096
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Options:
    """How groups that are made from now on work."""

    #: Planes sent of each coordinate, 1 to 10; nine are two bytes.
    planes: int = DEFAULT_PLANES
    #: Sums of fewer elements are exact: losses, norms and counters, which are no gradients.
    smallest: int = 16_384
    #: Every rank decodes at the precision of the one that got least.
    consistent: bool = False
    #: Gradients that are scattered (FSDP) may be cut.
    lossy_reduce_scatter: bool = True
    #: Parameters that are gathered (FSDP) may be cut. What the optimiser steps stays exact, but a checkpoint that is gathered is cut, too.
    lossy_all_gather: bool = False
    #: Bits a second that a rank sends at most; None: the interface's speed.
    rate_bps: int | None = None
    #: Seconds that a queue takes from which switches cut: the fabric file's least `shallow_at` over the line's rate. None: 20 µs, which is too little for links slower than some Gbit/s.
    trim_delay: float | None = None
    #: Threads that encode and decode; None: the processors of this process but one, at most 4.
    threads: int | None = None
    #: A silent rank is given up after so many seconds.
    give_up: float = 10.0
    #: 32 bytes, a secret of the job: packets are sealed.
    key: bytes | None = None
    #: A law that says with how many planes, up to `planes`, the sums of the next step are sent (docs/planner.md). Steps end as optimisers of torch.optim step, at all ranks alike.
    adaptive: str | None = None
    #: Who codes what may be cut: 'auto', Triton's kernels for tensors of a GPU (docs/gpu.md); 'host', the host for all; 'triton', kernels for all, without a GPU in Triton's interpreter.
    codec: str = "auto"
    #: A file that what arrives of every packet is written into (docs/transcript.md): `{rank}` is replaced, else `.RANK` appended. Groups beside the default one have their seed behind the name, in hexadecimal digits.
    record: str | None = None


_options = Options()


@contextmanager
def _restored(before: Options) -> Iterator[Options]:
    global _options
    try:
        yield _options
    finally:
        _options = before


def options(**changes: Any) -> Any:
    """Changes how groups that are made from now on work; as a context manager, until its end. See `Options` for what there is."""
    global _options
    before = _options
    _options = replace(_options, **changes)
    return _restored(before)


class _Work(dist._Work):
    """What torch waits for: native works, and what is to be done when all of them are over."""

    def __init__(self, works: list[Work], result: list[torch.Tensor], finish: Callable[[], None] | None) -> None:
        super().__init__()
        self._works, self._result, self._finish = works, result, finish
        self._promise = Promise(result)
        self._left = len(works)
        self._lock = threading.Lock()

    def begin(self) -> None:
        with record_function("trimwire::collective") as whole:
            for work in self._works:
                work.then(self._one_over)
            if not self._works:
                self._all_over()
            until_done(whole, self._promise.future)

    def _one_over(self) -> None:
        with self._lock:
            self._left -= 1
            over = self._left == 0
        if over:
            self._all_over()

    def _all_over(self) -> None:
        try:
            for work in self._works:
                work.wait()
            if self._finish is not None:
                self._finish()
        except BaseException as error:  # Whatever it is, who waits has to hear of it.
            self._promise.fail(error)
        else:
            self._promise.fulfil(self._result)

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        if timeout is not None and timeout.total_seconds() > 0:
            for work in self._works:
                work.wait(timeout.total_seconds())
        with record_function("trimwire::wait"):
            self._promise.future.wait()
        return True

    def is_completed(self) -> bool:
        return bool(self._promise.future.done())

    def is_success(self) -> bool:
        return bool(self._promise.future.done()) and all(work.error() is None for work in self._works)

    def result(self) -> list[torch.Tensor]:
        self._promise.future.wait()
        return self._result

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        return self._promise.future


#: Before PyTorch 2.8 a work that is a Python object may die while C++ still waits for it (PyProcessGroup did not hold it): the latest are held here.
_held: deque[_Work] | None = None
if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 8):
    _held = deque(maxlen=256)


def _work(works: list[Work], result: list[torch.Tensor], finish: Callable[[], None] | None = None) -> dist.Work:
    made = _Work(works, result, finish)
    if _held is not None:
        _held.append(made)
    made.begin()
    return made


def _flat(tensor: torch.Tensor) -> tuple[torch.Tensor, Callable[[], None] | None]:
    """A contiguous tensor in the host's memory, and how its result gets back where it has to be copied."""
    if tensor.layout != torch.strided:
        raise NotImplementedError(f"trimwire: a tensor is {tensor.layout}; dense ones travel, of others make a group of another backend: torch.distributed.new_group(backend='gloo')")
    flat = tensor.detach()
    if on_host(flat) and flat.is_contiguous():
        return flat.view(-1), None
    copy = flat.to("cpu", copy=True).contiguous()
    return copy.view(-1), lambda: tensor.detach().copy_(copy.view(tensor.shape))


def _words(tensor: torch.Tensor, copy_back: bool) -> tuple[torch.Tensor, Callable[[], None] | None]:
    """The bytes of a flat tensor as whole words of four; and how they get back where they had to be copied."""
    length = tensor.numel() * tensor.element_size()
    if length % 4 == 0 and tensor.data_ptr() % 4 == 0:
        return (tensor.view(torch.uint8) if length else tensor.new_empty(0, dtype=torch.uint8)), None
    padded = torch.zeros((length + 3) // 4 * 4, dtype=torch.uint8)
    padded[:length] = tensor.view(torch.uint8)
    if not copy_back:
        return padded, None
    return padded, lambda: tensor.view(torch.uint8).copy_(padded[:length])


def _then(*steps: Callable[[], None] | None) -> Callable[[], None] | None:
    there = [step for step in steps if step is not None]
    if not there:
        return None

    def run() -> None:
        for step in there:
            step()

    return run


_REDUCE: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    dist.ReduceOp.SUM: lambda parts: parts.sum(0, dtype=parts.dtype),
    dist.ReduceOp.PRODUCT: lambda parts: parts.prod(0, dtype=parts.dtype),
    dist.ReduceOp.MIN: lambda parts: parts.amin(0),
    dist.ReduceOp.MAX: lambda parts: parts.amax(0),
    dist.ReduceOp.AVG: lambda parts: parts.mean(0) if parts.is_floating_point() else parts.sum(0, dtype=parts.dtype) // parts.shape[0],
}


def _bitwise(operation: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def reduce(parts: torch.Tensor) -> torch.Tensor:
        total = parts[0].clone()
        for part in parts[1:]:
            total = operation(total, part)
        return total

    return reduce


_REDUCE[dist.ReduceOp.BAND] = _bitwise(torch.bitwise_and)
_REDUCE[dist.ReduceOp.BOR] = _bitwise(torch.bitwise_or)
_REDUCE[dist.ReduceOp.BXOR] = _bitwise(torch.bitwise_xor)


def _reduction(op: Any) -> Any:
    # Some versions wrap the operation.
    for known in _REDUCE:
        if op == known:
            return known
    raise NotImplementedError(f"trimwire: {op} is not supported; {', '.join(str(known) for known in _REDUCE)} are")


class _HandedOver:
    """In the place of a group that another one has taken over."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("this process group is of ranks that are gone: trimwire.torch.shrink() has made another default group, for which DistributedDataParallel and whatever else knows the old one is made anew")


class ProcessGroupTrimwire(dist.ProcessGroup):
    """All ranks of a torch.distributed group.

    Sums and means of float32, float16 and bfloat16 tensors of `Options.smallest` elements and more are gradients, whose packets may be cut; everything
    else arrives bit by bit.
    """

    def __init__(self, store: dist.Store, rank: int, world: int, timeout: datetime.timedelta, before: ProcessGroupTrimwire | None = None) -> None:
        super().__init__(rank, world)
        #: What comes after `before` works as it did.
        chosen: Options = _options if before is None else before._chosen
        self._chosen: Options = chosen
        self._own_rank, self._world, self._name = rank, world, ""
        self.store, self.timeout = store, timeout
        self._handed_over: Group | None = None
        self._tags = Tags()
        self.adaptive = None if chosen.adaptive is None else Adaptive(chosen.adaptive, chosen.planes)
        #: Sums of this step; of a job whose optimiser never says that one is over, the latest.
        self._lossy: deque[Work] = deque(maxlen=_REMEMBERED)
        law = {} if self.adaptive is None else {"adaptive": chosen.adaptive, "rate_law": self.adaptive.rate_law}
        self.native: Group = before.heritage() if before is not None else connect(
            store,
            rank,
            world,
            timeout=timeout,
            planes=chosen.planes,
            rate_bps=chosen.rate_bps,
            trim_delay=chosen.trim_delay,
            threads=chosen.threads,
            give_up=chosen.give_up,
            key=chosen.key,
            record=chosen.record,
            apart=dist.is_initialized(),
            codec=chosen.codec,
            consistent=chosen.consistent,
            **law,
        )
        self._coder = Coder(self.native, chosen.codec)

    def getBackendName(self) -> str:
        return BACKEND

    @property
    def group_name(self) -> str:
        """What torch.distributed calls this group; device meshes look it up."""
        # The class below keeps it only for groups that are made of backends. Who destroys a group asks once more, when it is forgotten there.
        self._name = str(dist.distributed_c10d._world.pg_names.get(self, self._name))
        return self._name

    pg_name = group_name

    def size(self) -> int:
        return self._world

    def rank(self) -> int:
        return self._own_rank

    def stats(self) -> dict[str, float]:
        """Totals: operations, packets received, cut and missing, bytes sent, seconds; with a law, its ratio, planes, pace and steps."""
        return {**self.native.stats(), **({} if self.adaptive is None else self.adaptive.stats())}

    def _sent(self, kind: str, tensor: torch.Tensor, lossy: bool) -> dict[str, Any]:
        """How a sum is sent."""
        if not lossy:
            return {"exact": True}
        tag = self._tags.next(kind, tensor)
        planes, pace = self._chosen.planes, 1.0
        if self.adaptive is not None:
            if self._tags.has_stepped() and self._lossy:
                works = list(self._lossy)
                self._lossy.clear()
                for work in works:
                    work.wait()
                self.adaptive.tell(self.native, works)
                self.adaptive.hear()
            planes, pace = self.adaptive.planes, self.adaptive.pace
        return {"planes": planes, "pace": pace, "tag": tag}

    def _keep(self, work: Work, lossy: bool) -> Work:
        if lossy and self.adaptive is not None:
            self._lossy.append(work)
        return work

    def hand_over(self) -> None:
        """Another group goes on with this one's connections: their end is not this one's, whose operations fail from now on. Its mean would be of ranks that are gone."""
        self._handed_over = self.native
        gone: Any = _HandedOver()
        self.native = self._coder = gone

    def heritage(self) -> Group:
        """What `hand_over` has left."""
        if self._handed_over is None:
            raise RuntimeError("this process group has not handed its connections over")
        return self._handed_over

    def shutdown(self) -> None:
        """Ends; what is under way fails."""
        if self._handed_over is None:
            self.native.close()

    def abort(self) -> None:
        """As `shutdown`."""
        self.shutdown()

    # Every operation copies where it has to: tensors that are not contiguous, or not in the host's memory.

    def _sums(self, tensor: torch.Tensor, op: Any, floor: int) -> bool:
        return tensor.dtype in _FLOATS and op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG) and tensor.numel() >= floor

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> dist.Work:
        op = _reduction(getattr(opts, "reduceOp", dist.ReduceOp.SUM))
        works, steps = [], []
        for tensor in tensors:
            if self._sums(tensor, op, self._chosen.smallest) and (kernels := self._coder.kernels(tensor)) is not None:
                work = kernels.all_reduce(tensor, average=op == dist.ReduceOp.AVG, consistent=self._chosen.consistent, **self._sent("all_reduce", tensor, True))
                works.append(self._keep(work, True))
                continue
            flat, back = _flat(tensor)
            if self._sums(flat, op, 0):
                lossy = flat.numel() >= self._chosen.smallest
                work = self.native.all_reduce(flat, average=op == dist.ReduceOp.AVG, consistent=self._chosen.consistent, **self._sent("all_reduce", flat, lossy))
                works.append(self._keep(work, lossy))
                steps.append(back)
            else:
                work, step = self._gather_and_reduce(flat, op)
                works.append(work)
                steps += [step, back]
        return _work(works, tensors, _then(*steps))

    def _gather_and_reduce(self, flat: torch.Tensor, op: Any) -> tuple[Work, Callable[[], None]]:
        """What is no sum of floats: everybody gets everything, and reduces by itself, in order of rank."""
        words, _ = _words(flat, copy_back=False)
        everything = torch.empty(self._world * words.numel(), dtype=torch.uint8)

        def reduce() -> None:
            length = flat.numel() * flat.element_size()
            parts = everything.view(self._world, -1)[:, :length].contiguous().view(flat.dtype).view(self._world, -1)
            flat.copy_(_REDUCE[op](parts))

        return self.native.all_gather(words, everything), reduce

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> dist.Work:
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:
        works, steps = [], []
        for tensor in tensors:
            flat, back = _flat(tensor)
            words, unpad = _words(flat, copy_back=True)
            works.append(self.native.broadcast(words, opts.rootRank))
            steps += [unpad, back]
        return _work(works, tensors, _then(*steps))

    def _gather(self, output: torch.Tensor, input: torch.Tensor) -> tuple[Work, Callable[[], None] | None]:
        if self._chosen.lossy_all_gather and input.dtype in _FLOATS and input.numel() >= self._chosen.smallest and output.is_contiguous():
            if (kernels := self._coder.kernels(input)) is not None:
                own = input.clone() if input.untyped_storage().data_ptr() == output.untyped_storage().data_ptr() else input
                return kernels.all_gather(own, output, planes=self._chosen.planes), None
        (flat, back), (own, _) = _flat(output), _flat(input)
        if self._chosen.lossy_all_gather and own.dtype in _FLOATS and own.numel() >= self._chosen.smallest:
            if own.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr():
                own = own.clone()
            return self.native.all_gather(own, flat, exact=False, planes=self._chosen.planes), back
        length = own.numel() * own.element_size()
        shared = own.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()
        if length % 4 == 0 and own.data_ptr() % 4 == 0 and flat.data_ptr() % 4 == 0:
            # One that is gathered into itself is copied: rows are read while others are written.
            own = own.clone() if shared else own
            return self.native.all_gather(_words(own, False)[0], _words(flat, True)[0]), back
        words, _ = _words(own, copy_back=False)
        everything = torch.empty(self._world * words.numel(), dtype=torch.uint8)

        def unpad() -> None:
            flat.view(torch.uint8).copy_(everything.view(self._world, -1)[:, :length].reshape(-1))

        return self.native.all_gather(words, everything), _then(unpad, back)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:
        work, step = self._gather(output, input)
        return _work([work], [output], step)

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        works, steps = [], []
        for parts, own in zip(outputs, inputs, strict=True):
            everything = own.new_empty((self._world, own.numel()), device="cpu")
            work, step = self._gather(everything.view(-1), own)
            works.append(work)

            def spread(parts: list[torch.Tensor] = parts, everything: torch.Tensor = everything) -> None:
                for part, row in zip(parts, everything, strict=True):
                    part.detach().copy_(row.view(part.shape))

            steps += [step, spread]
        return _work(works, [part for parts in outputs for part in parts], _then(*steps))

    def allgather_coalesced(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        # By rank here, by tensor there.
        return self.allgather([list(parts) for parts in zip(*outputs, strict=True)], inputs)

    def allgather_into_tensor_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        pairs = [self._gather(output, own) for output, own in zip(outputs, inputs, strict=True)]
        return _work([work for work, _ in pairs], outputs, _then(*(step for _, step in pairs)))

    def _scatter_sum(self, output: torch.Tensor, input: torch.Tensor, op: Any) -> tuple[Work, Callable[[], None] | None]:
        may_be_cut = self._chosen.lossy_reduce_scatter and self._sums(input, op, self._chosen.smallest) and output.is_contiguous()
        if may_be_cut and (kernels := self._coder.kernels(input)) is not None:
            work = kernels.reduce_scatter(input, output, average=op == dist.ReduceOp.AVG, **self._sent("reduce_scatter", input, True))
            return self._keep(work, True), None
        (flat, back), (everything, _) = _flat(output), _flat(input)
        if self._sums(everything, op, 0):
            lossy = self._chosen.lossy_reduce_scatter and everything.numel() >= self._chosen.smallest
            work = self.native.reduce_scatter(everything, flat, average=op == dist.ReduceOp.AVG, **self._sent("reduce_scatter", everything, lossy))
            return self._keep(work, lossy), back
        summed = everything.clone()
        work, reduce = self._gather_and_reduce(summed, op)

        def take() -> None:
            flat.copy_(summed.view(self._world, -1)[self._own_rank])

        return work, _then(reduce, take, back)

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:
        op = _reduction(getattr(opts, "reduceOp", dist.ReduceOp.SUM))
        work, step = self._scatter_sum(output, input, op)
        return _work([work], [output], step)

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None) -> dist.Work:
        op = _reduction(getattr(opts, "reduceOp", dist.ReduceOp.SUM))
        pairs = [
            self._scatter_sum(output, torch.cat([part.detach().reshape(-1) for part in parts]), op)
            for output, parts in zip(outputs, inputs, strict=True)
        ]
        return _work([work for work, _ in pairs], outputs, _then(*(step for _, step in pairs)))

    def reduce_scatter_tensor_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        op = _reduction(getattr(opts, "reduceOp", dist.ReduceOp.SUM))
        pairs = [self._scatter_sum(output, own, op) for output, own in zip(outputs, inputs, strict=True)]
        return _work([work for work, _ in pairs], outputs, _then(*(step for _, step in pairs)))

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:
        op = _reduction(getattr(opts, "reduceOp", dist.ReduceOp.SUM))
        works, steps = [], []
        for tensor in tensors:
            flat, back = _flat(tensor)
            if opts.rootRank != self._own_rank:
                # Other ranks' tensors stay as they are.
                flat, back = flat.clone(), None
            work, step = self._gather_and_reduce(flat, op)
            works.append(work)
            steps += [step, back]
        return _work(works, tensors, _then(*steps))

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> dist.Work:
        """By a broadcast of everything: DTensors are made with it once, which gradients never are."""
        works, steps = [], []
        for nth, output in enumerate(outputs):
            everything = output.new_empty((self._world, output.numel()), device="cpu")
            if opts.rootRank == self._own_rank:
                for row, part in zip(everything, inputs[nth], strict=True):
                    row.copy_(part.detach().reshape(-1))
            words, unpad = _words(everything.view(-1), copy_back=True)
            works.append(self.native.broadcast(words, opts.rootRank))

            def take(output: torch.Tensor = output, everything: torch.Tensor = everything) -> None:
                output.detach().copy_(everything[self._own_rank].view(output.shape))

            steps += [unpad, take]
        return _work(works, outputs, _then(*steps))

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> dist.Work:
        """By gathering everything everywhere."""
        if opts.rootRank == self._own_rank:
            return self.allgather(outputs, inputs)
        return self.allgather([[torch.empty_like(own) for _ in range(self._world)] for own in inputs], inputs)

    def barrier(self, opts: Any = None) -> dist.Work:
        return _work([self.native.barrier()], [])

    # Names of later versions of PyTorch.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def _unsupported(self, *arguments: Any, **options: Any) -> dist.Work:
        raise NotImplementedError(
            "trimwire has all_reduce, reduce, reduce_scatter, all_gather, broadcast, gather, scatter and barrier; for others (send, recv, all_to_all) make a group of "
            "another backend: torch.distributed.new_group(backend='gloo')"
        )

    send = recv = recv_anysource = alltoall = alltoall_base = all_to_all_single = gather_single = _unsupported


#: Whose connections the next group goes on with.
_before: ProcessGroupTrimwire | None = None


@contextmanager
def following(before: ProcessGroupTrimwire) -> Iterator[None]:
    """A group that is made meanwhile goes on with the connections of another one."""
    global _before
    _before = before
    try:
        yield
    finally:
        _before = None


def _create(store: dist.Store, rank: int, world: int, timeout: datetime.timedelta) -> ProcessGroupTrimwire:
    return ProcessGroupTrimwire(store, rank, world, timeout, _before)


def _register() -> None:
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _create, devices=["cpu"])


_register()
