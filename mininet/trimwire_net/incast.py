# SPDX-License-Identifier: Apache-2.0
"""Agents that congest a port: some hosts send gradients to one, all at once, each at its link's rate."""
from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from mininet.log import info, output

from trimwire_net import programs
from trimwire_net.agents import address, agent
from trimwire_net.bring_up import Fabric
from trimwire_net.fabric_file import bits_per_second, ports
from trimwire_net.problem import Problem
from trimwire_net.run_folder import run_folder


@dataclass
class Outcome:
    """The ranks' reports, the receiver's first, and the messages that its transcript has."""

    receiver: str
    # By rank, from 1.
    senders: list[str]
    reports: list[dict[str, Any]]
    messages: list[dict[str, Any]]

    def received(self, what: str) -> int:
        """Of the receiver."""
        return int(self.reports[0]["totals"][what])

    def total(self, what: str) -> int:
        """Of all ranks."""
        return sum(int(report["totals"][what]) for report in self.reports)

    def packets(self, what: str) -> int:
        """Over the received gradients."""
        return sum(int(message[what]) for message in self.messages)

    def nmse(self) -> float:
        """Of the sum."""
        return float(self.reports[0]["rows"][0]["nmse"])

    def predicted(self) -> float:
        """Errors of independent gradients of equal energy add up, as their energies do."""
        return sum(float(message["nmse_expected"]) for message in self.messages) / len(self.reports)

    def table(self) -> str:
        """A line a gradient."""
        lines = [f"{'from':>6} {'packets':>8} {'trimmed':>8} {'missing':>8} {'predicted':>10} {'seconds':>8}"]
        for message in sorted(self.messages, key=lambda message: message["from"]):
            lines.append(f"{self.senders[message['from'] - 1]:>6} {message['packets']:>8} {message['trimmed']:>8} {message['missing']:>8} "
                         f"{message['nmse_expected']:>10.3e} {message['over_seconds']:>8.2f}")
        lines.append(f"sum: NMSE {self.nmse():.3e}, predicted {self.predicted():.3e}, {self.total('repairs_sent')} repairs")
        return "\n".join(lines) + "\n"


def first_switch(host: Any) -> Any:
    """The switch that a host is linked to."""
    interface = host.defaultIntf()
    link = interface.link
    return (link.intf2 if link.intf1 is interface else link.intf1).node


def usual(fabric: Fabric) -> tuple[str, list[str]]:
    """(receiver, senders) where none are named: the last host, and all hosts of the first switch that has some."""
    receiver = fabric.hosts[-1]
    for switch in fabric.switches:
        nodes = [other.node for _, _, other in ports(switch)]
        senders = [node.name for node in nodes if node in fabric.hosts and node is not receiver]
        if senders:
            return receiver.name, senders
    raise Problem("an incast needs two hosts")


def incast(
    fabric: Fabric, receiver: str, senders: list[str], words: str = "-b 4M -e 4M", ipv6: bool = False, timeout: float = 40
) -> Outcome:
    """The senders each send one gradient to the receiver, which adds them to its own and compares the sum."""
    if receiver in senders or len(set(senders)) < len(senders) or not senders:
        raise Problem(f"incast to {receiver} from {' '.join(senders) or 'nobody'}: each sender once, and not the receiver")
    info(f"*** Incast: {' '.join(senders)} -> {receiver}\n")
    record = run_folder() / "incast"
    agents = []
    try:
        own = address(fabric.host(receiver), ipv6)
        for rank, name in enumerate([receiver, *senders]):
            host = fabric.host(name)
            rate = bits_per_second(host.defaultIntf())
            # Ranks that meet all listen before the first one sends. 256 source ports: sprayed over the equal paths.
            agents.append(agent(host, "rank", f"perf reduce --rank {rank} --world {len(senders) + 1} --master-addr {own} --bind {address(host, ipv6)} "
                                              f"-n 1 -w 0 --algorithm direct --rate-algorithm fixed --bitrate {rate} --source-ports 256 "
                                              f"--timeout 20s --record {record} {words}"))
        end = time.monotonic() + timeout
        reports = [each.report(end) for each in agents]
    finally:
        for each in agents:
            each.end()
    shown = subprocess.run([programs.ours("trimwire-agent"), "transcript", "show", "--step", "1", "--json", f"{record}.0"],
                           stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return Outcome(receiver, senders, reports, json.loads(shown.stdout)["story"]["messages"])


def test(net: Any, receiver: str = "", *senders: str) -> None:
    """`mn --test incast[,RECEIVER,SENDER…]`"""
    fabric: Fabric = net.switches[0].fabric
    to, usual_senders = usual(fabric)
    output(incast(fabric, receiver or to, list(senders) or usual_senders).table())
