# SPDX-License-Identifier: Apache-2.0
"""TCP beside gradients: iperf3 from one host to another."""
from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from trimwire_net.agents import Program, address, listens
from trimwire_net.bring_up import Fabric
from trimwire_net.problem import Problem
from trimwire_net.waiting import poll

PORT = 5201
# Of a socket, which the kernel doubles. iperf3 ends when all is written, and counts what has been read.
BUFFER = 64 << 10
BEST_EFFORT = 0
# DSCP 19, droppable: not cut, in the queue of the gradients of layer class 0 (docs/reference/fabric-file.md).
GRADIENTS_QUEUE = 19 << 2


def iperf3() -> str | None:
    """Its path, if there is one."""
    return shutil.which("iperf3")


@dataclass
class Flow:
    """What TCP made of it."""

    asked: int
    received: int
    retransmits: int
    seconds: float

    def is_through(self) -> bool:
        """Whether all has arrived but what may be left in the two sockets."""
        return self.received + 4 * BUFFER >= self.asked

    def text(self) -> str:
        """A few words."""
        rate = 8e-6 * self.received / max(1e-9, self.seconds)
        return f"{self.received} of {self.asked} bytes in {self.seconds:.2f} s, {rate:.1f} Mbit/s, {self.retransmits} retransmitted"


class Tcp:
    """So many bytes, at the rate that TCP finds, from when it is entered; gone when it is left."""

    def __init__(self, fabric: Fabric, sender: str, receiver: str, size: int, tos: int = BEST_EFFORT) -> None:
        program = iperf3()
        if program is None:
            raise Problem("TCP beside gradients needs iperf3 on PATH: apt-get install iperf3")
        self.program, self.size, self.tos = program, size, tos
        self.sender, self.receiver = fabric.host(sender), fabric.host(receiver)
        self.programs: list[Program] = []

    def __enter__(self) -> Tcp:
        own = address(self.receiver, False)
        server = Program(self.receiver, "tcp-server", [self.program, "-s", "-1", "-J", "-p", str(PORT), "-B", own])
        self.programs.append(server)
        poll(f"{self.receiver.name}: iperf3 on TCP port {PORT}", 10, lambda: server.process.poll() or listens(self.receiver, PORT))
        words = ["-c", own, "-p", str(PORT), "-n", str(self.size), "-w", str(BUFFER), "-S", str(self.tos), "-J"]
        self.programs.append(Program(self.sender, "tcp-client", [self.program, *words]))
        return self

    def finish(self, timeout: float = 40) -> Flow:
        """Waits until both ends have done."""
        end = time.monotonic() + timeout
        sent, received = (program.report(end)["end"] for program in reversed(self.programs))
        flow: dict[str, Any] = received["sum_received"]
        return Flow(self.size, int(flow["bytes"]), int(sent["sum_sent"]["retransmits"]), float(flow["seconds"]))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for program in self.programs:
            program.end()
