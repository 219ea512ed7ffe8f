# SPDX-License-Identifier: Apache-2.0
"""Agents that congest a port: some hosts send gradients to one, all at once, each at its link's rate."""
from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from mininet.log import info, output

from trimwire_net.agents import PORT, address, agent, listens
from trimwire_net.bring_up import Fabric
from trimwire_net.fabric_file import bits_per_second, ports
from trimwire_net.problem import Problem
from trimwire_net.waiting import poll


@dataclass
class Outcome:
    """The agents' reports."""

    receiver: str
    # By rank, from 1.
    senders: list[str]
    received: dict[str, Any]
    sent: list[dict[str, Any]]

    def total(self, what: str) -> int:
        """Of the receiver."""
        return int(self.received["totals"][what])

    def sent_total(self, what: str) -> int:
        """Of all senders."""
        return sum(int(report["totals"][what]) for report in self.sent)

    def packets(self, what: str) -> int:
        """Over the received gradients."""
        return sum(int(message[what]) for message in self.received["messages"])

    def table(self) -> str:
        """A line a gradient."""
        lines = [f"{'from':>6} {'packets':>8} {'full':>6} {'trimmed':>8} {'missing':>8} {'repaired':>8} {'NMSE':>10} "
                 f"{'predicted':>10} {'seconds':>8}"]
        for message in sorted(self.received["messages"], key=lambda message: message["from"]):
            sent = self.sent[message["from"] - 1]["messages"][0]
            lines.append(f"{self.senders[message['from'] - 1]:>6} {message['packets']:>8} {message['full']:>6} "
                         f"{message['trimmed']:>8} {message['missing']:>8} {sent['repaired']:>8} {message['nmse']:>10.3e} "
                         f"{message['nmse_expected']:>10.3e} {sent['seconds']:>8.2f}")
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
    fabric: Fabric, receiver: str, senders: list[str], words: str = "-n 4M", ipv6: bool = False, timeout: float = 40
) -> Outcome:
    """The senders each send one gradient to the receiver, which decodes and compares."""
    to = fabric.host(receiver)
    own = address(to, ipv6)
    if receiver in senders or len(set(senders)) < len(senders) or not senders:
        raise Problem(f"incast to {receiver} from {' '.join(senders) or 'nobody'}: each sender once, and not the receiver")
    info(f"*** Incast: {' '.join(senders)} -> {receiver}\n")
    agents = [agent(to, "server", f"perf transfer --server --bind {own} --senders {len(senders)} --timeout 20s")]
    try:
        poll(f"{receiver}: trimwire-agent on TCP port {PORT}", 10, lambda: agents[0].process.poll() or listens(to))
        for name in senders:
            host = fabric.host(name)
            rate = bits_per_second(host.defaultIntf())
            # 256 source ports: sprayed over the equal paths.
            agents.append(agent(host, "client", f"perf transfer --client {own} --bind {address(host, ipv6)} {words} "
                                                 f"--bitrate {rate} --source-ports 256 --timeout 20s"))
        end = time.monotonic() + timeout
        sent = [each.report(end) for each in agents[1:]]
        # Ranks are given in the order in which the senders come.
        ranks = sorted(zip(senders, sent), key=lambda pair: int(pair[1]["rank"]))
        return Outcome(receiver, [name for name, _ in ranks], agents[0].report(end), [report for _, report in ranks])
    finally:
        for each in agents:
            each.end()


def test(net: Any, receiver: str = "", *senders: str) -> None:
    """`mn --test incast[,RECEIVER,SENDER…]`"""
    fabric: Fabric = net.switches[0].fabric
    to, usual_senders = usual(fabric)
    output(incast(fabric, receiver or to, list(senders) or usual_senders).table())
