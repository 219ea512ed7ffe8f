"""Waiting for processes, and not outliving them."""
from __future__ import annotations

import ctypes
import signal
import time
from collections.abc import Callable
from typing import TypeVar

from trimwire_net.problem import Problem

T = TypeVar("T")
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """For `preexec_fn`: the process gets SIGKILL when the thread that started it ends, however that comes."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def poll(what: str, seconds: float, look: Callable[[], T | None]) -> T:
    """Looks until a condition gives something."""
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if seen is not None:
            return seen
        if time.monotonic() >= end:
            raise Problem(f"{what}: not within {seconds:g} s")
        time.sleep(0.01)
