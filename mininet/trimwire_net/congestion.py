# SPDX-License-Identifier: Apache-2.0
"""What mininet/test.py runs: all-reduces of n hosts and one across one link, beside TCP."""
from __future__ import annotations

import contextlib
import math
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mininet.log import lg
from mininet.net import Mininet

from trimwire_net.all_reduce import all_reduce
from trimwire_net.bring_up import Fabric
from trimwire_net.processes import Program, poll
from trimwire_net.run_folder import keep
from trimwire_net.switches import SWITCHES, FabricSwitch
from trimwire_net.topologies import TOPOLOGIES

LOADS = (2, 3, 8)
# Mbit/s by n of n:1. BMv2 passes about 9,000 packets a second of processor time, each of which
# crosses two or three switches.
RATES = {"trimwire": {2: 20.0, 3: 20.0, 8: 10.0}, "bmv2": {2: 8.0, 3: 6.0, 8: 2.0}}
TCP_PORT = 5201
TCP_BYTES = 1 << 20
# Of a socket, which the kernel doubles. iperf3 ends when all is written, and counts what was read.
TCP_BUFFER = 64 << 10
# DSCP 19, droppable: not trimmed, in the queue of the gradients (docs/reference/fabric-file.md).
GRADIENTS_QUEUE = 19 << 2
# A trimmed packet keeps its signs at least. The most energy that a packet loses
# (docs/reference/wire-format.md, section 9).
ONE_PLANE = math.pi / 2 - 1


class Promises:
    """Promises as they are checked, said aloud."""

    def __init__(self) -> None:
        self.scenario = ""
        self.checked = 0
        self.broken: list[str] = []

    def check(self, promise: str, holds: bool, detail: str) -> None:
        """Notes one."""
        self.checked += 1
        if not holds:
            self.broken.append(f"{self.scenario}: {promise}: {detail}")
        print(f"  {'ok' if holds else 'BROKEN':>6}  {promise}: {detail}", flush=True)


@contextlib.contextmanager
def network(topology: str, switch: type[FabricSwitch], bw: float, hosts: int) -> Iterator[Fabric]:
    """A fabric that is up, and gone afterwards, whatever happens."""
    topo = TOPOLOGIES[topology](bw=bw, hosts=hosts)
    net = Mininet(topo=topo, switch=switch, controller=None, build=False)
    try:
        net.build()
        net.start()
        yield net.switches[0].fabric
    except BaseException:
        keep()
        raise
    finally:
        net.stop()


@contextlib.contextmanager
def tcp(sender: Any, receiver: Any, iperf3: str) -> Iterator[list[Program]]:
    """TCP_BYTES in the gradients' own queue, at the rate that TCP finds: server and client."""
    to, port = receiver.defaultIntf().IP(), str(TCP_PORT)
    ends = [Program(receiver, "tcp-server", [iperf3, "-s", "-1", "-J", "-p", port, "-B", to])]
    try:
        poll(f"{receiver.name}: iperf3", 10, lambda: ends[0].process.poll() or listens(receiver))
        words = ["-n", str(TCP_BYTES), "-w", str(TCP_BUFFER), "-S", str(GRADIENTS_QUEUE), "-J"]
        ends.append(Program(sender, "tcp-client", [iperf3, "-c", to, "-p", port, *words]))
        yield ends
    finally:
        for end in ends:
            end.end()


def listens(host: Any) -> bool | None:
    """Whether iperf3 waits for connections in the host's namespace."""
    with open(f"/proc/{host.pid}/net/tcp") as sockets:
        return True if f":{TCP_PORT:04X} " in sockets.read() else None


@dataclass
class Counters:
    """The switches' counters over P4Runtime (p4/README.md)."""

    rows: list[dict[str, Any]]

    def sum(self, *names: str, of: str = "") -> int:
        """Packets of some counters, of all switches or of those whose names begin so."""
        rows = [row for row in self.rows if row["switch"].startswith(of)]
        return sum(row["counters"].get(name, {"packets": 0})["packets"] for row in rows for name in names)

    @classmethod
    def at_rest(cls, fabric: Fabric) -> Counters:
        """Once every packet that was taken into a queue has left it, or after five seconds."""
        end = time.monotonic() + 5
        while True:
            counters = cls(fabric.show("counters"))
            if not counters.held() or time.monotonic() > end:
                return counters

    def held(self) -> int:
        """Packets that were taken into queues and did not leave."""
        return self.sum("admitted", "trimmed") - self.sum("transmitted")


def beside_tcp(promises: Promises, fabric: Fabric, load: int, iperf3: str) -> None:
    """n ranks on the left and one on the right. One host more on each side is TCP's."""
    left, right = fabric.hosts[: load + 1], fabric.hosts[load + 1 :]
    names = [host.name for host in left[:load]] + [right[0].name]
    with tcp(left[load], right[load], iperf3) as ends:
        words = "-b 512K -e 512K -n 3 --algorithm direct --seed 7"
        sums = all_reduce(fabric, names, words, timeout=90)
        until = time.monotonic() + 40
        _, received = (each.report(until)["end"]["sum_received"] for each in reversed(ends))
    counters = Counters.at_rest(fabric)
    promises.check("every packet that was taken into a queue left it", counters.held() == 0,
                   f"{counters.held()} did not")
    trimmed, left_trimmed = counters.sum("trimmed"), counters.sum("trim_transmitted")
    promises.check("the congested port trims", trimmed > 0, f"{trimmed} trimmed")
    arrived = sums.total("trimmed_received")
    promises.check("what arrived trimmed had been trimmed by a switch", 0 < arrived <= left_trimmed,
                   f"{left_trimmed} left trimmed, {arrived} arrived")
    share, missing, error = (sums.worst(what) for what in ("trimmed_share", "missing_share", "nmse"))
    # Parts go one way to the rank that adds them up, sums the other. Each may lack the missing
    # packets and what trimmed packets lost.
    most = 1e-9 + 2 * (missing + ONE_PLANE * share)
    promises.check("the sums are right within what the trims allow", error <= most and missing <= 0.01,
                   f"NMSE {error:.2e}, at most {most:.2e}; {share:.2%} trimmed, {missing:.2%} missing")
    through = int(received["bytes"])
    promises.check("TCP gets through, to the end", through + 4 * TCP_BUFFER >= TCP_BYTES,
                   f"{through} of {TCP_BYTES} bytes in {received['seconds']:.2f} s")
    spines = [node.name for node in fabric.switches if node.name.startswith("spine")]
    if spines:
        shares = [counters.sum("transmitted", of=name) for name in spines]
        promises.check("every spine carries at least half of its share (ECMP)",
                       min(shares) * 2 * len(shares) > sum(shares), f"{shares} packets")
    dead = [node.name for node in fabric.switches if not node.is_running()]
    promises.check("all switches still run", not dead, ", ".join(dead) or "yes")
    print(sums.table(), flush=True)


def run(promises: Promises, switch: str, topologies: tuple[str, ...], loads: tuple[int, ...],
        bw: float | None, iperf3: str) -> None:
    """n:1 for each topology and each n."""
    lg.setLogLevel("error")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for topology in topologies:
        for load in loads:
            rate = bw or RATES[switch][load]
            promises.scenario = f"{topology}, {rate:g} Mbit/s, {load}:1"
            print(f"{promises.scenario}, an all-reduce beside TCP", flush=True)
            with network(topology, SWITCHES[switch], rate, load + 1) as fabric:
                beside_tcp(promises, fabric, load, iperf3)
