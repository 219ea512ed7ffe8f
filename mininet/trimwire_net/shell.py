# SPDX-License-Identifier: Apache-2.0
"""Mininet's prompt, with a word for the fabric and two for traffic."""
from __future__ import annotations

from mininet.cli import CLI
from mininet.log import error, output

from trimwire_net.all_reduce import all_reduce
from trimwire_net.bring_up import Fabric
from trimwire_net.incast import incast, usual
from trimwire_net.problem import Problem


class Shell(CLI):
    """Mininet's, and three commands."""

    def _fabric(self) -> Fabric:
        fabric: Fabric = self.mn.switches[0].fabric
        return fabric

    def do_fabric(self, line: str) -> None:
        """trimwire-controller on this fabric's file: fabric WORDS…
           Usage: fabric show counters | fabric policy { trim: off, drop_at: 70KB }"""
        words = line.split()
        if not words:
            output(f"{self._fabric().file}\nfabric check|plan|apply|show routes|show policy|show counters\n"
                   "fabric policy {…}   writes another policy into the file and applies it\n")
            return
        try:
            if words[0] == "policy":
                self._fabric().apply(line.split(None, 1)[1])
            else:
                output(self._fabric().controller(*words))
        except IndexError:
            error("usage: fabric policy { shallow_at: 15KB, … }\n")
        except Problem as problem:
            error(f"{problem}\n")

    def do_incast(self, line: str) -> None:
        """Gradients of some hosts to one, all at once, at their links' rate.
           Usage: incast [RECEIVER SENDER…]"""
        receiver, senders = usual(self._fabric())
        if line.split():
            receiver, *senders = line.split()
        try:
            output(incast(self._fabric(), receiver, senders).table())
        except Problem as problem:
            error(f"{problem}\n")

    def do_allreduce(self, line: str) -> None:
        """Sums a gradient of each host, eight times, all at once.
           Usage: allreduce [HOST HOST…]"""
        fabric = self._fabric()
        try:
            output(all_reduce(fabric, line.split() or [host.name for host in fabric.hosts]).table())
        except Problem as problem:
            error(f"{problem}\n")
