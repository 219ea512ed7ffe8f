# SPDX-License-Identifier: Apache-2.0
"""Futures that C++ waits for, too."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch.profiler import record_function

from .._native import Verdict


def until_done(range_: record_function, future: torch.futures.Future[Any]) -> torch.futures.Future[Any]:
    """Has a profiler's range, which has begun, last as long as what `future` stands for.

    Whoever waits has to wait for the future that this returns: with the other one, a profiler may be read while the range ends on another thread, which crashes.
    """
    return range_._call_end_callbacks_on_future(future) if torch.autograd._profiler_enabled() else future


class Promise:
    """A value or an error that comes from another thread; the first of them counts.

    `Future.set_exception` makes the error its value, which only `wait` in Python raises: C++ would take it for tensors, and crash. What a callback raises is an
    error everywhere.
    """

    def __init__(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        """For a value that holds `tensors`: a future has to know of the GPUs that they are on."""
        devices = {tensor.device for tensor in tensors if tensor.is_cuda}
        self._source: torch.futures.Future[Any] = torch.futures.Future(devices=list(devices)) if devices else torch.futures.Future()
        self._verdict = Verdict()
        self._lock = threading.Lock()
        self._said = False
        self.error: BaseException | None = None
        #: Set right before the future is.
        self.over = threading.Event()
        self.future: torch.futures.Future[Any] = self._source.then(self._verdict)

    def _first(self) -> bool:
        with self._lock:
            said, self._said = self._said, True
        return not said

    def fulfil(self, value: Any) -> None:
        """What was waited for."""
        if self._first():
            self.over.set()
            self._source.set_result(value)

    def fail(self, error: BaseException) -> None:
        """It will not come."""
        if self._first():
            self.error = error
            self._verdict.fail(error)
            self.over.set()
            self._source.set_result(None)
