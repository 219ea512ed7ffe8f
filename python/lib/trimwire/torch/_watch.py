# SPDX-License-Identifier: Apache-2.0
"""Time-outs: one thread looks after all operations of this process that are under way."""

from __future__ import annotations

import atexit
import threading
import time
from typing import Protocol

#: Between two looks, seconds.
_LEAST, _MOST = 0.02, 1.0


class Watched(Protocol):
    """An operation under way."""

    @property
    def allowed(self) -> float:
        """Seconds it may take."""

    @property
    def began(self) -> float:
        """When it began, by time.monotonic()."""

    def expire(self) -> None:
        """It has taken longer. May be called again, while it does not end."""


class Watch:
    """Operations under way, each of which is told when it has taken too long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[Watched] = set()
        self._some = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, work: Watched) -> None:
        """It has begun."""
        with self._lock:
            self._live.add(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trimwire-watch", daemon=True)
                self._thread.start()
                # A thread that the interpreter kills while it ends takes the process with it, where it stands in C++.
                atexit.register(self.close)
        self._some.set()

    def remove(self, work: Watched) -> None:
        """It is over."""
        with self._lock:
            self._live.discard(work)

    def close(self) -> None:
        """Looks after nothing any more."""
        self._ending.set()
        self._some.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * _MOST)

    def _run(self) -> None:
        while not self._ending.is_set():
            self._some.wait()
            with self._lock:
                live = list(self._live)
                if not live:
                    if not self._ending.is_set():
                        self._some.clear()
                    continue
            now = time.monotonic()
            for work in live:
                if now - work.began > work.allowed:
                    work.expire()
            self._ending.wait(min(max(min(work.allowed for work in live) / 20, _LEAST), _MOST))


watch = Watch()
