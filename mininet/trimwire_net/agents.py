# SPDX-License-Identifier: Apache-2.0
"""Programs on hosts that say at their end, in JSON, what happened: trimwire-agent, iperf3."""
from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from trimwire_net import programs
from trimwire_net.problem import Problem
from trimwire_net.run_folder import keep, run_folder
from trimwire_net.waiting import own_session


class Program:
    """A running one."""

    def __init__(self, host: Any, role: str, command: list[str]) -> None:
        self.what = f"{host.name}: {' '.join(command)}"
        self.files = [run_folder() / f"{host.name}-{role}.{kind}" for kind in ("json", "log")]
        with open(self.files[0], "wb") as stdout, open(self.files[1], "wb") as stderr:
            # Without mnexec's -d, which makes another session.
            self.process = host.popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
                                      preexec_fn=own_session, mncmd=["mnexec", "-a", str(host.pid)])

    def report(self, end: float) -> dict[str, Any]:
        """What it says at its end."""
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


def agent(host: Any, role: str, words: str) -> Program:
    """trimwire-agent."""
    return Program(host, role, [programs.ours("trimwire-agent"), *words.split(), "--json"])


def listens(host: Any, port: int) -> bool | None:
    """Whether somebody in the host's namespace waits for connections."""
    for sockets in (Path(f"/proc/{host.pid}/net/{table}") for table in ("tcp", "tcp6")):
        if sockets.exists() and f":{port:04X} " in sockets.read_text():
            return True
    return None


def address(host: Any, ipv6: bool) -> str:
    """A host's."""
    return str(host.ip6 if ipv6 else host.defaultIntf().IP())
