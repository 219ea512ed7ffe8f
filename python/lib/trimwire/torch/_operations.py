# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed asks of a backend, in terms of the native collectives.

Every operation copies where it has to: tensors that are not contiguous, or not in the host's memory.
"""

from __future__ import annotations

import datetime
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .._adaptive import Adaptive
from .._group import Group, Work
from ._device import Coder
from ._errors import CollectiveError
from ._memory import Back, both, length, padded, read, then, words, words_back, write
from ._options import Options
from ._point_to_point import Channels
from ._reductions import REDUCE, check, reduction
from ._tags import Tags
from ._untraced import untraced
from ._work import Part, Reports, TrimwireWork, held, seconds_of

#: What can be trimmed and summed. All else travels bit by bit.
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
#: Sums of a step that a rate algorithm hears of, at most.
_REMEMBERED = 4_096


class _HandedOver:
    """In the place of a group that another one has taken over."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("this process group is of ranks that are gone: trimwire.torch.shrink() has made another default group, for which DistributedDataParallel and whatever else knows the old one is made anew")


@untraced
class Operations:
    """A rank of a group. What is mixed in by the classes that torch knows (`_backend.py`)."""

    def _begin_group(self, native: Group, store: dist.Store, rank: int, world: int, timeout: datetime.timedelta, chosen: Options, ranks: Sequence[int], name: str, arguments: dict[str, Any], forget: Callable[[], object]) -> None:
        self.native: Group = native
        self._forget = forget
        self.chosen = chosen
        self.store, self.timeout = store, timeout
        self._own_rank, self._world = rank, world
        self._handed_over: Group | None = None
        self._tags = Tags()
        self.adaptive = None if chosen.adaptive is None else Adaptive(chosen.adaptive, chosen.planes)
        #: Sums of this step; of a job whose optimiser never says that one is over, the latest.
        self._lossy: deque[Work] = deque(maxlen=_REMEMBERED)
        self._coder = Coder(native, chosen.codec)
        self._reports = Reports(store, rank, ranks, name)
        self._channels = Channels(store, rank, world, arguments)
        self._sequence = 0
        self._barriers = 0
        self._gathered: list[TrimwireWork] | None = None
        self._lock = threading.Lock()

    @property
    def supports_splitting(self) -> bool:
        """torch.distributed asks when it makes groups of this one's ranks."""
        if sys._getframe(1).f_code.co_name == "split_group":
            raise NotImplementedError("trimwire: split_group is not there; dist.new_group(ranks) makes a group of some ranks")
        return False

    def stats(self) -> dict[str, float]:
        """Totals: operations, packets received, trimmed and missing, bytes sent, seconds; with a planes algorithm its ratio, planes, pace and steps."""
        return {**self.native.stats(), **({} if self.adaptive is None else self.adaptive.stats())}

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
        """Ends; what is under way fails, and nobody asks for this group again."""
        self.abort()
        self._forget()

    def abort(self) -> None:
        """What is under way fails."""
        self._channels.close()
        if self._handed_over is None:
            self.native.close()

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Operations may take so long, those under way included."""
        self.timeout = timeout
        self.native.set_patience(self.chosen.operation_timeout or timeout.total_seconds())

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    # Several at once.

    def start_coalescing(self, *_: Any) -> None:
        """What begins from now on is waited for together."""
        self._gathered = []

    def end_coalescing(self, *_: Any) -> dist.Work:
        """All that has begun since."""
        works, self._gathered = self._gathered or [], None
        tensors = [tensor for work in works for tensor in work._result]
        return self._work(f"{len(works)} operations", works, tensors)

    def _work(self, what: str, parts: Sequence[Part], result: list[torch.Tensor], finish: Back = None, options: Any = None) -> dist.Work:
        asked = seconds_of(options)

        def patience() -> float:
            return min(self.chosen.operation_timeout or math.inf, float(self.timeout.total_seconds()))

        made = TrimwireWork(what, self._sequence, self._reports, parts, result, finish, patience, asked)
        self._sequence += 1
        if held is not None:
            held.append(made)
        if self._gathered is not None:
            self._gathered.append(made)
        made.begin()
        return made

    def _root(self, options: Any) -> int:
        """The rank that a call's options name, or are; the first where there are none.

        Raises:
            ValueError: there is no such rank.
        """
        root = options if isinstance(options, int) else 0 if options is None else int(options.rootRank)
        if not 0 <= root < self._world:
            raise ValueError(f"trimwire: invalid root rank: {root}; there are {self._world} ranks")
        return root

    # Sums.

    def _is_sum(self, tensor: torch.Tensor, op: Any) -> bool:
        return tensor.dtype in FLOATS and op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG)

    def _may_be_trimmed(self, tensor: torch.Tensor) -> bool:
        return self.chosen.gradients == "lossy" and tensor.dtype in FLOATS and tensor.numel() >= self.chosen.smallest

    def _sent(self, kind: str, tensor: torch.Tensor, lossy: bool) -> dict[str, Any]:
        """How a sum is sent."""
        if not lossy:
            return {"exact": True}
        tag = self._tags.next(kind, tensor)
        planes, pace = self.chosen.planes, 1.0
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

    def _all_reduce(self, tensor: torch.Tensor, op: Any) -> tuple[Part, Back]:
        check(op, tensor)
        average = op == dist.ReduceOp.AVG
        lossy = self._is_sum(tensor, op) and self._may_be_trimmed(tensor)
        if lossy and (kernels := self._coder.kernels(tensor)) is not None:
            return self._keep(kernels.all_reduce(tensor, average=average, consistent=self.chosen.consistent, **self._sent("all_reduce", tensor, True)), True), None
        flat, back = both(tensor)
        if self._is_sum(flat, op):
            work = self.native.all_reduce(flat, average=average, consistent=lossy and self.chosen.consistent, **self._sent("all_reduce", flat, lossy))
            return self._keep(work, lossy), back
        gathered, reduce = self._gather_and_reduce(flat, flat, op)
        return gathered, then(reduce, back)

    def _gather_and_reduce(self, flat: torch.Tensor, into: torch.Tensor, op: Any) -> tuple[Part, Back]:
        """What is no sum of floats: everybody gets everything, and reduces by itself."""
        own = words(flat)
        if own.data_ptr() == flat.data_ptr():
            own = own.clone()
        everything = torch.empty(self._world * own.numel(), dtype=torch.uint8)

        def reduce() -> None:
            into.copy_(REDUCE[op](_rows(everything, self._world, flat)))

        return self.native.all_gather(own, everything), reduce

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None, op: Any = None) -> dist.Work:
        """The sum, or another reduction, for all; in place."""
        tensors, op = _listed(tensors), reduction(opts if op is None else op)
        parts = [self._all_reduce(tensor, op) for tensor in tensors]
        return self._work(_named("all_reduce", tensors), [work for work, _ in parts], tensors, then(*(step for _, step in parts)), opts)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """Several."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: list[torch.Tensor], opts: Any = None, op: Any = None) -> dist.Work:
        """For one rank: the others send their part to it, and nobody anything else."""
        tensors, op, root = _listed(tensors), reduction(opts if op is None else op), self._root(opts)
        works: list[Part] = []
        steps = []
        for tensor in tensors:
            check(op, tensor)
            if self._is_sum(tensor, op):
                flat, back = both(tensor) if root == self._own_rank else (read(tensor), None)
                works.append(self.native.reduce(flat, root, exact=True, average=op == dist.ReduceOp.AVG))
                steps.append(back)
                continue
            flat = read(tensor)
            work, everything = self._to_root(words(flat), root)
            works.append(work)
            if root == self._own_rank:

                def reduce(tensor: torch.Tensor = tensor, flat: torch.Tensor = flat, everything: torch.Tensor = everything) -> None:
                    tensor.detach().copy_(REDUCE[op](_rows(everything, self._world, flat)).view(tensor.shape))

                steps.append(reduce)
        return self._work(_named("reduce", tensors), works, tensors, then(*steps), opts)

    def _scatter_sum(self, output: torch.Tensor, input: torch.Tensor, op: Any) -> tuple[Part, Back]:
        check(op, input)
        if input.numel() != output.numel() * self._world or input.dtype != output.dtype:
            raise ValueError(f"trimwire: reduce_scatter of {input.numel()} × {input.dtype} into {output.numel()} × {output.dtype} on {self._world} ranks; the input has to be {self._world} times the output, of one type")
        average = op == dist.ReduceOp.AVG
        lossy = self._is_sum(input, op) and self._may_be_trimmed(input)
        if lossy and output.is_contiguous() and (kernels := self._coder.kernels(input)) is not None:
            return self._keep(kernels.reduce_scatter(input, output, average=average, **self._sent("reduce_scatter", input, True)), True), None
        (flat, back), everything = write(output), read(input)
        if self._is_sum(everything, op):
            if _share(everything, flat):
                everything = everything.clone()
            work = self.native.reduce_scatter(everything, flat, average=average, **self._sent("reduce_scatter", everything, lossy))
            return self._keep(work, lossy), back
        return self._scatter_and_reduce(output, list(everything.view(self._world, flat.numel())), op)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:
        """A shard of the sum for each rank."""
        work, step = self._scatter_sum(output, input, reduction(opts))
        return self._work(_named("reduce_scatter", [input]), [work], [output], step, opts)

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None) -> dist.Work:
        """Likewise, of lists; shards need not be of one size."""
        op, inputs, outputs = reduction(opts), _nested(inputs, outputs), _listed(outputs)
        pairs = []
        for output, parts in zip(outputs, inputs, strict=True):
            if len(parts) != self._world:
                raise ValueError(f"trimwire: reduce_scatter of {len(parts)} tensors on {self._world} ranks; one for each rank is needed")
            if all(part.numel() == output.numel() for part in parts):
                pairs.append(self._scatter_sum(output, torch.cat([part.detach().reshape(-1) for part in parts]), op))
            else:
                pairs.append(self._scatter_and_reduce(output, parts, op))
        return self._work(_named("reduce_scatter", [part for parts in inputs for part in parts]), [work for work, _ in pairs], outputs, then(*(step for _, step in pairs)), opts)

    def _scatter_and_reduce(self, output: torch.Tensor, parts: list[torch.Tensor], op: Any) -> tuple[Part, Back]:
        """Each rank gets the parts of its own shard, and no others, and reduces them by itself."""
        flat, back = write(output)
        sent = [words(read(part)) for part in parts]
        whole = padded(length(flat))
        received = torch.empty(self._world * whole, dtype=torch.uint8)

        def reduce() -> None:
            flat.copy_(REDUCE[op](_rows(received, self._world, flat)))

        return self.native.all_to_all(torch.cat(sent), received, [len(part) // 4 for part in sent], [whole // 4] * self._world), then(reduce, back)

    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """Several."""
        op = reduction(opts)
        pairs = [self._scatter_sum(output, own, op) for output, own in zip(outputs, inputs, strict=True)]
        return self._work(_named("reduce_scatter", inputs), [work for work, _ in pairs], outputs, then(*(step for _, step in pairs)), opts)

    # What moves bytes.

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None, *, root: int | None = None) -> dist.Work:
        """One rank's, for all."""
        tensors, root = _listed(tensors), self._root(opts if root is None else root)
        works: list[Part] = []
        steps = []
        for tensor in tensors:
            flat, back = both(tensor) if root != self._own_rank else (read(tensor), None)
            whole, unpad = words_back(flat)
            works.append(self.native.broadcast(whole, root))
            steps += [unpad, back]
        return self._work(_named("broadcast", tensors), works, tensors, then(*steps), opts)

    def _gather(self, output: torch.Tensor, input: torch.Tensor) -> tuple[Part, Back]:
        if output.numel() != input.numel() * self._world or output.dtype != input.dtype:
            raise ValueError(f"trimwire: all_gather of {input.numel()} × {input.dtype} into {output.numel()} × {output.dtype} on {self._world} ranks; the output has to be {self._world} times the input, of one type")
        if self.chosen.lossy_all_gather and self._may_be_trimmed(input):
            shared = input.untyped_storage().data_ptr() == output.untyped_storage().data_ptr()
            if output.is_contiguous() and (kernels := self._coder.kernels(input)) is not None:
                return kernels.all_gather(input.clone() if shared else input, output, planes=self.chosen.planes), None
            (flat, back), own = write(output), read(input)
            return self.native.all_gather(own.clone() if _share(own, flat) else own, flat, exact=False, planes=self.chosen.planes), back
        own, (flat, back) = read(input), write(output)
        size = length(own)
        if size % 4 == 0 and own.data_ptr() % 4 == 0 and flat.data_ptr() % 4 == 0:
            # One that is gathered into itself is copied: rows are read while others are written.
            own = own.clone() if _share(own, flat) else own
            return self.native.all_gather(words(own), words_back(flat)[0]), back
        whole = words(own)
        everything = torch.empty(self._world * whole.numel(), dtype=torch.uint8)

        def take() -> None:
            if size:
                flat.view(torch.uint8).copy_(everything.view(self._world, -1)[:, :size].reshape(-1))

        return self.native.all_gather(whole, everything), then(take, back)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:
        """Everybody's, for all."""
        work, step = self._gather(output, input)
        return self._work(_named("all_gather", [input]), [work], [output], step, opts)

    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """Several."""
        pairs = [self._gather(output, own) for output, own in zip(outputs, inputs, strict=True)]
        return self._work(_named("all_gather", inputs), [work for work, _ in pairs], outputs, then(*(step for _, step in pairs)), opts)

    def _gather_lists(self, output: list[torch.Tensor], own: torch.Tensor) -> tuple[Part, Back]:
        if len(output) != self._world:
            raise ValueError(f"trimwire: all_gather into {len(output)} tensors on {self._world} ranks; one for each rank is needed")
        if any(part.numel() != own.numel() or part.dtype != own.dtype for part in output):
            return self._gather_uneven(output, own)
        everything = torch.empty(self._world * own.numel(), dtype=own.dtype, device=own.device)
        work, step = self._gather(everything, own)

        def take() -> None:
            for part, got in zip(output, everything.view(self._world, -1), strict=True):
                part.detach().copy_(got.view(part.shape))

        return work, then(step, take)

    def _gather_uneven(self, output: list[torch.Tensor], own: torch.Tensor) -> tuple[Part, Back]:
        """Of other sizes at other ranks."""
        if output[self._own_rank].numel() != own.numel() or any(part.dtype != own.dtype for part in output):
            raise ValueError(f"trimwire: all_gather of {own.numel()} × {own.dtype} into tensors of which this rank's has {output[self._own_rank].numel()} × {output[self._own_rank].dtype}")
        whole = words(read(own))
        size = own.element_size()
        receives = [padded(part.numel() * size) // 4 for part in output]
        received = torch.empty(4 * sum(receives), dtype=torch.uint8)
        sent = whole.repeat(self._world)

        def take() -> None:
            _divide(received, receives, output)

        return self.native.all_to_all(sent, received, [len(whole) // 4] * self._world, receives), take

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """Everybody's, for all, as lists."""
        outputs, inputs = _nested(outputs, inputs), _listed(inputs)
        pairs = [self._gather_lists(output, own) for output, own in zip(outputs, inputs, strict=True)]
        result = [part for output in outputs for part in output]
        return self._work(_named("all_gather", inputs), [work for work, _ in pairs], result, then(*(step for _, step in pairs)), opts)

    def allgather_coalesced(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """Several; lists are by rank, then by tensor."""
        return self.allgather([[ranks[nth] for ranks in outputs] for nth in range(len(inputs))], inputs, opts)

    def _to_root(self, whole: torch.Tensor, root: int, receives: list[int] | None = None) -> tuple[Part, torch.Tensor]:
        """Everybody's words, for one rank, of as many at each unless it says otherwise."""
        nothing = [0] * self._world
        sends = list(nothing)
        sends[root] = len(whole) // 4
        if root != self._own_rank:
            receives = nothing
        elif receives is None:
            receives = [len(whole) // 4] * self._world
        received = torch.empty(4 * sum(receives), dtype=torch.uint8)
        return self.native.all_to_all(whole, received, sends, receives), received

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """Everybody's, for one rank."""
        root, works, steps = self._root(opts), [], []
        outputs, inputs = _nested(outputs, inputs), _listed(inputs)
        for nth, own in enumerate(inputs):
            output = outputs[nth] if root == self._own_rank else []
            if root == self._own_rank and len(output) != self._world:
                raise ValueError(f"trimwire: gather into {len(output)} tensors on {self._world} ranks; one for each rank is needed")
            receives = [padded(length(part)) // 4 for part in output]
            work, received = self._to_root(words(read(own)), root, receives or None)
            works.append(work)
            if output:

                def divide(received: torch.Tensor = received, receives: list[int] = receives, output: list[torch.Tensor] = output) -> None:
                    _divide(received, receives, output)

                steps.append(divide)
        result = [part for output in outputs for part in output] if root == self._own_rank else []
        return self._work(_named("gather", inputs), works, result, then(*steps), opts)

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, root: int | Any = 0, opts: Any = None) -> dist.Work:
        """Everybody's, for one rank, one behind the other."""
        root = self._root(root)
        work, received = self._to_root(words(read(input)), root)

        def take() -> None:
            output.detach().view(-1).copy_(_rows(received, self._world, read(input)).view(-1))

        return self._work(_named("gather", [input]), [work], [output], take if root == self._own_rank else None, opts)

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None) -> dist.Work:
        """One rank's parts, one for each."""
        root, works, steps = self._root(opts), [], []
        inputs, outputs = _nested(inputs, outputs), _listed(outputs)
        for nth, output in enumerate(outputs):
            flat, back = write(output)
            sends, receives = [0] * self._world, [0] * self._world
            whole = torch.empty(0, dtype=torch.uint8)
            if root == self._own_rank:
                if len(inputs[nth]) != self._world:
                    raise ValueError(f"trimwire: scatter of {len(inputs[nth])} tensors on {self._world} ranks; one for each rank is needed")
                parts = [words(read(part)) for part in inputs[nth]]
                sends = [len(part) // 4 for part in parts]
                whole = torch.cat(parts)
            receives[root] = padded(length(flat)) // 4
            received = torch.empty(4 * receives[root], dtype=torch.uint8)
            works.append(self.native.all_to_all(whole, received, sends, receives))

            def fill(flat: torch.Tensor = flat, received: torch.Tensor = received) -> None:
                _fill(flat, received)

            steps += [fill, back]
        return self._work(_named("scatter", outputs), works, outputs, then(*steps), opts)

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> dist.Work:
        """From every rank to every rank, as lists by rank."""
        if len(inputs) != self._world or len(outputs) != self._world:
            raise ValueError(f"trimwire: all_to_all of {len(inputs)} tensors into {len(outputs)} on {self._world} ranks; one for each rank is needed, both times")
        sent = [words(read(part)) for part in inputs]
        receives = [padded(length(part)) // 4 for part in outputs]
        received = torch.empty(4 * sum(receives), dtype=torch.uint8)
        work = self.native.all_to_all(torch.cat(sent), received, [len(part) // 4 for part in sent], receives)
        return self._work(_named("all_to_all", inputs), [work], outputs, lambda: _divide(received, receives, outputs), opts)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, output_splits: list[int], input_splits: list[int], opts: Any = None) -> dist.Work:
        """Likewise, of rows of one tensor; even parts where nothing is said of splits."""
        sent, received = _split(input, input_splits, self._world, "input"), _split(output, output_splits, self._world, "output")
        if input.dtype != output.dtype:
            raise ValueError(f"trimwire: all_to_all of {input.dtype} into {output.dtype}")
        if output.is_contiguous():
            return self.alltoall(received, sent, opts)
        copy = output.contiguous()
        work = self.alltoall(_split(copy, output_splits, self._world, "output"), sent, opts)
        back = self._work("all_to_all", [work], [output], lambda: output.detach().copy_(copy), opts)  # type: ignore[list-item]
        return back

    # Between two ranks.

    def send(self, tensors: list[torch.Tensor], to: int, tag: int = 0) -> dist.Work:
        """One tensor, to one rank."""
        tensors = _listed(tensors)
        parts = [self._channels.send(read(tensor), to, tag) for tensor in tensors]
        return self._work(f"send to rank {self._reports.global_rank(to)} of {_sizes(tensors)}", parts, tensors)

    def _receive(self, tensors: list[torch.Tensor], source: int | None, tag: int) -> dist.Work:
        parts, steps = [], []
        tensors = _listed(tensors)
        for tensor in tensors:
            flat, back = write(tensor)
            parts.append(self._channels.receive(flat, source, tag))
            steps.append(back)
        whom = "any rank" if source is None else f"rank {self._reports.global_rank(source)}"
        made = self._work(f"receive from {whom} of {_sizes(tensors)}", parts, tensors, then(*steps))
        made._source_rank = lambda: parts[0].source  # type: ignore[attr-defined, method-assign]
        return made

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int = 0) -> dist.Work:
        """One tensor, from one rank."""
        return self._receive(tensors, source, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> dist.Work:
        """One tensor, from whoever sends first."""
        return self._receive(tensors, None, tag)

    # Until all are there.

    def barrier(self, opts: Any = None) -> dist.Work:
        """Over when every rank has called it."""
        return self._work("barrier", [self.native.barrier()], [], None, opts)

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
        """Returns when every rank has called it.

        Goes by the launcher's store, and so tells of ranks that the network does not reach, too.

        Raises:
            CollectiveError: ranks have not come in time; names the first of them, or all with `wait_all_ranks`.
        """
        self._barriers += 1
        seconds = opts.total_seconds() if isinstance(opts, datetime.timedelta) else seconds_of(opts) or self.timeout.total_seconds()
        end = time.monotonic() + seconds
        prefix = f"trimwire/barrier/{self._barriers}"
        self.store.set(f"{prefix}/{self._own_rank}", b"here")
        missing = [rank for rank in range(self._world) if rank != self._own_rank]
        while missing:
            missing = [rank for rank in missing if not self.store.check([f"{prefix}/{rank}"])]
            if missing and time.monotonic() > end:
                named = [self._reports.global_rank(rank) for rank in missing]
                whom = ", ".join(map(str, named if wait_all_ranks else named[:1]))
                # In Gloo's words, which programs look for.
                raise CollectiveError(f"Rank {whom} failed to pass monitoredBarrier in {seconds:.3g} s", rank=named[0], sequence=self._sequence, timed_out=True)
            if missing:
                time.sleep(0.005)
        self._sequence += 1

    monitoredBarrier = monitored_barrier


def _listed(tensors: Any) -> list[torch.Tensor]:
    """Tensors, of which one need be in no list: who calls a group itself may give either."""
    listed = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    if not listed:
        raise ValueError("trimwire: requires non-empty tensor list")
    return list(listed)


def _nested(lists: Any, beside: Any) -> Any:
    """Lists of tensors, of which there is one where `beside` it is one tensor."""
    return [lists] if isinstance(beside, torch.Tensor) else lists


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


def _rows(everything: torch.Tensor, world: int, like: torch.Tensor) -> torch.Tensor:
    """Words of all ranks as numbers of a type: a row for each rank."""
    size = length(like)
    if size == 0:
        return like.new_empty((world, 0), device="cpu")
    return everything.view(world, -1)[:, :size].contiguous().view(-1).view(like.dtype).view(world, -1)


def _fill(flat: torch.Tensor, received: torch.Tensor) -> None:
    if flat.numel():
        flat.view(torch.uint8).copy_(received[: length(flat)])


def _divide(received: torch.Tensor, counts: list[int], into: list[torch.Tensor]) -> None:
    """Words behind each other into tensors."""
    at = 0
    for count, part in zip(counts, into, strict=True):
        flat = torch.empty(part.numel(), dtype=part.dtype)
        _fill(flat, received[at : at + 4 * count])
        part.detach().copy_(flat.view(part.shape))
        at += 4 * count


def _split(tensor: torch.Tensor, splits: list[int], world: int, name: str) -> list[torch.Tensor]:
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits:
        if rows % world:
            raise ValueError(f"trimwire: all_to_all_single: the {name} has {rows} rows, which {world} ranks do not divide evenly; say how, in split sizes")
        splits = [rows // world] * world
    if len(splits) != world or sum(splits) != rows:
        raise ValueError(f"trimwire: all_to_all_single: split sizes {splits} of the {name}, which has {rows} rows, on {world} ranks")
    return list(tensor.split(list(splits)))


def _sizes(tensors: list[torch.Tensor]) -> str:
    shown = [f"{tensor.numel()} × {str(tensor.dtype).removeprefix('torch.')}" for tensor in tensors[:3]]
    return ", ".join(shown) + (f" and {len(tensors) - 3} more" if len(tensors) > 3 else "")


def _named(name: str, tensors: list[torch.Tensor]) -> str:
    return f"{name} of {_sizes(tensors)}"
