# SPDX-License-Identifier: Apache-2.0
"""A GPU that is not there, and finds what a real one would race on.

The code of `trimwire.cuda` runs as on a GPU: streams, events, copies beside the host, kernels by Triton's interpreter. Everything is done at once, in the order in
which it is issued, so that results are right. What is judged is whether two accesses to the same byte, one of which writes, are ordered by anything: each stream, each
thread of the host and each desk's network has a vector clock (Mattern 1989), and every byte remembers who wrote it last and who has read it since.

Which bytes a kernel touches its own loads and stores say; torch's operations by their schema. A GPU's memory that is freed is the stream's again that it was taken on,
as with torch's allocator: to free is to write. Pinned memory is free when copies are over, as there. Locks and queues of Python order nothing here.

There are as many of them as are spoken of, cuda:0, cuda:1 and so on: a kernel runs on the one that is current, and finds nothing of another's memory.
"""

from __future__ import annotations

import sys
import threading
import weakref
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime import interpreter

import trimwire.cuda
from trimwire.cuda import _codec, _collectives, _desk, _launch, _tensors

#: Streams, threads and networks of one test.
_MOST_ACTORS = 256
_CODE = str(Path(trimwire.cuda.__file__).parent)


class Actor:
    """What does one thing after the other: a stream, a thread of the host, or the network at a row of a desk."""

    def __init__(self, gpu: FakeGpu, name: str) -> None:
        self.gpu, self.name, self.number = gpu, name, len(gpu.actors)
        gpu.actors.append(self)
        #: How much of each actor was over before whatever comes next here.
        self.clock = np.zeros(_MOST_ACTORS, dtype=np.int32)

    def after(self, clock: np.ndarray) -> None:
        np.maximum(self.clock, clock, out=self.clock)


class Event:
    def __init__(self, gpu: FakeGpu, clock: np.ndarray) -> None:
        self._gpu, self.clock = gpu, clock.copy()

    def synchronize(self) -> None:
        self._gpu.wait(self._gpu.thread(), self.clock)

    def query(self) -> bool:
        self.synchronize()
        return True


class Stream(Actor):
    """As `torch.cuda.Stream`."""

    def __init__(self, gpu: FakeGpu, name: str, device: int) -> None:
        super().__init__(gpu, name)
        self.device = device

    def record_event(self) -> Event:
        self.after(self.gpu.thread().clock)
        return Event(self.gpu, self.clock)

    def wait_event(self, event: Event) -> None:
        self.gpu.wait(self, event.clock)

    def wait_stream(self, other: Stream) -> None:
        self.gpu.wait(self, other.clock)

    def synchronize(self) -> None:
        self.gpu.wait(self.gpu.thread(), self.clock)


class _Block:
    """A piece of memory: of each byte, who wrote it last and when, and when who read it last."""

    def __init__(self, storage: Any, name: str, stream: Stream | None) -> None:
        self.begin, self.size, self.name, self.stream = storage.data_ptr(), storage.nbytes(), name, stream
        self.writer, self.written = np.zeros(self.size, np.int16), np.zeros(self.size, np.int32)
        self.read: dict[int, np.ndarray] = {}
        self.freed = False
        #: So that nothing else is found at the same address.
        self._storage = storage


class _Held:
    """Alive while a tensor of the memory is."""


class _Watched(torch.Tensor):
    """A tensor of the host's that is taken for one of the GPU, or of pinned memory."""

    gpu: FakeGpu
    held: _Held

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        watched = next(one for one in _tensors_of((args, kwargs or {})) if isinstance(one, _Watched))
        return watched.gpu.operation(func, args, kwargs or {})


class Card(_Watched):
    """Of the GPU."""

    is_cuda = True
    device = property(lambda self: torch.device("cuda", self.held.block.stream.device))


class Pinned(_Watched):
    """Of the host, where a GPU reads and writes by itself."""


class _Array(np.ndarray):
    """Pinned memory as numpy has it."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if not isinstance(found, np.ndarray):
            FakeGpu.now.host(self, key, write=False)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        FakeGpu.now.host(self, key, write=True)
        super().__setitem__(key, value)


def _tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors_of(one)
    elif isinstance(value, dict):
        yield from _tensors_of(list(value.values()))


def _plain(value: Any) -> Any:
    if isinstance(value, _Watched):
        with torch._C.DisableTorchFunctionSubclass():
            return value.as_subclass(torch.Tensor)
    if isinstance(value, (tuple, list)):
        return type(value)(_plain(one) for one in value)
    return {name: _plain(one) for name, one in value.items()} if isinstance(value, dict) else value


class _Accesses(TorchDispatchMode):
    """What an operation reads and writes, by its schema."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[torch.Tensor] = []
        self.writes: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns):
            given = [*zip(func._schema.arguments, args, strict=False), *((one, kwargs[one.name]) for one in func._schema.arguments if one.name in (kwargs or {}))]
            for argument, value in given:
                written = argument.alias_info is not None and argument.alias_info.is_write
                (self.writes if written else self.reads).extend(_tensors_of(value))
            self.writes.extend(_tensors_of(out))
        return out


def _bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """The addresses of a tensor's bytes."""
    at = np.full(1, tensor.data_ptr(), dtype=np.int64)
    for extent, stride in zip(tensor.shape, tensor.stride(), strict=True):
        at = (at[:, None] + np.arange(extent) * stride * tensor.element_size()).ravel()
    return (at[:, None] + np.arange(tensor.element_size())).ravel()


def _site() -> str:
    """The line of `trimwire.cuda` that is at work, or of a test."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_CODE) or Path(name).name.startswith("test_"):
            return f"{Path(name).name}:{frame.f_lineno} ({frame.f_code.co_name})"
        frame = frame.f_back
    return "elsewhere"


class FakeGpu:
    """One that is in place while `installed` lasts."""

    now: FakeGpu
    #: What makes the host wait for the GPU.
    _WAITING = ("cpu", "tolist", "item", "__int__", "__float__", "__bool__")

    def __init__(self, dropped: str | None = None) -> None:
        self.actors: list[Actor] = []
        #: What was found, in words.
        self.races: list[str] = []
        #: Lines of `trimwire.cuda` that wait; one of them can be dropped, as if it were not there.
        self.waits: set[str] = set()
        self._dropped = dropped
        #: Operations by kind: launches, and copies between host and GPU.
        self.counts = {"launches": 0, "copies": 0, "operations": 0}
        self._lock = threading.RLock()
        self._local = threading.local()
        self._blocks: list[tuple[int, _Block]] = []
        self._labels: dict[tuple[int, int], str] = {}
        self._over: list[tuple[_Block, np.ndarray]] = []
        self._defaults = {0: Stream(self, "the default stream", 0)}
        #: Streams that a graph is captured of.
        self.capturing: set[Stream] = set()

    # Clocks.

    def thread(self) -> Actor:
        if not hasattr(self._local, "actor"):
            with self._lock:
                self._local.actor = Actor(self, f"thread {threading.current_thread().name}")
        found: Actor = self._local.actor
        return found

    def current(self) -> int:
        """The number of this thread's device."""
        found: int = getattr(self._local, "device", 0)
        return found

    def number(self, device: Any) -> int:
        """That of a device, as torch takes one: the current one's, where none is said."""
        index = device if isinstance(device, int) or device is None else torch.device(device).index
        return self.current() if index is None else index

    def stream(self, device: Any = None) -> Stream:
        """This thread's on a device."""
        number = self.number(device)
        with self._lock:
            default = self._defaults.get(number) or self._defaults.setdefault(number, Stream(self, f"the default stream of cuda:{number}", number))
        found: Stream = getattr(self._local, "streams", {}).get(number, default)
        return found

    @contextmanager
    def on(self, device: Any, stream: Stream | None = None) -> Iterator[None]:
        """As `torch.cuda.device`, and with a stream as `torch.cuda.stream`."""
        number, before = self.number(device), (self.current(), getattr(self._local, "streams", {}))
        self._local.device = number
        self._local.streams = before[1] if stream is None else {**before[1], number: stream}
        try:
            yield
        finally:
            self._local.device, self._local.streams = before

    def wait(self, who: Actor, clock: np.ndarray) -> None:
        site = _site()
        if not site.startswith("test_"):
            self.waits.add(site)
        if site != self._dropped:
            with self._lock:
                who.after(self.thread().clock)
                who.after(clock)

    # Memory.

    def watch(self, tensor: torch.Tensor, kind: type[_Watched], held: _Held | None = None, device: Any = None) -> Any:
        """A tensor of the GPU, or of pinned memory, over plain memory; new memory where nobody holds it yet."""
        found = tensor.as_subclass(kind)
        found.gpu = self
        if held is None:
            held = _Held()
            storage = tensor.untyped_storage()
            block = _Block(storage, f"what {_site()} made", self.stream(device) if kind is Card else None)
            with self._lock:
                insort(self._blocks, (block.begin, block), key=lambda one: one[0])
            if kind is Card:
                weakref.finalize(held, self._freed, block)
            held.block = block  # type: ignore[attr-defined]
        found.held = held
        return found

    def _freed(self, block: _Block) -> None:
        # Whoever drops the last tensor may be in the middle of anything.
        self._over.append((block, self.thread().clock.copy()))

    def access(self, actor: Actor, reads: list[np.ndarray], writes: list[np.ndarray], what: str) -> None:
        """Something is done to these bytes, behind all that the actor has waited for; by a stream only to its own GPU's, and the host's."""
        with self._lock:
            while self._over:
                block, clock = self._over.pop(0)
                if block.stream is not None:
                    block.stream.after(clock)
                    self._do(block.stream, [], [block.begin + np.arange(block.size)], "gets back memory that nobody has")
                block.freed = True
            self._do(actor, reads, writes, f"{what} at {_site()}")

    def _do(self, actor: Actor, reads: list[np.ndarray], writes: list[np.ndarray], label: str) -> None:
        actor.clock[actor.number] += 1
        moment = int(actor.clock[actor.number])
        self._labels[actor.number, moment] = label
        for write, all_bytes in ((False, reads), (True, writes)):
            for block, at in self._located(all_bytes, label):
                if isinstance(actor, Stream) and block.stream is not None and block.stream.device != actor.device:
                    self.races.append(f"{actor.name}: {label} on cuda:{actor.device} touches {block.name}, which is cuda:{block.stream.device}'s")
                if block.freed:
                    self.races.append(f"{actor.name}: {label} touches {block.name}, which is freed")
                self._check(actor, label, block, at, block.writer[at], block.written[at], "wrote")
                if not write:
                    block.read.setdefault(actor.number, np.zeros(block.size, np.int32))[at] = moment
                    continue
                for reader, when in block.read.items():
                    self._check(actor, label, block, at, np.full(len(at), reader), when[at], "reads")
                block.writer[at], block.written[at] = actor.number, moment

    def _located(self, all_bytes: list[np.ndarray], label: str) -> Iterator[tuple[_Block, np.ndarray]]:
        addresses = np.unique(np.concatenate(all_bytes)) if all_bytes else np.zeros(0, np.int64)
        while len(addresses):
            nth = bisect_right(self._blocks, int(addresses[0]), key=lambda one: one[0]) - 1
            block = self._blocks[nth][1] if nth >= 0 else None
            if block is None or addresses[0] >= block.begin + block.size:
                self.races.append(f"{label} touches memory that is nobody's")
                return
            inside = int(np.searchsorted(addresses, block.begin + block.size))
            yield block, addresses[:inside] - block.begin
            addresses = addresses[inside:]

    def _check(self, actor: Actor, label: str, block: _Block, at: np.ndarray, who: np.ndarray, when: np.ndarray, did: str) -> None:
        wrong = when > actor.clock[who]
        if wrong.any():
            first = int(np.argmax(wrong))
            other = self.actors[int(who[first])]
            earlier = self._labels[other.number, int(when[first])]
            self.races.append(f"{actor.name}: {label} is not behind {other.name}, which {did} byte {int(at[first])} of {block.name}: {earlier}")

    # What is done to memory.

    def operation(self, func: Any, args: Any, kwargs: Any) -> Any:
        """One of torch's, on tensors some of which are watched."""
        given = [one for one in _tensors_of((args, kwargs)) if isinstance(one, _Watched)]
        on_gpu = any(isinstance(one, Card) for one in given)
        name = getattr(func, "__name__", str(func))
        plain, options = _plain(args), _plain(kwargs)
        if name == "to" and on_gpu and torch.device("cpu") in plain:
            name, func, plain = "cpu", torch.Tensor.cpu, plain[:1]
        with torch._C.DisableTorchFunctionSubclass(), _Accesses() as seen:
            if name == "pin_memory" or (name == "is_pinned"):
                raise NotImplementedError(name)
            found = func(*plain, **options)
        if on_gpu and name in self._WAITING:
            seen.reads = [_plain(given[0])]
        reads, writes = self._watched_of(seen.reads, given), self._watched_of(seen.writes, given)
        new = [one for one in _tensors_of(found) if on_gpu and self._holder(one, given) is None and name not in self._WAITING]
        device = next((one.device for one in given if isinstance(one, Card)), None)
        wrapped = {id(one): self.watch(one, Card, device=device) for one in new}
        if on_gpu and (reads or writes or new):
            stream = self.stream(device)
            stream.after(self.thread().clock)
            self.counts["operations"] += 1
            self.access(stream, reads, writes + [_bytes_of(one) for one in new], name)
            pageable = any(not isinstance(one, _Watched) for one in _tensors_of((args, kwargs)) if one.numel())
            between = any(isinstance(one, Pinned) for one in given) or pageable or name in self._WAITING
            self.counts["copies"] += between
            if between and (pageable or not options.get("non_blocking", False)):
                self.thread().after(stream.clock)
        elif reads or writes:
            self.access(self.thread(), reads, writes, name)
        if name in self._WAITING and on_gpu:
            return found.clone() if isinstance(found, torch.Tensor) else found
        if name == "numpy":
            return found.view(_Array)
        return self._wrapped(found, given, wrapped)

    @staticmethod
    def _holder(tensor: torch.Tensor, given: list[_Watched]) -> _Watched | None:
        begin = tensor.untyped_storage().data_ptr()
        return next((one for one in given if one.held.block.begin == begin), None)  # type: ignore[attr-defined]

    def _watched_of(self, tensors: list[torch.Tensor], given: list[_Watched]) -> list[np.ndarray]:
        return [_bytes_of(one) for one in tensors if one.numel() and self._holder(one, given) is not None]

    def _wrapped(self, found: Any, given: list[_Watched], new: dict[int, Any]) -> Any:
        if isinstance(found, (tuple, list)) and not isinstance(found, torch.Size):
            parts = [self._wrapped(one, given, new) for one in found]
            return type(found)(parts) if type(found) in (tuple, list) else type(found)(parts)
        if not isinstance(found, torch.Tensor):
            return found
        if id(found) in new:
            return new[id(found)]
        holder = self._holder(found, given)
        return found if holder is None else self.watch(found, type(holder), holder.held)

    def host(self, array: np.ndarray, key: Any, write: bool) -> None:
        """A thread reads or writes pinned memory through numpy."""
        plain = array.view(np.ndarray)
        part = plain[key : key + 1] if isinstance(key, (int, np.integer)) else plain[key]
        at = part.ctypes.data + np.arange(part.nbytes)
        self.access(self.thread(), [] if write else [at], [at] if write else [], "the host's access")

    def launch(self, kernel: Any, grid: Any, *args: Any, **options: Any) -> None:
        """A kernel: what its programs load and store."""
        stream = self.stream()
        stream.after(self.thread().clock)
        self._local.loads, self._local.stores = [], []
        try:
            kernel[grid](*_plain(args), **options)
        finally:
            loads, stores, self._local.loads, self._local.stores = self._local.loads, self._local.stores, None, None
        self.counts["launches"] += 1
        self.access(stream, loads, stores, kernel.fn.__name__)

    def _touched(self, to: str, pointers: np.ndarray, mask: np.ndarray, size: int) -> None:
        found = getattr(self._local, to, None)
        if found is not None:
            at = np.unique(np.asarray(pointers)[np.broadcast_to(mask, np.shape(pointers))]).astype(np.int64)
            found.append((at[:, None] + np.arange(size)).ravel())

    # In torch's place.

    @contextmanager
    def installed(self) -> Iterator[FakeGpu]:
        real = {name: getattr(torch, name) for name in ("zeros", "empty", "full", "tensor")}
        to, memory = torch.Tensor.to, interpreter._interpreter
        FakeGpu.now = self

        def made(name: str, *args: Any, device: Any = None, pin_memory: bool = False, **options: Any) -> Any:
            if device is not None and torch.device(device).type == "cuda":
                found = self.watch(real[name](*args, **options), Card, device=device)
                stream = self.stream(device)
                stream.after(self.thread().clock)
                # What has no values yet is written by nobody; values of the host's are waited for.
                self.access(stream, [], [] if name == "empty" else [_bytes_of(_plain(found))], name)
                if name == "tensor":
                    self.thread().after(stream.clock)
                return found
            if pin_memory:
                found = self.watch(real[name](*args, **options), Pinned)
                self.access(self.thread(), [], [_bytes_of(_plain(found))], name)
                return found
            return real[name](*args, **options) if device is None else real[name](*args, device=device, **options)

        def moved(tensor: Any, *args: Any, **options: Any) -> Any:
            if isinstance(tensor, _Watched) or not args or not str(args[0]).startswith("cuda"):
                return to(tensor, *args, **options)
            found = self.watch(to(tensor, *args[1:], **options).clone() if args[1:] else tensor.clone(), Card, device=args[0])
            stream = self.stream(args[0])
            stream.after(self.thread().clock)
            self.counts["copies"] += 1
            self.access(stream, [], [_bytes_of(_plain(found))], "to")
            self.thread().after(stream.clock)
            return found

        def load(pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
            self._touched("loads", pointers, mask, np.dtype(dtype).itemsize)
            return memory.load(pointers, mask, other, dtype)

        def store(pointers: Any, values: Any, mask: Any) -> Any:
            self._touched("stores", pointers, mask, values.itemsize)
            return memory.store(pointers, values, mask)

        @contextmanager
        def guarded(device: Any) -> Iterator[None]:
            with _tensors._INTERPRETER, self.on(device):
                yield

        def synchronize(device: Any = None) -> None:
            self.wait(self.thread(), np.max([one.clock for one in self.actors if isinstance(one, Stream)], axis=0))

        class Kernel:
            def __init__(self, kernel: Any) -> None:
                self.kernel = kernel

            def __getitem__(self, grid: Any) -> Callable[..., None]:
                return partial(FakeGpu.now.launch, self.kernel, grid)

        class Interpreter:
            def __getattr__(self, name: str) -> Any:
                return {"load": load, "store": store}.get(name) or getattr(memory, name)

        with pytest.MonkeyPatch.context() as patch:
            for name in real:
                patch.setattr(torch, name, partial(made, name))
            patch.setattr(torch.Tensor, "to", moved)
            patch.setattr(interpreter, "_interpreter", Interpreter())
            for name in ("encode_rows", "decode_rows"):
                patch.setattr(_codec, name, Kernel(getattr(_codec, name)))
            for module in (_codec, _launch, _tensors):
                patch.setattr(module, "interpreted", lambda: False)
            for name, value in {
                "Stream": lambda device=None: Stream(self, f"stream {len(self.actors)}", self.number(device)),
                "stream": lambda stream: self.on(stream.device, stream),
                "current_stream": self.stream,
                "current_device": self.current,
                "device": guarded,
                "synchronize": synchronize,
                "is_current_stream_capturing": lambda: self.stream() in self.capturing,
                "get_device_properties": lambda device: SimpleNamespace(multi_processor_count=1),
            }.items():
                patch.setattr(torch.cuda, name, value)
            for module in (_desk, _collectives):
                patch.setattr(module, "_native", _Native(self))
            _launch.tables.cache_clear()
            try:
                yield self
            finally:
                _launch.tables.cache_clear()


# The native group, which sends from pinned memory and receives into it.


class _Proxy:
    def __init__(self, gpu: FakeGpu, real: Any) -> None:
        self._gpu, self.real = gpu, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class _Native(_Proxy):
    """The module."""

    def __init__(self, gpu: FakeGpu) -> None:
        super().__init__(gpu, trimwire._native)

    def Desk(self, memory: Pinned, places: Any) -> NativeDesk:
        return NativeDesk(self._gpu, trimwire._native.Desk(memory, places), _plain(memory).data_ptr())

    def Elsewhere(self, desk: NativeDesk, *about: Any) -> Any:
        # An operation is about to begin.
        desk.begun.after(self._gpu.thread().clock)
        found = _Proxy(self._gpu, trimwire._native.Elsewhere(desk.real, *about))
        found.desk = desk
        return found


class NativeDesk(_Proxy):
    """What the network does at a desk; each row by itself, as nothing orders them."""

    def __init__(self, gpu: FakeGpu, real: Any, memory: int) -> None:
        super().__init__(gpu, real)
        self.memory = memory
        self.begun = Actor(gpu, f"beginnings of desk {real.id}")
        self.rows: dict[tuple[int, int], Actor] = {}

    def row(self, row: Any) -> Actor:
        if (row.shard, row.row) not in self.rows:
            self.rows[row.shard, row.row] = Actor(self._gpu, f"the network at shard {row.shard}, row {row.row} of desk {self.real.id}")
        return self.rows[row.shard, row.row]

    def over(self) -> None:
        """A thread is told that all rows are back."""
        for row in self.rows.values():
            self._gpu.thread().after(row.clock)

    def idle(self) -> bool:
        if found := self.real.idle():
            self.over()
        return bool(found)


class _Row(_Proxy):
    def __init__(self, gpu: FakeGpu, real: Any, desk: NativeDesk) -> None:
        super().__init__(gpu, real)
        self._desk, self._actor = desk, desk.row(real)

    def finish(self, offset: int | None = None, length: int = 0, figure: float = 0.0) -> None:
        self._actor.after(self._gpu.thread().clock)
        if offset is not None:
            self._gpu.access(self._actor, [self._desk.memory + offset + np.arange(length)], [], "sending")
        self.real.finish(offset, length, figure)

    def fail(self, why: str) -> None:
        self._actor.after(self._gpu.thread().clock)
        self.real.fail(why)


class _Work(_Proxy):
    desk: NativeDesk

    def wait(self, timeout: float | None = None) -> None:
        try:
            self.real.wait(timeout)
        except trimwire.TransportError:
            # It is over, and its rows are back.
            self.desk.over()
            raise
        self.desk.over()

    def then(self, callback: Callable[[], object]) -> None:
        def called() -> None:
            self.desk.over()
            callback()

        self.real.then(called)


class _NativeGroup(_Proxy):
    def _begun(self, name: str, *given: Any) -> _Work:
        work = _Work(self._gpu, getattr(self.real, name)(*(one.real if isinstance(one, _Proxy) else one for one in given)))
        work.desk = given[0].desk
        return work

    def __getattr__(self, name: str) -> Any:
        return partial(self._begun, name) if name in ("all_reduce", "reduce_scatter", "all_gather") else getattr(self.real, name)


class _Rows(_Proxy):
    def __init__(self, gpu: FakeGpu, real: Any, collectives: Any) -> None:
        super().__init__(gpu, real)
        self._collectives = collectives

    def take(self) -> list[_Row] | None:
        rows = self.real.take()
        return None if rows is None else [self._arrived(row) for row in rows]

    def _arrived(self, row: Any) -> _Row:
        desk = self._collectives._running[row.desk]
        found = _Row(self._gpu, row, desk.native)
        found._actor.after(desk.native.begun.clock)
        received = _collectives._is_received(row)
        for sender, _, offset in row.contributions:
            layout = (desk.owned[row.shard] if received else desk.others[row.shard, sender]).decoder.layout
            first, end = layout.bytes_of(range(row.row, row.row + 1))
            self._gpu.access(found._actor, [], [desk.native.memory + offset + np.arange(end - first)], "receiving")
        self._gpu.thread().after(found._actor.clock)
        return found


class Collectives(_collectives.Collectives):
    """Those of a group, whose network is watched."""

    def __init__(self, gpu: FakeGpu, group: trimwire.Group) -> None:
        native = group._native_group()
        watched = SimpleNamespace(rank=native.rank, world=native.world, coordinates_per_packet=native.coordinates_per_packet, rows=lambda: _Rows(gpu, native.rows(), self))
        super().__init__(watched, group.channels, *group._numbers)  # type: ignore[arg-type]
        self._native = _NativeGroup(gpu, native)
