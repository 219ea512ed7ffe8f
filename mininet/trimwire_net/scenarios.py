# SPDX-License-Identifier: Apache-2.0
"""What mininet/test.py runs, and what has to hold."""
from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from mininet.log import lg
from mininet.net import Mininet

from trimwire_net.accounts import DROPPED, OFFERED, Accounts, port_to
from trimwire_net.bring_up import Fabric
from trimwire_net.fabric_file import CONTROL, POLICY, ports
from trimwire_net.incast import Outcome, first_switch, incast
from trimwire_net.problem import Problem
from trimwire_net.run_folder import keep
from trimwire_net.switches import SWITCHES, FabricSwitch
from trimwire_net.topologies import TOPOLOGIES
from trimwire_net.waiting import poll

SENDERS = ["h1", "h2"]
DROP_TAIL = f"{{ trim: off, mark_at: 40KB, drop_at: 40KB, {CONTROL} }}"
# Hosts have IPv6 addresses, so sizes in planes leave room for IPv6's header, which is 20 bytes longer: these cuts of IPv4 packets are at 8 planes
# and 1 exactly, and the formula knows whole planes only.
IPV4_SIZES = POLICY.replace("8 planes", "510B").replace("1 plane", "118B")
# simple_switch_grpc passes about 9,000 packets a second of processor time, and the leaf-spine's cross three of them.
RATES = {("trimwire", "dumbbell"): 20.0, ("trimwire", "leafspine"): 20.0, ("bmv2", "dumbbell"): 12.0, ("bmv2", "leafspine"): 8.0}

Promises = list[tuple[str, bool]]
T = TypeVar("T")


class Book:
    """Promises as they are checked, said aloud."""

    def __init__(self, scenario: str) -> None:
        self.scenario = scenario
        self.promises: Promises = []

    def check(self, promise: str, holds: bool, detail: str) -> None:
        """Notes one."""
        self.promises.append((f"{self.scenario}: {promise}: {detail}", holds))
        print(f"  {'ok' if holds else 'BROKEN':>6}  {promise}: {detail}", flush=True)


@contextlib.contextmanager
def network(topology: str, switch: type[FabricSwitch], bw: float, **sizes: int) -> Iterator[Fabric]:
    """A fabric that is up, and gone afterwards, whatever happens."""
    net = Mininet(topo=TOPOLOGIES[topology](bw=bw, **sizes), switch=switch, controller=None, build=False)
    try:
        net.build()
        net.start()
        yield net.switches[0].fabric
    except BaseException:
        keep()
        raise
    finally:
        net.stop()


def run(switch: str, topology: str, bw: float | None) -> Promises:
    """All scenarios of the topologies asked for."""
    lg.setLogLevel("error")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    promises: Promises = []
    for name in TOPOLOGIES if topology == "both" else (topology,):
        rate = bw or RATES[switch, name]
        with network(name, SWITCHES[switch], rate) as fabric:
            fabric.apply(IPV4_SIZES)
            promises += trimming(fabric, f"{name}, {rate:g} Mbit/s, trimming", several_paths=name == "leafspine")
            if name == "leafspine" and socket.has_ipv6 and Path("/proc/net/if_inet6").exists():
                fabric.apply(POLICY)
                promises += trimming(fabric, f"{name}, {rate:g} Mbit/s, trimming, IPv6", several_paths=True, ipv6=True)
            if name == "dumbbell":
                promises += drop_tail(fabric, f"{name}, {rate:g} Mbit/s, trimming off")
            dead = [node.name for node in fabric.switches if not node.is_running()]
            promises.append((f"{name}: all switches still run: {', '.join(dead) or 'yes'}", not dead))
    return promises


def watched(fabric: Fabric, traffic: Callable[[], T]) -> tuple[T, Accounts, list[str]]:
    """What traffic comes to, what was counted meanwhile, and where counters disagree when all has arrived."""
    before = Accounts(fabric)
    outcome = traffic()
    wrong: list[str] = []

    def settled() -> Accounts | None:
        nonlocal wrong
        counted = Accounts(fabric).since(before)
        wrong = counted.disagreements()
        return None if wrong else counted

    try:
        counted = poll("counters that agree", 3, settled)
    except Problem:
        counted = Accounts(fabric).since(before)
    return outcome, counted, wrong


def observed(fabric: Fabric, words: str, ipv6: bool = False) -> tuple[Outcome, Accounts, list[str]]:
    """An incast to the first host behind another switch than the senders', and what was counted meanwhile."""
    home = first_switch(fabric.host(SENDERS[0]))
    receiver = next(host.name for host in fabric.hosts if first_switch(host) is not home)
    return watched(fabric, lambda: incast(fabric, receiver, SENDERS, words, ipv6))


def conserved(book: Book, fabric: Fabric, outcome: Outcome, counted: Accounts, wrong: list[str]) -> None:
    """Nothing is lost on the way that no counter tells of: from socket to socket, over every switch."""
    home, last = first_switch(fabric.host(outcome.senders[0])), first_switch(fabric.host(outcome.receiver))
    book.check("every packet that came into a switch is in one counter, every one that was taken left", not wrong,
               "; ".join(wrong) or f"{counted.sum(OFFERED)} offered over {len(fabric.switches)} switches")
    offered, full, cut, dropped = (counted.sum(names, home.name, kernels=False) for names in (OFFERED, ["admitted"], ["trimmed"], DROPPED))
    # What the receiver sends goes through it, too.
    book.check("sent by the agents = full + trimmed + dropped at the senders' switch", outcome.total("datagrams_sent") == offered,
               f"{outcome.total('datagrams_sent')} = {full} + {cut} + {dropped}")
    left = counted.sum(["transmitted"], last.name, port_to(last, fabric.host(outcome.receiver)), kernels=False)
    book.check("transmitted to the receiver = received by its agent", left == outcome.received("datagrams_received"),
               f"{left}, {outcome.received('datagrams_received')} received")
    book.check("the agents took every datagram for what it was", outcome.total("malformed") == 0,
               f"{outcome.total('malformed')} malformed")


def trimming(fabric: Fabric, scenario: str, several_paths: bool, ipv6: bool = False) -> Promises:
    """Two hosts at line rate into one port."""
    print(f"{scenario}: {' and '.join(SENDERS)} into one port", flush=True)
    book = Book(scenario)
    outcome, counted, wrong = observed(fabric, "-b 2M -e 2M --seed 7" if ipv6 else "-b 4M -e 4M --seed 7", ipv6)
    conserved(book, fabric, outcome, counted, wrong)
    cut, dropped = counted.sum(["trimmed"]), counted.sum(DROPPED, kernels=False)
    # At 2:1 more than a third of the packets has to give way.
    book.check("the congested port trims", cut * 20 > outcome.packets("packets"), f"{cut} trimmed, {dropped} dropped")
    left = counted.sum(["trim_transmitted"])
    book.check("a packet is trimmed once, and arrives trimmed", outcome.received("trimmed_received") == left if not dropped else
               outcome.received("trimmed_received") <= left, f"{left} left trimmed, {outcome.received('trimmed_received')} arrived")
    decodes(book, outcome)
    repairs, missing = outcome.total("repairs_sent"), outcome.packets("missing")
    # One packet in a hundred may be missing by default.
    book.check("nothing is sent twice without a loss, and hardly anything is missing",
               repairs <= dropped and missing * 100 <= outcome.packets("packets"),
               f"{dropped} dropped, {repairs} repairs, {missing} missing")
    if several_paths:
        spread(book, fabric, outcome, counted)
    print(counted.table() + outcome.table(), flush=True)
    return book.promises


def decodes(book: Book, outcome: Outcome) -> None:
    """The sum's error is the formula's for the packets as they were trimmed."""
    nmse, predicted = outcome.nmse(), outcome.predicted()
    # At eight planes the error sits in a few outer cells: a hundred trimmed packets leave some 10 % to chance. A packet's
    # depth mistaken by one plane would be a factor of 3.
    tolerance = 0.08 + 1.5 / max(1, outcome.packets("trimmed")) ** 0.5
    book.check("what arrived of the gradients decodes as predicted", predicted > 0 and abs(nmse / predicted - 1) < tolerance,
               f"NMSE {nmse:.3e}, formula {predicted:.3e}")


def spread(book: Book, fabric: Fabric, outcome: Outcome, counted: Accounts) -> None:
    """Every spine carries its share."""
    last = first_switch(fabric.host(outcome.receiver))
    shares: dict[str, int] = {}
    for switch in fabric.switches:
        neighbours: list[Any] = [other.node for _, _, other in ports(switch)]
        if last in neighbours and not set(neighbours) & set(fabric.hosts):
            shares[switch.name] = counted.sum(["transmitted"], switch.name, port_to(switch, last), kernels=False)
    enough = min(shares.values()) * 2 * len(shares) > sum(shares.values())
    book.check("every spine carries at least half of its share (ECMP)", len(shares) > 1 and enough,
               ", ".join(f"{name} {count}" for name, count in shares.items()))


def drop_tail(fabric: Fabric, scenario: str) -> Promises:
    """The same without trimming: what does not fit is dropped and sent again, until all is there."""
    print(f"{scenario}: {' and '.join(SENDERS)} into one port", flush=True)
    book = Book(scenario)
    fabric.apply(DROP_TAIL)
    outcome, counted, wrong = observed(fabric, "-b 1M -e 1M --seed 7 --reliable")
    conserved(book, fabric, outcome, counted, wrong)
    cut, dropped = counted.sum(["trimmed", "trim_dropped"]), counted.sum(["selective_dropped", "tail_dropped"], kernels=False)
    book.check("nothing is trimmed, the congested port drops", cut == 0 and dropped > 0, f"{cut} trimmed, {dropped} dropped")
    repairs = outcome.total("repairs_sent")
    book.check("what was dropped is repaired", repairs >= dropped > 0 and outcome.packets("missing") == 0,
               f"{repairs} repairs, {outcome.packets('missing')} missing")
    book.check("everything decodes exactly", outcome.nmse() < 1e-9, f"NMSE {outcome.nmse():.1e}")
    print(counted.table() + outcome.table(), flush=True)
    return book.promises
