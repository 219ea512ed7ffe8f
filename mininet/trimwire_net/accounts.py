# SPDX-License-Identifier: Apache-2.0
"""Where packets went: the switches' counters over P4Runtime beside what the kernel counted on their interfaces."""
from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trimwire_net.bring_up import Fabric
from trimwire_net.fabric_file import ports

# p4/README.md: every packet offered to a queue is in exactly one of these.
TAKEN = ("admitted", "trimmed")
DROPPED = ("trim_dropped", "selective_dropped", "tail_dropped")
OFFERED = TAKEN + DROPPED
BEST_EFFORT = 0


def kernel_counters() -> dict[str, dict[str, int]]:
    """Packets by interface of this namespace. (/sys shows those of the namespace that it was mounted in.)"""
    counters = {}
    for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]:
        name, _, cells = line.partition(":")
        if name.strip() == "lo":
            # gRPC's.
            continue
        numbers = cells.split()
        counters[name.strip()] = {"rx_packets": int(numbers[1]), "tx_packets": int(numbers[9])}
    return counters


def quiet_look(fabric: Fabric) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]]]:
    """The switches' counters and the interfaces', of a moment in which no packet moved: hosts' kernels send group membership
    reports for a while."""
    end = time.monotonic() + 5
    interfaces = kernel_counters()
    while True:
        rows, after = fabric.show("counters"), kernel_counters()
        if after == interfaces or time.monotonic() >= end:
            return rows, after
        interfaces = after


class Accounts:
    """Packets counted between two looks at a fabric."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.ladder: Counter[tuple[str, int, int, str]] = Counter()
        self.unroutable: Counter[str] = Counter()
        self.kernel: Counter[tuple[str, int, str]] = Counter()
        rows, interfaces = quiet_look(fabric)
        for row in rows:
            for name, count in row["counters"].items():
                if row["port"] is None:
                    self.unroutable[row["switch"]] += count["packets"]
                else:
                    self.ladder[row["switch"], row["port"], row["queue"], name] += count["packets"]
        for switch in fabric.switches:
            for port, interface, _ in ports(switch):
                for name, count in interfaces[interface.name].items():
                    self.kernel[switch.name, port, name] = count

    def since(self, before: Accounts) -> Accounts:
        """What was counted after `before`."""
        self.ladder.subtract(before.ladder)
        self.unroutable.subtract(before.unroutable)
        self.kernel.subtract(before.kernel)
        return self

    def sum(self, names: Iterable[str], switch: str = "", port: int = -1, kernels: bool = True) -> int:
        """Packets of some counters: of all switches or one, all ports or one, with the best-effort queue or without.

        Agents send nothing in that queue; the hosts' kernels do (an ICMP error for a STOP whose sender has ended).
        """
        names = tuple(names)
        return sum(count for (row_switch, row_port, queue, name), count in self.ladder.items()
                   if name in names and switch in ("", row_switch) and port in (-1, row_port)
                   and (kernels or queue != BEST_EFFORT))

    def disagreements(self) -> list[str]:
        """Where the conservation law does not hold, or the kernel counted otherwise. Empty when all has arrived."""
        wrong = []
        for switch in self.fabric.switches:
            name = switch.name
            offered = self.sum(OFFERED, name) + self.unroutable[name]
            numbers = [port for port, _, _ in ports(switch)]
            received = sum(self.kernel[name, port, "rx_packets"] for port in numbers)
            if offered != received:
                wrong.append(f"{name}: {received} packets came in, {offered} were offered to queues or unroutable")
            for port in numbers:
                taken, left = self.sum(TAKEN, name, port), self.sum(["transmitted"], name, port)
                sent = self.kernel[name, port, "tx_packets"]
                if not taken == left == sent:
                    wrong.append(f"{name} port {port}: {taken} packets taken into queues, {left} left them, {sent} left the port")
        return wrong

    def table(self) -> str:
        """A line a port that something was sent to: what the ladder did with it."""
        lines = [f"{'port':>16} {'to':>8} {'offered':>8} {'full':>8} {'trimmed':>8} {'dropped':>8} {'sent':>8}"]
        for switch in self.fabric.switches:
            for port, _, other in ports(switch):
                columns = (OFFERED, ["admitted"], ["trimmed"], DROPPED, ["transmitted"])
                offered, full, cut, dropped, left = (self.sum(names, switch.name, port) for names in columns)
                if offered:
                    lines.append(f"{switch.name + ':' + str(port):>16} {other.node.name:>8} {offered:>8} {full:>8} {cut:>8} "
                                 f"{dropped:>8} {left:>8}")
        return "\n".join(lines) + "\n"


def port_to(switch: Any, node: Any) -> int:
    """The port of a switch that leads to a neighbour."""
    for port, _, other in ports(switch):
        if other.node is node:
            return port
    raise KeyError(f"{switch.name} has no link to {node.name}")
