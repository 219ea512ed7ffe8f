# SPDX-License-Identifier: Apache-2.0
"""What mininet/test.py --matrix runs: n hosts into one link, 2:1 to 8:1, beside TCP, in a dumbbell and in a leaf-spine."""
from __future__ import annotations

import math
import subprocess

from mininet.log import lg

from trimwire_net.accounts import DROPPED
from trimwire_net.all_reduce import Sums, all_reduce
from trimwire_net.bring_up import Fabric
from trimwire_net.cross_traffic import BEST_EFFORT, GRADIENTS_QUEUE, Flow, Tcp
from trimwire_net.fabric_file import POLICY, bits_per_second
from trimwire_net.incast import Outcome, incast
from trimwire_net.scenarios import Book, Promises, conserved, decodes, network, spread, watched
from trimwire_net.switches import SWITCHES

LOADS = (2, 3, 8)
# Mbit/s by n of n:1. BMv2 passes about 9,000 packets a second of processor time, each of which crosses two or three switches.
RATES = {"trimwire": {2: 20.0, 3: 20.0, 8: 10.0}, "bmv2": {2: 8.0, 3: 6.0, 8: 2.0}}
# Who sends at line rate, whatever comes of it, fills a port with cut packets of 8 planes at 2.8:1, of one plane at 12:1, and half of a
# port, which is what `trim_cap` leaves them otherwise, at half as much (docs/reference/fabric-file.md).
HEADS = POLICY.replace("8 planes", "1 plane").replace("{ ", "{ trim_cap: never, ", 1)
TCP_BYTES = 1 << 20
# A cut packet keeps its signs at least: the most that is lost of its energy (docs/reference/wire-format.md, section 9).
ONE_PLANE = math.pi / 2 - 1


def run(switch: str, topologies: tuple[str, ...], loads: tuple[int, ...]) -> Promises:
    """All of them."""
    lg.setLogLevel("error")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    promises: Promises = []
    for topology in topologies:
        for load in loads:
            rate = RATES[switch][load]
            # One host more on each side is TCP's.
            with network(topology, SWITCHES[switch], rate, hosts=load + 1) as fabric:
                name = f"{topology}, {rate:g} Mbit/s, {load}:1"
                fabric.apply(POLICY if load == 2 else HEADS)
                promises += gradients_beside_tcp(fabric, f"{name}, gradients", load, several_paths=topology == "leafspine")
                fabric.apply(POLICY)
                promises += sums_beside_tcp(fabric, f"{name}, all-reduce", load)
                dead = [node.name for node in fabric.switches if not node.is_running()]
                promises.append((f"{name}: all switches still run: {', '.join(dead) or 'yes'}", not dead))
    return promises


def names(fabric: Fabric, load: int) -> tuple[list[str], str, tuple[str, str]]:
    """(n hosts on the left, one on the right, TCP's two)."""
    left, right = fabric.hosts[: load + 1], fabric.hosts[load + 1 :]
    return [host.name for host in left[:load]], right[0].name, (left[load].name, right[load].name)


def beside(fabric: Fabric, tcp: Tcp, book: Book, flow: Flow) -> None:
    """TCP's promises."""
    rate = bits_per_second(tcp.sender.defaultIntf())
    book.check("TCP gets through, to the end", flow.is_through(), f"{flow.text()}, of {rate / 1e6:g}")


def gradients_beside_tcp(fabric: Fabric, scenario: str, load: int, several_paths: bool) -> Promises:
    """n hosts at line rate into one link, TCP in the best-effort queue of the same links."""
    senders, receiver, ends = names(fabric, load)
    print(f"{scenario}: {' '.join(senders)} -> {receiver} beside TCP {' -> '.join(ends)}", flush=True)
    book = Book(scenario)

    def traffic() -> tuple[Outcome, Flow, Tcp]:
        with Tcp(fabric, *ends, TCP_BYTES, BEST_EFFORT) as tcp:
            outcome = incast(fabric, receiver, senders, "-b 1M -e 1M --seed 7", timeout=90)
            return outcome, tcp.finish(), tcp

    (outcome, flow, tcp), counted, wrong = watched(fabric, traffic)
    conserved(book, fabric, outcome, counted, wrong)
    cut, dropped = counted.sum(["trimmed"], kernels=False), counted.sum(DROPPED, kernels=False)
    # At n:1 more than half of 1 - 1/n of the bytes has to give way; the first few are in the queue by then.
    book.check("the congested port trims", cut * 4 > outcome.packets("packets"), f"{cut} of {outcome.packets('packets')} trimmed")
    book.check("nothing of the gradients is dropped", dropped == 0, f"{dropped} dropped")
    decodes(book, outcome)
    repairs, missing = outcome.total("repairs_sent"), outcome.packets("missing")
    book.check("nothing is sent twice without a loss, and hardly anything is missing",
               repairs <= dropped and missing * 100 <= outcome.packets("packets"), f"{repairs} repairs, {missing} missing")
    if several_paths:
        spread(book, fabric, outcome, counted)
    beside(fabric, tcp, book, flow)
    print(counted.table() + outcome.table(), flush=True)
    return book.promises


def sums_beside_tcp(fabric: Fabric, scenario: str, load: int) -> Promises:
    """All-reduces of n ranks on the left and one on the right, TCP in the gradients' own queue."""
    senders, receiver, ends = names(fabric, load)
    print(f"{scenario}: {' '.join(senders)} + {receiver} beside TCP {' -> '.join(ends)}", flush=True)
    book = Book(scenario)

    def traffic() -> tuple[Sums, Flow, Tcp]:
        with Tcp(fabric, *ends, TCP_BYTES, GRADIENTS_QUEUE) as tcp:
            sums = all_reduce(fabric, [*senders, receiver], "-b 512K -e 512K -n 3 --algorithm direct --seed 7", timeout=90)
            return sums, tcp.finish(), tcp

    (sums, flow, tcp), counted, wrong = watched(fabric, traffic)
    book.check("every packet that came into a switch is in one counter, every one that was taken left", not wrong, "; ".join(wrong) or "yes")
    cut, missing, error = sums.worst("trimmed_share"), sums.worst("missing_share"), sums.worst("nmse")
    # Parts go one way to the rank that adds them up, sums the other: each may lose what is missing, and what cut packets lack.
    most = 1e-9 + 2 * (missing + ONE_PLANE * cut)
    book.check("the sums are right within what the trims allow", error <= most and missing <= 0.01,
               f"NMSE {error:.2e} at worst, at most {most:.2e}; {cut:.2%} trimmed, {missing:.2%} missing")
    book.check("the congested port trims", counted.sum(["trimmed"]) > 0, f"{counted.sum(['trimmed'])} trimmed")
    book.check("what arrived trimmed had been trimmed by a switch", sums.total("trimmed_received") <= counted.sum(["trim_transmitted"]),
               f"{counted.sum(['trim_transmitted'])} left trimmed, {sums.total('trimmed_received')} arrived")
    beside(fabric, tcp, book, flow)
    print(counted.table() + sums.table(), flush=True)
    return book.promises
