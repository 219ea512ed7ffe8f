# SPDX-License-Identifier: Apache-2.0
"""From one rank to another: a channel for each ordered pair of ranks that speak, made when they first do.

A channel is a group of two, with sockets and a thread of its own. A message is two operations: its tag and length, then its bytes. The receiver reads them in the order in which they
were sent, and gives each to the first receive that takes its tag; what no receive takes yet is kept. Both ends find each other by the launcher's store.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from .._group import Group, Work
from ._memory import length, padded

#: A channel may be silent for as long as a job lasts, seconds.
_EVER = 1e9
#: Between two looks into the store, seconds.
_LOOK = 0.02
#: Under this tag nothing is told apart.
ANY = -1


class _Gone(Exception):
    """The channel is closed."""


@dataclass
class Message:
    """A send, or a receive, under way."""

    flat: torch.Tensor
    tag: int
    #: Whose the message was, once it has come.
    source: int = -1
    _callbacks: list[Callable[[], object]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: bool = False
    _taken: bool = False
    _error: str | None = None
    _culprit: int | None = None

    def claim(self) -> bool:
        """Whether the caller is the first of the channels that wait for it, and it has not been given up."""
        with self._lock:
            taken, self._taken = self._taken, True
        return not taken

    def end(self, error: str | None = None, culprit: int | None = None) -> None:
        """It is over."""
        with self._lock:
            if self._over:
                return
            self._over, self._taken, self._error, self._culprit = True, True, error, culprit
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def then(self, callback: Callable[[], object]) -> None:
        """Calls when it is over."""
        with self._lock:
            if not self._over:
                self._callbacks.append(callback)
                return
        callback()

    @property
    def over(self) -> bool:
        """Whether it is."""
        return self._over

    def error(self) -> str | None:
        """Why it failed."""
        return self._error

    def culprit(self) -> int | None:
        """The rank to blame."""
        return self._culprit

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self.end("it was cancelled")


class Channel:
    """One direction between two ranks, at one of its ends."""

    def __init__(self, store: dist.Store, name: str, peer: int, sends: bool, arguments: dict[str, Any]) -> None:
        self._store, self._name, self._peer, self._sends, self._arguments = store, name, peer, sends, arguments
        #: Messages; of a receiver also reads that are over. None is the end.
        self._queue: queue.SimpleQueue[Message | Work | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        #: The receiver's: receives in the order in which they were called, and messages that none of them takes.
        self._waiting: list[Message] = []
        self._kept: list[tuple[int, torch.Tensor]] = []
        #: What is being read: the tag and length of a message, or its bytes, of this tag and length.
        self._read: torch.Tensor | None = None
        self._head: tuple[int, int] | None = None
        self._thread = threading.Thread(target=self._run, name=f"trimwire-{name}", daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        """In order."""
        self._queue.put(message)

    def _connect(self) -> Group:
        mine, other = ("sender", "receiver") if self._sends else ("receiver", "sender")
        group = Group(self._arguments["address"], paths=4, receive=self._arguments["receive"], checksums=self._arguments["checksums"], channels=1)
        self._store.set(f"{self._name}/{mine}", group.address)
        # A look at a time: who waits inside the store keeps others out.
        while not self._store.check([f"{self._name}/{other}"]):
            if self._closed.wait(_LOOK):
                raise _Gone
        there = self._store.get(f"{self._name}/{other}").decode()
        addresses = [group.address, there] if self._sends else [there, group.address]
        options = {name: value for name, value in self._arguments.items() if name not in ("address", "receive", "checksums")}
        return group.connect(0 if self._sends else 1, addresses, operation_timeout=_EVER, **options)

    def _wait(self, work: Work) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                work.wait(0.5)
                return
            if self._closed.is_set():
                raise _Gone

    def _run(self) -> None:
        failed: str | None = None
        group: Group | None = None
        while (item := self._queue.get()) is not None:
            if isinstance(item, Message):
                self._waiting.append(item)
            if failed is None:
                try:
                    group = group or self._connect()
                    if self._sends:
                        self._send(group, self._waiting.pop())
                    else:
                        self._receive(group, item)
                except _Gone:
                    failed = "the group is closed"
                except Exception as error:
                    failed = str(error)
            if failed is not None:
                self._fail(failed)
        self._fail(failed or "the group is closed")
        if group is not None:
            group.close()

    def _fail(self, why: str) -> None:
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            # Ranks of a channel are 0 and 1, which nobody knows.
            message.end(f"the channel with rank {self._peer} of the group failed: {why}", self._peer)

    def _send(self, group: Group, message: Message) -> None:
        if not message.claim():
            return
        try:
            head = torch.tensor([message.tag, length(message.flat)], dtype=torch.int64)
            works = [group.broadcast(head, 0)]
            if message.flat.numel():
                body = message.flat.view(torch.uint8)
                # The network's words have four bytes: what are no whole words is copied.
                if len(body) % 4 or body.data_ptr() % 4:
                    words = torch.zeros(padded(len(body)), dtype=torch.uint8)
                    words[: len(body)] = body
                    body = words
                works.append(group.broadcast(body, 0))
            for work in works:
                self._wait(work)
        except BaseException:
            self._waiting.append(message)
            raise
        message.end()

    def _receive(self, group: Group, item: Message | Work) -> None:
        """A receive has begun, or a read is over."""
        if not isinstance(item, Message):
            item.wait()
            self._take_read()
        # Some may have been given up, or got theirs from another rank.
        self._waiting = [message for message in self._waiting if not message.over and not self._give(message)]
        if self._waiting and self._read is None:
            self._read = torch.zeros(2, dtype=torch.int64) if self._head is None else torch.empty(padded(self._head[1]), dtype=torch.uint8)
            work = group.broadcast(self._read, 0)
            work.then(lambda: self._queue.put(work))

    def _take_read(self) -> None:
        read, self._read = self._read, None
        assert read is not None
        if self._head is None:
            self._head = int(read[0]), int(read[1])
            if self._head[1]:
                return
            read = torch.empty(0, dtype=torch.uint8)
        (tag, bytes_), self._head = self._head, None
        self._kept.append((tag, read[:bytes_]))

    def _give(self, message: Message) -> bool:
        """Whether a message that was read is the receive's, or the receive has another one."""
        for at, (tag, body) in enumerate(self._kept):
            if message.tag in (ANY, tag):
                if message.claim():
                    del self._kept[at]
                    self._deliver(message, body)
                return True
        return False

    def _deliver(self, message: Message, body: torch.Tensor) -> None:
        if len(body) != length(message.flat):
            message.end(f"rank {self._peer} of the group sent {len(body)} bytes, and this rank receives {length(message.flat)}", self._peer)
            return
        if len(body):
            message.flat.view(torch.uint8).copy_(body)
        message.source = self._peer
        message.end()

    def close(self) -> None:
        """What is under way fails."""
        self._closed.set()
        self._queue.put(None)


class Channels:
    """All channels of a rank of a group."""

    def __init__(self, store: dist.Store, rank: int, world: int, arguments: dict[str, Any]) -> None:
        self._store, self._rank, self._world, self._arguments = store, rank, world, arguments
        self._lock = threading.Lock()
        self._channels: dict[tuple[int, int], Channel] = {}
        self._closed = False

    def _channel(self, source: int, destination: int) -> Channel:
        with self._lock:
            if self._closed:
                raise RuntimeError("the group is closed")
            pair = source, destination
            if pair not in self._channels:
                sends = source == self._rank
                name = f"trimwire/channel/{source}-{destination}"
                self._channels[pair] = Channel(self._store, name, destination if sends else source, sends, self._arguments)
            return self._channels[pair]

    def _other(self, rank: int) -> int:
        if not 0 <= rank < self._world or rank == self._rank:
            raise ValueError(f"trimwire: rank {rank} of the group; this is rank {self._rank} of {self._world}, which sends to others and receives from others")
        return rank

    def send(self, flat: torch.Tensor, to: int, tag: int) -> Message:
        """Begins."""
        message = Message(flat, tag)
        self._channel(self._rank, self._other(to)).put(message)
        return message

    def receive(self, flat: torch.Tensor, source: int | None, tag: int) -> Message:
        """Begins; from whomever, where no source is named."""
        message = Message(flat, tag)
        sources = [other for other in range(self._world) if other != self._rank] if source is None else [self._other(source)]
        for other in sources:
            self._channel(other, self._rank).put(message)
        return message

    def close(self) -> None:
        """What is under way fails."""
        with self._lock:
            self._closed = True
            for channel in self._channels.values():
                channel.close()
