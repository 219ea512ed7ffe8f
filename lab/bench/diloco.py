#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/training/diloco.py over a slow path between two namespaces: by Trimwire, Gloo, and Gloo with float16, in turns.

Needs root, iproute2, and a Python with PyTorch and the package (--python). Prints for each way the held-out loss, the time that outer steps waited, and bytes that
rank 0 has sent. With --delay or --loss a program passes frames on between the two, as kernels need not have netem: some ten thousand a second of a processor.
"""

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from beside_gloo import Ranks, sh

WAYS = ("gloo", "gloo-fp16", "trimwire")
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/training/diloco.py"
WIRE = """
import collections, random, select, socket, sys, time
delay, loss = float(sys.argv[1]), float(sys.argv[2])
ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in range(2)]
for nth, end in enumerate(ends):
    end.setblocking(False)
    end.setsockopt(socket.SOL_SOCKET, 33, 1 << 25)  # SO_RCVBUFFORCE
    end.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
    end.bind((f"p{nth}", 3))  # ETH_P_ALL
other, waiting, draw = {ends[0]: ends[1], ends[1]: ends[0]}, collections.deque(), random.Random(1)
print("on", flush=True)
while True:
    ready, _, _ = select.select(ends, [], [], max(0.0, waiting[0][0] - time.monotonic()) if waiting else None)
    for end in ready:
        try:
            for _ in range(32):
                frame = end.recv(2048)
                if draw.random() >= loss:
                    waiting.append((time.monotonic() + delay, other[end], frame))
        except BlockingIOError:
            pass
    while waiting and waiting[0][0] <= time.monotonic():
        _, end, frame = waiting.popleft()
        try:
            end.send(frame)
        except OSError:
            pass
"""
"""Passes on what comes at either of the hub's two ports."""


def sent_by(name: str) -> int:
    """Bytes that a namespace has sent."""
    said = subprocess.run(["ip", "netns", "exec", name, "cat", "/sys/class/net/eth0/statistics/tx_bytes"], check=True, capture_output=True, text=True)
    return int(said.stdout)


@contextlib.contextmanager
def wire(ranks: Ranks, delay: float, loss: float) -> Iterator[None]:
    """In place of the hub's bridge."""
    if not (delay or loss):
        yield
        return
    for space, interface in ((ranks.names[0], "eth0"), (ranks.names[1], "eth0"), (ranks.hub, "p0"), (ranks.hub, "p1")):
        # A segment of many frames is no frame.
        sh(f"ip netns exec {space} {sys.executable} {ROOT}/mininet/trimwire_net/offloads.py {interface}")
    for port in ("p0", "p1"):
        sh(f"ip -n {ranks.hub} link set {port} nomaster")
    words = ["ip", "netns", "exec", ranks.hub, sys.executable, "-c", WIRE, str(delay), str(loss)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as passing:
        try:
            passing.stdout.readline()
            yield
        finally:
            passing.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter with PyTorch")
    parser.add_argument("--rate", default="100mbit", help="of each rank's link, in tc's words")
    parser.add_argument("--outer-steps", type=int, default=6)
    parser.add_argument("--width", type=int, default=2048, help="of the model: 4.3 million weights")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds of each way")
    parser.add_argument("--loss", type=float, default=0.0, help="share of the frames, each way")
    parser.add_argument("--tcp", help="congestion control of Gloo's connections, in place of the system's: cubic, bbr")
    arguments = parser.parse_args()
    found = {way: [] for way in WAYS}
    with Ranks(2, arguments.rate, 1, 1500) as ranks, wire(ranks, arguments.delay, arguments.loss):
        for name in ranks.names if arguments.tcp else ():
            sh(f"ip netns exec {name} sysctl -qw net.ipv4.tcp_congestion_control={arguments.tcp}")
        common = {"WORLD_SIZE": "2", "MASTER_ADDR": ranks.address(0), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "TRIMWIRE_SOCKET_IFNAME": "eth0"}
        for nth in range(arguments.rounds * len(WAYS)):
            way = WAYS[nth % len(WAYS)]
            environment = {**os.environ, **common, "MASTER_PORT": str(29_700 + nth), "BACKEND": way}
            before = sent_by(ranks.names[0])
            program = [arguments.python, str(EXAMPLE), str(arguments.outer_steps), str(arguments.width)]
            said = ranks.run(lambda rank, program=program: ["env", f"RANK={rank}", *program], environment)
            loss, waited = re.search(r"loss ([\d.]+), .* waited ([\d.]+) s", said).groups()
            found[way].append((float(loss), float(waited), sent_by(ranks.names[0]) - before))
    for way, runs in found.items():
        loss, waited, sent = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{way:10} loss {loss:.8f}  waited {waited:7.2f} s  {sent / 1e6:7.1f} MB")


if __name__ == "__main__":
    main()
