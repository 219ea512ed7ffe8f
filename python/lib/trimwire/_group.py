# SPDX-License-Identifier: Apache-2.0
"""Collectives between processes."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _native, _truncated
from ._native import Work
from ._operation import DEFAULT_PLANES, MTU_LEAST, MTU_MOST, Epoch, GroupOptions, OperationOptions

if TYPE_CHECKING:
    from .cuda import Collectives

__all__ = ["Epoch", "Group", "Work", "default_address", "stats"]


def default_address(towards: str | None = None) -> str:
    """The addresses to listen on, with commas between: of the interfaces that TRIMWIRE_SOCKET_IFNAME selects (as NCCL_SOCKET_IFNAME does), or else the one that this host reaches `towards` from."""
    return _native.own_address(os.environ.get("TRIMWIRE_SOCKET_IFNAME") or None, towards)


def _channels() -> int:
    """
    Raises:
        ValueError: TRIMWIRE_CHANNELS is no number.
    """
    given = os.environ.get("TRIMWIRE_CHANNELS") or "1"
    if not given.isdecimal() or not 1 <= int(given) <= 16:
        raise ValueError(f"TRIMWIRE_CHANNELS: '{given}'; valid are 1 to 16")
    return int(given)


#: Closed before the interpreter goes: their threads call back into it.
_live: weakref.WeakSet[Group] = weakref.WeakSet()


def _close_all() -> None:
    for group in list(_live):
        group.close()


atexit.register(_close_all)


class Group:
    """One rank of a group of processes, which call the same operations in the same order.

    Listens as soon as it is made; `connect` begins when the addresses of all ranks are known, by whatever means: a launcher's store, a file.

        group = Group("10.0.0.1")
        addresses = exchange(group.address)      # those of all ranks, in order of rank
        group.connect(rank, addresses)
        group.all_reduce(gradient, average=True).wait()

    Tensors are numpy arrays or tensors in the host's memory, contiguous; they are not to be touched before the work has ended. What may be trimmed may be tensors of a GPU, too (docs/reference/gpu.md).
    """

    def __init__(self, address: str | None = None, *, port: int = 0, paths: int = 16, receive: str = "auto", checksums: str = "filled", channels: int | None = None) -> None:
        """Listens.

        Args:
            address: of this host, or several of one family with commas between; None: `default_address()`.
            port: UDP; 0: a free one.
            paths: source ports that data leaves by.
            receive: 'socket'; 'raw', for switches that trim and leave lengths as they were (needs CAP_NET_RAW); 'auto', sockets, and a warning when such packets come.
            checksums: of data. 'filled', for switches that set them to 0 when they trim; 'zero', for those that leave them alone.
            channels: threads that each move and code a part of every operation, on `port` and as many ports behind it; the same at all ranks. None: TRIMWIRE_CHANNELS, or 1.

        Raises:
            ValueError: one of these cannot be; the text names it.
            TransportError: the system refuses.
        """
        self._socket = _native.Socket(address or default_address(), port, paths, "socket" if receive == "auto" else receive, checksums, _channels() if channels is None else channels)
        if receive == "auto":
            _truncated.warn_when_there_are_some()
        self._group: _native.Group | None = None
        self._numbers = (0, 0)
        self._collectives: Collectives | None = None
        self._first = threading.Lock()
        self._auto = "auto"
        #: Hears at the end what became of the operations.
        self.farewell: Callable[[dict[str, float]], None] | None = None
        #: What ranks that have told each other their `mtu`s use.
        self.agreed_mtu: int | None = None

    @property
    def address(self) -> str:
        """Where this rank listens: `IP:PORT`."""
        return self._socket.address

    @property
    def mtu(self) -> int | None:
        """Bytes of the longest IP packet that this rank's interfaces carry, at most TRIMWIRE_MTU and 9,216; None where the system does not tell.

        Ranks exchange it with their addresses, and pass the smallest to `connect`.

        Raises:
            ValueError: TRIMWIRE_MTU is no size that packets can have.
        """
        given = os.environ.get("TRIMWIRE_MTU")
        if given and not (given.isdecimal() and MTU_LEAST <= int(given) <= MTU_MOST):
            raise ValueError(f"TRIMWIRE_MTU: '{given}'; valid are {MTU_LEAST} to {MTU_MOST}")
        sizes = [size for size in (self._socket.mtu, int(given) if given else None) if size is not None]
        return min(sizes, default=None)

    def connect(
        self,
        rank: int,
        addresses: Sequence[str],
        *,
        seed: int = 0,
        job: int = 0,
        loss: float = 0.0,
        seal_key: bytes | None = None,
        rate_bps: int | None = None,
        give_up: float = 10.0,
        operation_timeout: float = 1_800.0,
        rendezvous_timeout: float | None = None,
        record: str | os.PathLike[str] | None = None,
        rate_algorithm: str = "dctcp",
        trim_delay: float | None = None,
        mtu: int | None = None,
    ) -> Group:
        """Begins, with the addresses of all ranks in order of rank.

        `seed` is the rotations', the same everywhere; `loss` the share of a message's packets that may be missing; `seal_key` seals every packet (16 or
        32 bytes, a secret of the job); `rate_bps` limits sending (None: the interface's speed). A rank that has answered, and then is silent for `give_up` seconds, is given up; one that has not called an operation, or was never heard, is waited for `operation_timeout` seconds.
        Where all ranks are known to have been started, and to be here within `rendezvous_timeout` seconds, one that was never heard is given up, too, from then on (None: ranks may start at any time).
        With `record`, a file, what arrives of every packet is written down (docs/reference/transcript.md): `{rank}` in its name is replaced, else `.RANK` appended; one that is there is overwritten. `rate_algorithm` is 'dctcp', or 'fixed': always the line's rate.
        `trim_delay` is the time in seconds that a queue takes from which switches trim, the fabric file's least `shallow_at` over the line's rate (None: 20 µs): over slow links it is far more, and without it a
        rank finds out late that a burst is over.
        `mtu` is the smallest of all ranks' `mtu`, the same everywhere: packets are made to fit it (None: 1500, or what this rank's interfaces carry where that is less). Paths that carry less are found, and lived with (docs/explanation/transport.md).
        """
        if self._group is not None:
            raise RuntimeError("the group is connected already")
        options = GroupOptions(seed, rate_bps, give_up, operation_timeout, rendezvous_timeout, loss, seal_key, job, None if record is None else os.fspath(record), rate_algorithm, trim_delay, mtu)
        self._group = _native.Group(self._socket, rank, list(addresses), options)
        self._numbers = (seed, job)
        _live.add(self)
        return self

    @property
    def channels(self) -> int:
        """So many threads move and code what this rank sends and gets."""
        return self._socket.channels

    def keep_channels(self, channels: int) -> None:
        """Has so many from now on, at most as many as there are: closes the others. Before `connect`."""
        self._socket.keep(channels)

    def send_directly(self) -> None:
        """Has 'auto' be 'direct' where packets may be trimmed, as it is at ranks that work on a GPU. Before operations, at all ranks."""
        self._auto = "direct"

    def on_gpu(self) -> Collectives:
        """The same group for tensors of a GPU, as `all_reduce` and `reduce_scatter` use it; needs PyTorch and Triton (docs/reference/gpu.md)."""
        from . import cuda

        # Once for all threads: a group has its rows for one who codes them.
        with self._first:
            if self._collectives is None:
                self._collectives = cuda.Collectives(self._native_group(), self.channels, *self._numbers)
            return self._collectives

    def _native_group(self) -> _native.Group:
        if self._group is None:
            raise RuntimeError("the group is not connected: connect(rank, addresses) comes first")
        return self._group

    @property
    def rank(self) -> int:
        """This rank."""
        return self._native_group().rank

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self._native_group().world

    def all_reduce(
        self,
        tensor: Any,
        *,
        average: bool = False,
        exact: bool = False,
        planes: int = DEFAULT_PLANES,
        layer_class: int = 0,
        tag: int = 0,
        consistent: bool = False,
        full: bool = False,
        algorithm: str = "auto",
        deadline: float | None = None,
        pace: float = 1.0,
    ) -> Work:
        """The sum over all ranks, or their mean, in place (float32, float16, bfloat16).

        Packets that the network trims are decoded as they are, without bias; `full` has them sent again, `exact` sends every bit. `consistent` has all ranks
        decode alike, at the precision of the one that got least. Lower `layer_class`es (0 to 7) go first; `tag` tells tensors apart that are summed again
        and again. `algorithm` is 'direct', 'ring', 'two-level' or 'auto'. With a `deadline` (seconds from the call) what is trimmed or lost is sent again until then, what is
        worth most first; then every rank takes what is there, and what has not come counts as zero. This rank's data leaves at a share of the line's rate, `pace`, at most.
        """
        options = OperationOptions(exact, average, planes, layer_class, tag, consistent, full, self._way(algorithm, exact), deadline, pace)
        if getattr(tensor, "is_cuda", False) and not exact:
            return self.on_gpu().all_reduce(tensor, **vars(options))
        # Of every bit there is no sum, but of f32 there is.
        return self._native_group().all_reduce(tensor, options)

    def reduce_scatter(
        self,
        input: Any,
        output: Any,
        *,
        average: bool = False,
        exact: bool = False,
        planes: int = DEFAULT_PLANES,
        layer_class: int = 0,
        tag: int = 0,
        full: bool = False,
        algorithm: str = "auto",
        deadline: float | None = None,
        pace: float = 1.0,
    ) -> Work:
        """The sum of all ranks' `input`s, of which `output` gets this rank's part: as even a division as possible, in order of rank."""
        options = OperationOptions(exact, average, planes, layer_class, tag, False, full, self._way(algorithm, exact), deadline, pace)
        if getattr(input, "is_cuda", False) and not exact:
            return self.on_gpu().reduce_scatter(input, output, **vars(options))
        return self._native_group().reduce_scatter(input, output, options)

    def all_gather(self, input: Any, output: Any, *, exact: bool = True, planes: int = DEFAULT_PLANES, full: bool = False) -> Work:
        """All ranks' `input`s, one behind the other; every bit unless `exact` is False."""
        if getattr(input, "is_cuda", False) and not exact:
            return self.on_gpu().all_gather(input, output, planes=planes, full=full)
        return self._native_group().all_gather(input, output, OperationOptions(exact, planes=planes, full=full, algorithm=self._way("auto", exact)))

    def broadcast(self, tensor: Any, root: int = 0, *, exact: bool = True, planes: int = DEFAULT_PLANES, full: bool = False) -> Work:
        """The tensor of rank `root`, for all, in place; every bit unless `exact` is False."""
        return self._native_group().broadcast(tensor, root, OperationOptions(exact, planes=planes, full=full))

    def reduce(self, tensor: Any, root: int = 0, *, exact: bool = False, average: bool = False, planes: int = DEFAULT_PLANES, full: bool = False) -> Work:
        """The sum over all ranks, for rank `root`, in place there; the others' tensors stay as they are."""
        return self._native_group().reduce(tensor, root, OperationOptions(exact, average, planes, full=full, algorithm="direct" if exact else "auto"))

    def all_to_all(self, input: Any, output: Any, to: Sequence[int], sources: Sequence[int]) -> Work:
        """From every rank to every rank its part, bit by bit.

        Args:
            input: what this rank has for each, one behind the other by rank; the bytes of `to`.
            output: what each has for this rank, likewise; the bytes of `sources`.
            to: words of four bytes for each rank.
            sources: words of four bytes from each rank: what its `to` says of this one.

        Raises:
            TransportError: from `Work.wait`, where the ranks' lists do not fit each other, or a rank fails.
        """
        return self._native_group().all_to_all(input, output, list(to), list(sources), OperationOptions(exact=True))

    def peers(self) -> dict[int, dict[str, float]]:
        """Counters of what went between this rank and each other one, by rank: packets, bytes, trimmed, lost, repaired, round trip and rate."""
        return self._native_group().peers()

    def set_patience(self, seconds: float) -> None:
        """A rank that has not called an operation is waited for so long, from now on."""
        self._native_group().set_patience(seconds)

    def barrier(self) -> Work:
        """Over when every rank has called it."""
        import numpy as np

        return self._native_group().all_reduce(np.zeros(1, dtype=np.float32), OperationOptions(exact=True))

    def _way(self, algorithm: str, exact: bool) -> str:
        return self._auto if algorithm == "auto" and not exact else algorithm

    def shrink(self, exclude: Sequence[int] = ()) -> Epoch:
        """Goes on without the ranks that have died, as ncclCommShrink does; every rank that is to go on calls it, and none returns before they agree.

        Left out are the ranks that failed operations have found gone, those of `exclude`, and whoever answers nothing for `give_up` seconds. Ranks are named here as they were in the beginning, and as errors name them. What
        is under way fails, at all ranks. From then on `rank` and `world` count those that are left, in the same order, and sums are theirs. TransportError where fewer than half are left (or half without
        the lowest rank), as others may go on then, and where the others have gone on without this rank.
        """
        return self._next_epoch(exclude, admit=False)

    def grow(self, exclude: Sequence[int] = ()) -> Epoch:
        """As `shrink`, and lets in who has started anew and waits in `join`; every rank calls it between the same two operations."""
        return self._next_epoch(exclude, admit=True)

    def join(self) -> Epoch:
        """Waits to be let into a group that goes on: of a process that takes a dead rank's place, right after `connect` under that rank's number, with the seed and the addresses that the others have."""
        return self._epoch(self._native_group().join())

    def admit(self, rank: int, address: str) -> None:
        """A rank that starts anew listens at another address than before."""
        self._native_group().admit(rank, address)

    def knocking(self) -> list[int]:
        """Ranks that have started anew and wait in `join`."""
        return self._native_group().knocking()

    def _next_epoch(self, exclude: Sequence[int], admit: bool) -> Epoch:
        if self._collectives is not None:
            raise NotImplementedError("a group that has worked on tensors of a GPU keeps its ranks: make a new group of those that are left")
        return self._epoch(self._native_group().next_epoch(list(exclude), admit))

    def _epoch(self, said: tuple[int, list[int], list[int]]) -> Epoch:
        number, members, arrivals = said
        return Epoch(number, self.rank, self.world, tuple(members), tuple(arrivals))

    def stats(self) -> dict[str, float]:
        """Totals since `connect`: operations, packets received, trimmed, missing and sent again, bytes sent, seconds in operations.

        `p50_seconds` and `p99_seconds` are percentiles of how long the latest 1,024 operations took that may be trimmed, once there was one.
        """
        native = self._native_group()
        return {**native.stats(), **_percentiles(native.durations())}

    def recorded(self) -> dict[str, Any] | None:
        """Of a transcript, once the group is closed: `records` in it, its `bytes`, records that were `lost` since the disk was slower, and the `error` that it ends early by, or None."""
        said = self._native_group().recorded()
        return None if said is None else dict(zip(("records", "bytes", "lost", "error"), said, strict=True))

    def close(self) -> None:
        """Gives up what is under way, and ends. Peers who have not heard that they are done are answered for a moment."""
        _live.discard(self)
        if self._group is not None:
            farewell, self.farewell = self.farewell, None
            if farewell is not None:
                farewell(self.stats())
            self._group.close()
            said = self._group.recorded()
            if said is not None and (said[2] or said[3]):
                why = said[3] or f"{said[2]} records were lost: the disk is slower than the network"
                warnings.warn(f"the transcript of rank {self._group.rank} is not whole: {why}", RuntimeWarning, stacklevel=2)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _percentiles(durations: list[float]) -> dict[str, float]:
    if not durations:
        return {}
    ordered = sorted(durations)
    # Nearest rank.
    return {f"p{percent}_seconds": ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 99)}


def live() -> list[Group]:
    """Groups of this process that are connected and not closed."""
    return list(_live)


def stats() -> dict[str, float]:
    """As `Group.stats`, of all groups of this process that are connected and not closed: those of backends and hooks, too."""
    totals: dict[str, float] = {}
    durations: list[float] = []
    for group in list(_live):
        native = group._native_group()
        for name, value in native.stats().items():
            totals[name] = totals.get(name, 0) + value
        durations += native.durations()
    return {**totals, **_percentiles(durations)}
