# SPDX-License-Identifier: Apache-2.0
"""Programs on hosts, their reports, waiting for them, and not outliving them."""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from trimwire_net.run_folder import Problem, keep, run_folder

T = TypeVar("T")
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


def own_session() -> None:
    """For `preexec_fn`, with `start_new_session`. Ctrl-C at a prompt stays there. SIGKILL comes when the
    thread that started the process ends. Our niceness holds against other sessions: the kernel's
    autogroups weigh by session.
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


class Program:
    """A program that runs on a host and reports in JSON at its end: trimwire-agent, iperf3."""

    def __init__(self, host: Any, role: str, command: list[str]) -> None:
        self.what = f"{host.name}: {' '.join(command)}"
        self.files = [run_folder() / f"{host.name}-{role}.{kind}" for kind in ("json", "log")]
        with open(self.files[0], "wb") as stdout, open(self.files[1], "wb") as stderr:
            # Without mnexec's -d, which makes another session.
            self.process = host.popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                      start_new_session=True, preexec_fn=own_session,
                                      mncmd=["mnexec", "-a", str(host.pid)])

    def report(self, end: float) -> dict[str, Any]:
        """Waits for its end, until a time of the monotonic clock, and gives its report."""
        try:
            code: int | None = self.process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            keep()
            how = "still runs" if code is None else f"exit code {code}"
            raise Problem(f"{self.what}: {how}\n{self.files[1].read_text(errors='replace')}")
        return dict(json.loads(self.files[0].read_text()))

    def end(self) -> None:
        """Kills it, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
