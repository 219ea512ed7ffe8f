# SPDX-License-Identifier: Apache-2.0
"""All-reduces among hosts, each a rank."""
from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from mininet.log import info, output

from trimwire_net import programs
from trimwire_net.bring_up import Fabric
from trimwire_net.fabric_file import bits_per_second
from trimwire_net.processes import Program
from trimwire_net.run_folder import Problem


@dataclass
class Sums:
    """The ranks' reports, by rank."""

    hosts: list[str]
    reports: list[dict[str, Any]]

    def row(self, rank: int) -> dict[str, Any]:
        """What a rank measured."""
        return dict(self.reports[rank]["rows"][0])

    def worst(self, what: str) -> float:
        """Over the ranks."""
        return max(float(self.row(rank)[what]) for rank in range(len(self.hosts)))

    def total(self, what: str) -> int:
        """Over the ranks."""
        return sum(int(report["totals"][what]) for report in self.reports)

    def table(self) -> str:
        """A line a rank."""
        lines = [f"{'rank':>6} {'host':>5} {'packets':>8} {'trimmed':>8} {'missing':>8} {'repaired':>8} {'NMSE':>10} {'ms':>7} {'slowest':>8}"]
        for rank, host in enumerate(self.hosts):
            row = self.row(rank)
            lines.append(f"{rank:>6} {host:>5} {row['packets']:>8} {row['trimmed_share']:>8.2%} {row['missing_share']:>8.2%} {row['repaired']:>8} "
                         f"{row['nmse']:>10.3e} {1e3 * row['seconds']:>7.1f} {1e3 * max(row['seconds_each']):>8.1f}")
        return "\n".join(lines) + "\n"


def all_reduce(fabric: Fabric, names: list[str], words: str = "-b 1M -e 1M -n 8", timeout: float = 60) -> Sums:
    """Every host has a gradient, and gets the sum of all."""
    if len(names) < 2 or len(set(names)) < len(names):
        raise Problem(f"allreduce {' '.join(names)}: two hosts at least, each once")
    hosts = [fabric.host(name) for name in names]
    peers = ",".join(host.defaultIntf().IP() for host in hosts)
    info(f"*** All-reduce: {' '.join(names)}\n")
    agents: list[Program] = []
    try:
        for rank, host in enumerate(hosts):
            rate = bits_per_second(host.defaultIntf())
            # 256 source ports: sprayed over the equal paths.
            own = f"--rank {rank} --world {len(hosts)} --peers {peers} --bind {host.defaultIntf().IP()}"
            command = f"perf all-reduce {own} -w 1 --bitrate {rate} --channels 1 --set source-ports=256 --timeout 20s {words}"
            agents.append(Program(host, "rank", [programs.ours("trimwire-agent"), *command.split(), "--json"]))
        end = time.monotonic() + timeout
        return Sums(names, [each.report(end) for each in agents])
    finally:
        for each in agents:
            each.end()


def test(net: Any, *names: str) -> None:
    """`mn --test allreduce[,HOST…]`"""
    fabric: Fabric = net.switches[0].fabric
    output(all_reduce(fabric, list(names) or [host.name for host in fabric.hosts]).table())
