# SPDX-License-Identifier: Apache-2.0
"""Waiting for processes, and not outliving them."""
from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trimwire_net.problem import Problem

T = TypeVar("T")
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


def own_session() -> None:
    """For `preexec_fn`, with `start_new_session`: Ctrl-C at a prompt stays there, SIGKILL comes when the thread that started the
    process ends, however that comes, and our niceness holds against other sessions (the kernel's autogroups weigh by session).
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))


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
