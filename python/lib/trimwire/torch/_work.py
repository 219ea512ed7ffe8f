# SPDX-License-Identifier: Apache-2.0
"""What torch waits for."""

from __future__ import annotations

import contextlib
import datetime
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.profiler import record_function

from ._errors import CollectiveError
from ._future import Promise, until_done
from ._memory import Back
from ._watch import watch

#: So long a rank that gives up waits for what others say of it, seconds.
_GRACE = 0.5
#: What was heard counts for so long: of a hundred operations that time out together one asks.
_FRESH = 2.0


class Part(Protocol):
    """An operation of the network."""

    def then(self, callback: Callable[[], object]) -> None: ...
    def error(self) -> str | None: ...
    def culprit(self) -> int | None: ...
    def cancel(self) -> None: ...


class Reports:
    """What the ranks of a group tell each other of operations that do not end: by the launcher's store, as the network may be what is wrong."""

    def __init__(self, store: dist.Store, rank: int, ranks: Sequence[int], name: str) -> None:
        self._store, self._rank, self._ranks, self.name = store, rank, list(ranks), name
        self._heard: tuple[float, dict[int, tuple[int, str]]] = (float("-inf"), {})

    def global_rank(self, rank: int | None) -> int | None:
        """A rank of the group, as the job numbers it."""
        return None if rank is None or rank >= len(self._ranks) else self._ranks[rank]

    def _key(self, rank: int) -> str:
        return f"trimwire/waits/{rank}"

    def waiting(self, sequence: int, what: str) -> dict[int, tuple[int, str]]:
        """Says that this rank waits for an operation, and hears which others do, and for which."""
        said = {self._rank: (sequence, what)}
        at, heard = self._heard
        if time.monotonic() - at < _FRESH:
            return {**heard, **said}
        try:
            self._store.set(self._key(self._rank), json.dumps([sequence, what]))
            end = time.monotonic() + _GRACE
            while len(said) < len(self._ranks):
                for rank in range(len(self._ranks)):
                    if rank not in said and self._store.check([self._key(rank)]):
                        other = json.loads(self._store.get(self._key(rank)))
                        said[rank] = (int(other[0]), str(other[1]))
                if time.monotonic() > end:
                    break
                time.sleep(0.05)
        except Exception:  # Without a store it is known of this rank alone.
            pass
        self._heard = time.monotonic(), said
        return said

    def text(self, sequence: int, what: str) -> tuple[str, int | None]:
        """Who waits for what, and who is to blame if one is."""
        said = self.waiting(sequence, what)
        lines = [f"rank {self.global_rank(rank)} waits in {other} (sequence {number})" for rank, (number, other) in sorted(said.items())]
        silent = [self.global_rank(rank) for rank in range(len(self._ranks)) if rank not in said]
        if silent:
            lines.append(f"rank{'s' if len(silent) > 1 else ''} {', '.join(map(str, silent))} not known to wait in any operation of this group")
        behind = [rank for rank, (number, _) in said.items() if number < sequence]
        blamed = silent if silent else [self.global_rank(rank) for rank in behind]
        return "; ".join(lines), blamed[0] if len(blamed) == 1 else None


class TrimwireWork(dist._Work):
    """Operations of the network, and what is to be done when all of them are over."""

    def __init__(
        self,
        what: str,
        sequence: int,
        reports: Reports,
        parts: Sequence[Part],
        result: list[torch.Tensor],
        finish: Back,
        patience: Callable[[], float],
        asked: float | None = None,
    ) -> None:
        """`patience` is the network's, seconds; `asked` is what this operation may take, if that was said of it."""
        super().__init__()
        self.what, self.sequence = what, sequence
        self._reports, self._parts, self._result, self._finish, self._patience, self._asked = reports, list(parts), result, finish, patience, asked
        self._promise = Promise(result)
        #: Done once its range has ended, too.
        self._future = self._promise.future
        self._left = len(self._parts)
        self._lock = threading.Lock()
        self._expired: CollectiveError | None = None
        self.began = time.monotonic()

    @property
    def allowed(self) -> float:
        """Seconds it may take."""
        if self._asked is not None:
            return self._asked
        # The network's patience ends first, and knows more of whom it waited for.
        seconds = self._patience()
        return seconds + min(max(0.5 * seconds, 1.0), 5.0)

    def begin(self) -> None:
        """Listens to its parts, which have begun."""
        with record_function("trimwire::collective") as whole:
            if self._parts:
                watch.add(self)
            for part in self._parts:
                part.then(self._one_over)
            if not self._parts:
                self._all_over()
            self._future = until_done(whole, self._promise.future)

    def _one_over(self) -> None:
        with self._lock:
            self._left -= 1
            over = self._left == 0
        if over:
            self._all_over()

    def _all_over(self) -> None:
        watch.remove(self)
        try:
            error = self._expired or self._failure()
            if error is not None:
                raise error
            if self._finish is not None:
                self._finish()
        except BaseException as error:  # Whatever it is, who waits has to hear of it.
            # Who raises it once more adds to its trace, which is kept nowhere.
            self._promise.fail(error.with_traceback(None))
        else:
            self._promise.fulfil(self._result)
        self._finish = None

    def _failure(self) -> CollectiveError | None:
        for part in self._parts:
            text = part.error()
            if text is not None:
                rank = part.culprit()
                blamed = self._reports.global_rank(rank)
                named = "" if blamed is None or blamed == rank else f" (rank {rank} of the group is rank {blamed} of the job)"
                late = time.monotonic() - self.began > 0.9 * min(self._patience(), self.allowed)
                how = ""
                if late:
                    # Of several that wait for each other the network names whichever it waited for first: who waits for nobody is to blame.
                    who, absent = self._reports.text(self.sequence, self.what)
                    blamed, named, how = absent if absent is not None else blamed, f"{named}. {who}", " timed out"
                return CollectiveError(f"{self.what} (sequence {self.sequence} of group '{self._reports.name}'){how}: {text}{named}", rank=blamed, sequence=self.sequence, timed_out=late)
        return None

    def expire(self) -> None:
        """It has taken longer than it may."""
        if self._expired is None:
            who, rank = self._reports.text(self.sequence, self.what)
            text = f"{self.what} (sequence {self.sequence} of group '{self._reports.name}') timed out: not over after {self.allowed:.3g} s. {who}. `trimwire-agent doctor` tells what the network lets through"
            self._expired = CollectiveError(text, rank=rank, sequence=self.sequence, timed_out=True)
            for part in self._parts:
                part.cancel()
        elif time.monotonic() - self.began > self.allowed + 5.0:
            # The network's thread does not answer, either.
            watch.remove(self)
            self._promise.fail(self._expired)

    def wait(self, timeout: datetime.timedelta | None = None) -> bool:
        """Until it is over.

        Raises:
            CollectiveError: it failed, or is not over after `timeout`, or the group's.
        """
        seconds = None if timeout is None or timeout.total_seconds() <= 0 else timeout.total_seconds()
        with record_function("trimwire::wait"):
            if not self._promise.over.wait(seconds):
                who, rank = self._reports.text(self.sequence, self.what)
                raise CollectiveError(f"{self.what} (sequence {self.sequence}) timed out: not over after {seconds} s; it goes on. {who}", rank=rank, sequence=self.sequence, timed_out=True)
            if self._promise.error is not None:
                with contextlib.suppress(Exception):
                    self._future.wait()
                raise self._promise.error
            self._future.wait()
        return True

    def then(self, callback: Callable[[], object]) -> None:
        """Calls when it is over."""
        self._future.add_done_callback(lambda _: callback())

    def error(self) -> str | None:
        """Why it failed."""
        return None if self._promise.error is None else str(self._promise.error)

    def culprit(self) -> int | None:
        """The rank of the group to blame."""
        return next((rank for part in self._parts if (rank := part.culprit()) is not None), None)

    def cancel(self) -> None:
        """Gives it up."""
        for part in self._parts:
            part.cancel()

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return bool(self._future.done())

    def is_success(self) -> bool:
        """Whether it is over, and well."""
        return bool(self._future.done()) and self._promise.error is None

    def exception(self) -> BaseException | None:
        """Why it failed."""
        return self._promise.error

    def result(self) -> list[torch.Tensor]:
        """Its tensors, once it is over."""
        self.wait()
        return self._result

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """The same for C++. What it raises is a RuntimeError."""
        return self._future


#: Before PyTorch 2.8 a work that is a Python object may die while C++ still waits for it (PyProcessGroup did not hold it): the latest are held here.
held: deque[TrimwireWork] | None = None
if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 8):
    held = deque(maxlen=256)


def seconds_of(options: Any) -> float | None:
    """The timeout of a call's options, where it has one."""
    timeout = getattr(options, "timeout", None)
    return None if timeout is None or timeout.total_seconds() <= 0 else float(timeout.total_seconds())
