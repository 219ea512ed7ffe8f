# SPDX-License-Identifier: Apache-2.0
"""Collectives on tensors of a GPU: encoded where they are, into memory that datagrams are sent from, and decoded there from memory that datagrams are received into.

    backward's stream        side stream                    host                                     network
    tensor ready ──event──►  Encoder.run(rows) ──DMA──►     pinned memory ─► Row.finish(bytes) ────► sent from there
                             sum in f32, by rank            ▲
    tensor has the sum  ◄──  Decoder.run(rows) ◄──DMA──     pinned memory ◄─ packets, trimmed or whole ◄─ received into it

The native group says what is to be done to which row (`_native.Row`), as it says it to its own threads; rows of a message that follow each other and are
there at the same time are one launch. Nothing of a tensor is touched by the host.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import torch

from .. import _native
from .._native import Work
from .._operation import OperationOptions
from ._desk import Desk, Kind, Outgoing, Ranks, Shape
from ._tensors import device_of, is_capturing
from ._values import KINDS

_NAMES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


#: Desks that are kept for operations to come: more than buckets of a model, of which each has one, or two.
_MOST_DESKS = 128


class Collectives:
    """Operations of a `trimwire.Group` on tensors of a GPU; under Triton's interpreter, of the host.

    One for each group. Other ranks may be others of these or work on the host, if all of them say `algorithm="direct"` there; bits of replicas then agree
    within the wire format's tolerance, so that `consistent` needs all ranks to be of one kind. Operations end when the result is in the tensor.
    """

    def __init__(self, native: _native.Group, channels: int, seed: int, job: int) -> None:
        self._native = native
        self._ranks = Ranks(native.rank, native.world, seed, job, native.coordinates_per_packet, channels)
        self._rows = native.rows()
        self._lock = threading.Lock()
        #: Who makes a desk, which takes long, and has its own lock, so that no two take a scratch each.
        self._making = threading.Lock()
        self._running: dict[int, Desk] = {}
        #: Those of operations that are over, the latest last.
        self._free: list[Desk] = []
        self._scratch: dict[torch.device, torch.Tensor] = {}
        self._streams: dict[torch.device, Any] = {}
        self._launched: queue.SimpleQueue[tuple[Any, list[Callable[[], None]], list[_native.Row]] | None] = queue.SimpleQueue()
        for name, work in (("launch", self._launch), ("done", self._finish)):
            threading.Thread(target=work, name=f"trimwire-{name}", daemon=True).start()

    def all_reduce(self, tensor: torch.Tensor, **options: Any) -> Work:
        """The sum over all ranks, or their mean, in place; as `Group.all_reduce`, which has the options."""
        flat = _flat(tensor, "tensor")
        desk, native, chosen = self._begin("all_reduce", flat.numel(), flat, flat, options)
        return self._start(desk, lambda: self._native.all_reduce(native[0], chosen))

    def reduce_scatter(self, input: torch.Tensor, output: torch.Tensor, **options: Any) -> Work:
        """The sum of all ranks' `input`s, of which `output` gets this rank's part; as `Group.reduce_scatter`."""
        given, result = _flat(input, "input"), _flat(output, "output")
        desk, native, chosen = self._begin("reduce_scatter", given.numel(), given, result, options)
        return self._start(desk, lambda: self._native.reduce_scatter(native[0], native[1], chosen))

    def all_gather(self, input: torch.Tensor, output: torch.Tensor, **options: Any) -> Work:
        """All ranks' `input`s, one behind the other, as they come out of packets that may be trimmed; as `Group.all_gather` that is not exact."""
        given, result = _flat(input, "input"), _flat(output, "output")
        desk, native, chosen = self._begin("all_gather", result.numel(), given, result, options)
        return self._start(desk, lambda: self._native.all_gather(native[0], native[1], chosen))

    def _begin(
        self, kind: Kind, length: int, input: torch.Tensor, output: torch.Tensor, options: dict[str, Any]
    ) -> tuple[Desk, tuple[_native.Elsewhere, _native.Elsewhere], OperationOptions]:
        if "deadline" in options:
            options["deadline_s"] = options.pop("deadline")
        chosen = OperationOptions(**options)
        if chosen.algorithm == "auto":
            # Ranks that work on the host have to be told.
            chosen = replace(chosen, algorithm="direct")
        if input.dtype != output.dtype or input.device != output.device:
            raise ValueError(f"output: {output.dtype} of {output.device}; the input is {input.dtype} of {input.device}")
        device_of(input.device)
        if is_capturing(input.device):
            raise RuntimeError(f"{kind}: a CUDA graph is being captured: what other ranks send cannot be. Capture forward and backward, and begin collectives outside (trimwire.cuda.Encoder and Decoder can be captured)")
        if not 1 <= chosen.planes <= _native.PLANES:
            raise ValueError(f"planes: {chosen.planes}; valid are 1 to {_native.PLANES}")
        sent = max(length, 1)
        shape = Shape(kind, sent, input.dtype, input.device, chosen.planes, min(chosen.layer_class, 7), chosen.consistent)
        # What is not as long as it has to be is refused by the operation itself.
        desk = self._desk(shape)
        desk.begin(input, output, _event(input.device))
        name = _NAMES[input.dtype]
        native = (_native.Elsewhere(desk.native, input.numel(), name), _native.Elsewhere(desk.native, output.numel(), name))
        return desk, native, chosen

    def _desk(self, shape: Shape) -> Desk:
        with self._lock:
            # Slower ranks may still be sent what others have long had.
            idle = next((nth for nth, desk in enumerate(self._free) if desk.shape == shape and desk.native.idle()), None)
            if idle is not None:
                return self._free.pop(idle)
        with self._making, self._beside(shape.device):
            desk = Desk(shape, self._ranks, self._scratch.get(shape.device))
            if desk.scratch is not None:
                self._scratch[shape.device] = desk.scratch
        return desk

    def _start(self, desk: Desk, start: Callable[[], Work]) -> Work:
        ident = desk.native.id
        with self._lock:
            self._running[ident] = desk
        try:
            work = start()
        except BaseException:
            self._over(ident)
            raise
        work.then(lambda: self._over(ident))
        return work

    def _over(self, ident: int) -> None:
        """An operation is over: all its rows are back."""
        with self._lock:
            desk = self._running.pop(ident)
            desk.end()
            self._free.append(desk)
            # What is still sent of one that goes keeps its memory.
            del self._free[: max(0, len(self._free) - _MOST_DESKS)]

    def _stream(self, device: torch.device) -> Any:
        if device.type != "cuda":
            return None
        # One for all threads: scratch is kept apart by nothing but the order of its stream.
        with self._lock:
            if device not in self._streams:
                self._streams[device] = torch.cuda.Stream(device)
            return self._streams[device]

    def _beside(self, device: torch.device) -> Any:
        stream = self._stream(device)
        return nullcontext() if stream is None else torch.cuda.stream(stream)

    def _launch(self) -> None:
        """Launches what there is to do, until the group has ended."""
        while (rows := self._rows.take()) is not None:
            try:
                batches = list(_batches(rows, {ident: self._running[ident].shape.layer_class for ident in {row.desk for row in rows}}))
            except Exception as error:  # This thread goes on, whatever it is: operations to come need it.
                _fail(rows, error)
                continue
            for batch in batches:
                try:
                    # Of an operation that has begun and is not over: no other has rows.
                    desk = self._running[batch[0].desk]
                    device = desk.shape.device
                    with self._beside(device):
                        if desk.ready is not None:
                            self._stream(device).wait_event(desk.ready)
                            desk.ready = None
                        ends = _work(desk, batch)
                        event = None if device.type != "cuda" else self._stream(device).record_event()
                except Exception as error:  # Whatever it is, other ranks wait for these rows.
                    self._settle()
                    _fail(batch, error)
                    continue
                if event is None:
                    _end(ends, batch)
                else:
                    self._launched.put((event, ends, batch))
        self._launched.put(None)

    def _settle(self) -> None:
        """Waits for what was launched of a batch that failed: tensors and memory are their owners' again when its rows are back."""
        for stream in list(self._streams.values()):
            with suppress(Exception):  # It is about to be said what is wrong.
                stream.synchronize()

    def _finish(self) -> None:
        """Waits for what was launched, in order."""
        while (launched := self._launched.get()) is not None:
            event, ends, batch = launched
            try:
                event.synchronize()
            except Exception as error:
                _fail(batch, error)
                continue
            _end(ends, batch)


def _end(ends: Iterable[Callable[[], None]], batch: list[_native.Row]) -> None:
    try:
        for end in ends:
            end()
    except Exception as error:
        _fail(batch, error)


def _fail(batch: list[_native.Row], error: Exception) -> None:
    for row in batch:
        # One that is finished stays finished.
        row.fail(f"{type(error).__name__}: {error}")


def _flat(tensor: torch.Tensor, name: str) -> torch.Tensor:
    if tensor.dtype not in KINDS:
        raise TypeError(f"{name}: {tensor.dtype}; {', '.join(str(kind) for kind in KINDS)} are possible")
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: not contiguous: .contiguous() copies it")
    return tensor.detach().view(-1)


def _event(device: torch.device) -> Any:
    """What tells that the current stream has come so far."""
    return torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None


def _is_received(row: _native.Row) -> bool:
    """Whether it is written as it came."""
    return not row.own and row.encode is None and row.scale is None and len(row.contributions) == 1


def _batches(rows: list[_native.Row], layer_classes: dict[int, int]) -> Iterator[list[_native.Row]]:
    """Rows of one message to which the same is to be done, and which follow each other; of the lowest layer class first, then of the operation whose row came first."""
    # As packets are sent (docs/explanation/transport.md).
    came: dict[int, int] = {}
    for row in rows:
        came.setdefault(row.desk, len(came))
    ordered = sorted(rows, key=lambda row: (layer_classes[row.desk], came[row.desk], row.shard, _is_received(row), row.row))
    batch: list[_native.Row] = []
    for row in ordered:
        last = batch[-1] if batch else None
        goes_on = last is not None and (last.desk, last.shard, _is_received(last), last.row + 1) == (row.desk, row.shard, _is_received(row), row.row)
        if not goes_on and batch:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _work(desk: Desk, batch: list[_native.Row]) -> list[Callable[[], None]]:
    """Launches what is to be done to some rows, on the current stream. Gives what to call when that is over."""
    first, shard = batch[0], batch[0].shard
    rows = range(first.row, first.row + len(batch))
    encode, contributions = first.encode, first.contributions
    if encode is not None and not contributions and not first.write:
        part = desk.parts[shard]
        part.encoder.bind([desk.own_part(shard)])
        return _sent(desk, part, rows, batch, encode)
    if _is_received(first):
        incoming = desk.owned[shard]
        incoming.take(rows, desk.ranks, 0, batch)
        result = desk.result(shard)
        incoming.decoder.bind([result])
        incoming.decoder.run(rows)
        if first.positive_zeros:
            begin, end = incoming.decoder.layout.coordinates_of(rows)
            result[begin:end].add_(0.0)
        return [row.finish for row in batch]

    total = desk.sums[shard]
    of_others = next((other.decoder.layout for (number, _), other in desk.others.items() if number == shard), None)
    layouts = desk.totals[shard].encoder.layout if shard in desk.totals else of_others
    begin, end = (0, total.numel()) if layouts is None else layouts.coordinates_of(rows)
    # In the order of the ranks: the same packets give the same bits, whatever the order in which they came.
    order: list[tuple[int, int | None]] = [(contribution[0], nth) for nth, contribution in enumerate(contributions)]
    if first.own:
        order = sorted([*order, (desk.ranks.rank, None)])
    for place, (rank, nth) in enumerate(order):
        if nth is None:
            own = desk.own_part(shard)[begin:end]
            if place == 0:
                total[begin:end].copy_(own)
            else:
                total[begin:end].add_(own)
            continue
        other = desk.others[shard, rank]
        other.take(rows, desk.ranks, nth, batch)
        other.decoder.bind([total])
        other.decoder.run(rows, accumulate=place > 0)
    if (scale := first.scale) is not None:
        total[begin:end].mul_(scale)
    if encode is None:
        desk.result(shard)[begin:end].copy_(total[begin:end])
        return [row.finish for row in batch]
    sums = desk.totals[shard]
    sums.encoder.bind([total])
    ends = _sent(desk, sums, rows, batch, encode)
    if encode[3] and shard in desk.keep:
        # Others have what the packets say of the sum, so this rank takes that, too.
        desk.keep[shard].bind([desk.result(shard)])
        desk.keep[shard].run(rows)
    return ends


def _sent(desk: Desk, outgoing: Outgoing, rows: range, batch: list[_native.Row], encode: tuple[int, int, float, bool]) -> list[Callable[[], None]]:
    """Encodes rows whose values are there. Gives what to call when their packets are in pinned memory."""
    outgoing.prepare(desk.ranks, encode[0], encode[2])
    outgoing.encoder.run(rows)
    outgoing.send(rows)
    layout = outgoing.encoder.layout

    def finish(row: _native.Row, number: int) -> None:
        first, end = layout.bytes_of(range(number, number + 1))
        row.finish(outgoing.base + first, end - first, float(outgoing.figures[number]))

    return [lambda row=row, number=number: finish(row, number) for row, number in zip(batch, rows, strict=True)]  # type: ignore[misc]
