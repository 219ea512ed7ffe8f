#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What failures cost: two leaves, two spines and four ranks of an all-reduce, in namespaces, while cables, switches and programs change.

Needs root, iproute2 and release builds (`cargo build --release`; --programs names another folder). Every switch is a `trimwire-switch`
of its own, and `trimwire-controller run` keeps the fabric. Each case has a fresh fabric: 8 flows of probes each way between the leaves,
100 probes a second each, in the control queue, and the all-reduce. A failure happens once both have run for a while. A line for each
case: probes lost, the longest time in which a flow delivered nothing, the all-reduce's times from the failure on, and its packets that
went missing, were trimmed, were sent again. `one-spine` is a fabric that was built with one spine less: what `spine-killed` compares with.

With --bmv2 every switch is a `simple_switch_grpc`, which forwards some 9,000 packets a second of processor time: at 8 Mbit/s, with fewer
probes and 64 KiB. Its ports have a token bucket each, as it has no line rate.

    sudo lab/bench/failures.py
    sudo lab/bench/failures.py --cases spine-killed one-spine --seconds 30
    sudo lab/bench/failures.py --bmv2 simple_switch_grpc
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "lab/bench"))
from congestion_lab import OFFLOADS, POLICIES, alone, sh  # noqa: E402

SPACE = "switches"
HOSTS = {"h1": ("leaf1", 3), "h2": ("leaf1", 4), "h3": ("leaf2", 3), "h4": ("leaf2", 4)}


@dataclass(frozen=True)
class Load:
    """What a kind of switch can forward, four of them on two cores."""

    rate: int
    """bit/s of every port."""
    size: str
    """Of the gradient."""
    trim_delay: str
    """Of the ranks: what the policy's `shallow_at` takes at this rate."""
    flows: int
    """Of probes, each way."""
    every: float
    """Seconds between two probes of a flow."""


OURS = Load(50_000_000, "256K", "4ms", 8, 0.01)
BMV2 = Load(8_000_000, "64K", "25ms", 4, 0.02)
BMV2_PACKETS = 4_096
"""A queue's room in BMv2: thresholds decide, not its default of 64."""

PROBES = """
import json, selectors, socket, sys, threading, time
own, other, flows, every, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(flows)]
for number, one in enumerate(sockets):
    # CONTROL (docs/reference/fabric-file.md): what is lost is lost to a failure, not to a queue.
    one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 39 << 2)
    one.bind((own, 7000 + number))
arrived = [[] for _ in range(flows)]
sent = [0] * flows
end = time.monotonic() + seconds
def listen():
    ready = selectors.DefaultSelector()
    for number, one in enumerate(sockets):
        ready.register(one, selectors.EVENT_READ, number)
    while time.monotonic() < end + 1.0:
        for key, _ in ready.select(0.1):
            key.fileobj.recv(2048)
            arrived[key.data].append(time.monotonic())
listener = threading.Thread(target=listen)
listener.start()
start = at = time.monotonic()
while at < end:
    for number, one in enumerate(sockets):
        one.sendto(bytes(64), (other, 7000 + number))
        sent[number] += 1
    at += every
    time.sleep(max(0.0, at - time.monotonic()))
listener.join()
gaps = [b - a for times in arrived for a, b in zip([start, *times], [*times, end])]
print(json.dumps({"sent": sum(sent), "arrived": sum(map(len, arrived)), "gap": max(gaps)}))
"""


def address(host: str) -> str:
    leaf, port = HOSTS[host]
    return f"10.0.{leaf[-1]}.{port}"


def mac(host: str) -> str:
    leaf, port = HOSTS[host]
    return f"02:00:00:00:0{leaf[-1]}:0{port}"


class Fabric:
    """Leaves' ports 1 and 2 lead to spines 1 and 2, 3 and 4 to hosts; spines' ports 1 and 2 to leaves."""

    def __init__(self, programs: Path, bmv2: str | None, spines: int) -> None:
        self.programs, self.bmv2 = programs, bmv2
        self.load = BMV2 if bmv2 else OURS
        self.folder = tempfile.TemporaryDirectory()
        self.spines = [f"spine{number}" for number in range(1, spines + 1)]
        self.names = ["leaf1", "leaf2", *self.spines]
        self.errors = open(Path(self.folder.name, "errors"), "w+")  # noqa: SIM115
        self.children: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Fabric:
        sh(f"ip netns add {SPACE}")
        sh(f"ip -n {SPACE} link set lo up")
        for host, (leaf, port) in HOSTS.items():
            sh(f"ip netns add {host}")
            sh(f"ip -n {host} link set lo up")
            self.link((host, "eth0"), (SPACE, f"{leaf}-{port}"))
            sh(f"ip -n {host} link set eth0 address {mac(host)}")
            sh(f"ip -n {host} addr add {address(host)}/16 dev eth0")
            sh(f"ip netns exec {host} tc qdisc add dev eth0 root tbf rate {self.load.rate}bit burst 6000 limit 20000000")
        for leaf in ("leaf1", "leaf2"):
            for spine in self.spines:
                self.link((SPACE, f"{leaf}-{spine[-1]}"), (SPACE, f"{spine}-{leaf[-1]}"))
        for name in self.names:
            self.start_switch(name)
        self.file = Path(self.folder.name, "fabric.yaml")
        self.file.write_text(self.text())
        self.start_controller()
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.children.values():
            child.kill()
            child.wait()
        for name in [SPACE, *HOSTS]:
            sh(f"ip netns del {name}")
        self.errors.close()
        self.folder.cleanup()

    @staticmethod
    def link(one: tuple[str, str], other: tuple[str, str]) -> None:
        sh(f"ip link add name {one[1]} netns {one[0]} type veth peer name {other[1]} netns {other[0]}")
        for space, end in (one, other):
            sh(f"ip netns exec {space} sysctl -qw net.ipv6.conf.{end}.disable_ipv6=1")
            sh(f"ip netns exec {space} {sys.executable} {OFFLOADS} {end}")
            sh(f"ip -n {space} link set {end} up txqueuelen 10000")

    def ports(self, switch: str) -> list[int]:
        return [*range(1, len(self.spines) + 1), 3, 4] if switch.startswith("leaf") else [1, 2]

    def grpc(self, switch: str) -> str:
        return f"127.0.0.1:{9560 + self.names.index(switch)}"

    def text(self) -> str:
        lines = ["version: 1", "controller: { interval: 1s, hold_down: 2s }", "switches:"]
        lines += [f'  {name}: {{ address: "{self.grpc(name)}", device_id: {nth}, target: {"bmv2" if self.bmv2 else "trimwire"} }}' for nth, name in enumerate(self.names, 1)]
        lines += ["hosts:", *(f'  {host}: {{ ip: {address(host)}, mac: "{mac(host)}" }}' for host in HOSTS), "links:"]
        lines += [f'  - {{ a: {host}, b: "{leaf}:{port}", speed: {self.load.rate}bps }}' for host, (leaf, port) in HOSTS.items()]
        lines += [f'  - {{ a: "{leaf}:{spine[-1]}", b: "{spine}:{leaf[-1]}", speed: {self.load.rate}bps }}' for leaf in ("leaf1", "leaf2") for spine in self.spines]
        return "\n".join([*lines, f"policy: {POLICIES['trim']}"]) + "\n"

    def start(self, key: str, space: str, words: list[str], environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            ["ip", "netns", "exec", space, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors, text=True, env={**os.environ, **(environment or {})}
        )
        self.children[key] = child
        return child

    def start_switch(self, name: str) -> None:
        interfaces = [word for port in self.ports(name) for word in ("-i", f"{port}@{name}-{port}")]
        nth = self.names.index(name)
        words = ["--no-p4", "--device-id", str(nth + 1), *interfaces]
        if not self.bmv2:
            words += ["--rate", f"{self.load.rate}bps", "-L", "warn", "--", "--grpc-server-addr", self.grpc(name)]
            self.start(name, SPACE, [str(self.programs / "trimwire-switch"), *words])
            return
        for port in self.ports(name):
            sh(f"ip netns exec {SPACE} tc qdisc replace dev {name}-{port} root tbf rate {self.load.rate}bit burst 3000 limit 2000000")
        words += ["-L", "off", "--thrift-port", str(9_190 + nth), "--notifications-addr", f"ipc://{self.folder.name}/{name}.ipc"]
        self.start(name, SPACE, [self.bmv2, *words, "--", "--grpc-server-addr", self.grpc(name), "--cpu-port", "510", "--priority-queues", "8"])
        told = f"from trimwire_net.thrift import set_all_egress_queue_depths as tell; tell({9_190 + nth}, {BMV2_PACKETS})"
        command = ["ip", "netns", "exec", SPACE, sys.executable, "-c", told]
        path = {**os.environ, "PYTHONPATH": str(ROOT / "mininet")}
        for _ in range(50):
            if subprocess.run(command, env=path, capture_output=True, check=False).returncode == 0:
                return
            time.sleep(0.2)
        sys.exit(f"{name}: {self.bmv2} does not take calls of Thrift")

    def controller(self, command: str, *words: str) -> list[str]:
        return [str(self.programs / "trimwire-controller"), command, str(self.file), "--state", f"{self.folder.name}/state", *words]

    def start_controller(self) -> None:
        """`run`, once every switch is in place."""
        self.run_controller("apply", "--settle", "0")
        self.start("run", SPACE, self.controller("run", "--metrics", "127.0.0.1:9590"))
        time.sleep(2.0)

    def run_controller(self, command: str, *words: str) -> None:
        done = None
        for _ in range(20):
            done = subprocess.run(["ip", "netns", "exec", SPACE, *self.controller(command, *words)], capture_output=True, text=True, check=False, timeout=120)
            if done.returncode == 0:
                return
            time.sleep(0.25)
        assert done is not None
        sys.exit(f"{command}: {done.stdout[-1_000:]}{done.stderr[-1_000:]}")

    def stop(self, key: str) -> None:
        child = self.children.pop(key)
        child.kill()
        child.wait()


def nothing(_: Fabric) -> None:
    """Happens."""


def pull_cable(fabric: Fabric) -> None:
    sh(f"ip -n {SPACE} link set leaf1-1 down")


def kill_spine(fabric: Fabric) -> None:
    fabric.stop("spine1")


def replace_programs(fabric: Fabric) -> None:
    """All four, by another build of the same program, one after the other."""
    program = json.loads((ROOT / "p4/build/bmv2/trimwire.json").read_text())
    program["program"] = "another build"
    other = Path(fabric.folder.name, "other.json")
    other.write_text(json.dumps(program))
    # Two controllers would each have their own program.
    fabric.stop("run")
    info = ROOT / "p4/build/bmv2/trimwire.p4info.txtpb"
    pipeline = f"pipeline: {{ p4info: {info}, json: {other} }}"
    fabric.file.write_text(re.sub(r"(device_id: \d+)", rf"\1, {pipeline}", fabric.text()))
    fabric.run_controller("apply", "--yes")


CASES: dict[str, tuple[int, Callable[[Fabric], None]]] = {
    "no-failure": (2, nothing),
    "one-spine": (1, nothing),
    "cable-pulled": (2, pull_cable),
    "spine-killed": (2, kill_spine),
    "programs-replaced": (2, replace_programs),
}
"""Spines, and what happens."""


def case(programs: Path, bmv2: str | None, name: str, seconds: float) -> dict[str, float]:
    spines, happens = CASES[name]
    with Fabric(programs, bmv2, spines) as fabric:
        load = fabric.load
        before = seconds / 3
        world = {"WORLD_SIZE": "4", "MASTER_ADDR": address("h1"), "MASTER_PORT": "29500"}
        words = ["perf", "all-reduce", "-b", load.size, "-e", load.size, "--set", f"trim-delay={load.trim_delay}", "--json"]
        # As many operations as take about that long.
        first = json.loads(all_reduce(fabric, world, [*words, "-n", "20"])[1])
        count = max(20, round(seconds / first["rows"][0]["seconds"]))
        ends = {"h1": "h3", "h3": "h1"}
        probes = [
            fabric.start(f"probes {own}", own, [sys.executable, "-c", PROBES, address(own), address(other), str(load.flows), str(load.every), str(seconds)])
            for own, other in ends.items()
        ]
        when: list[float] = []

        def during() -> None:
            time.sleep(before)
            when.append(time.monotonic())
            happens(fabric)

        ended, text = all_reduce(fabric, world, [*words, "-n", str(count)], during)
        row = json.loads(text)["rows"][0]
        found = [json.loads(probe.communicate(timeout=60)[0]) for probe in probes]
        # Backwards from the end: which operations ended after the failure began.
        after: list[float] = []
        for took in reversed(row["seconds_each"]):
            if ended < when[0]:
                break
            after.append(took)
            ended -= took
        return {
            "lost": sum(one["sent"] - one["arrived"] for one in found),
            "sent": sum(one["sent"] for one in found),
            "gap": max(one["gap"] for one in found),
            "p50": statistics.median(after),
            "p99": statistics.quantiles(after, n=100, method="inclusive")[-1],
            "worst": max(after),
            "operations": len(after),
            "missing": row["missing_share"],
            "repaired": row["repaired"],
            "trimmed": row["trimmed_share"],
        }


class Failed(Exception):
    """A rank failed; with what was said last."""


def all_reduce(fabric: Fabric, world: dict[str, str], words: list[str], during: Callable[[], None] = lambda: None) -> tuple[float, str]:
    """When rank 0 ended, and what it printed."""
    ranks = [fabric.start(f"rank of {host}", host, [str(fabric.programs / "trimwire-agent"), *words], {**world, "RANK": str(rank)}) for rank, host in enumerate(HOSTS)]
    during()
    said = [rank.communicate(timeout=300)[0] for rank in ranks[:1]]
    ended = time.monotonic()
    said += [rank.communicate(timeout=60)[0] for rank in ranks[1:]]
    if any(rank.returncode for rank in ranks):
        fabric.errors.seek(0)
        raise Failed(fabric.errors.read()[-2_000:])
    return ended, said[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="folder of trimwire-agent, -controller and -switch")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seconds", type=float, default=24.0, help="of each case; the failure comes after a third")
    parser.add_argument("--bmv2", metavar="PROGRAM", help="simple_switch_grpc, instead of trimwire-switch")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    alone()
    print(f"{'case':18} {'probes lost':>14} {'longest gap':>12} {'p50':>9} {'p99':>9} {'worst':>9} {'missing':>8} {'trimmed':>8} {'repaired':>9}")
    for _ in range(arguments.rounds):
        for name in arguments.cases:
            try:
                got = case(arguments.programs, arguments.bmv2, name, arguments.seconds)
            except Failed as failed:
                print(f"{name:18} a rank failed", flush=True)
                print(failed, file=sys.stderr)
                continue
            lost = f"{got['lost']:.0f} of {got['sent']:.0f}"
            times = "".join(f"{got[key] * 1e3:6.0f} ms " for key in ("p50", "p99", "worst"))
            print(f"{name:18} {lost:>14} {got['gap'] * 1e3:9.0f} ms {times} {got['missing']:8.2%} {got['trimmed']:8.2%} {got['repaired']:9.0f}", flush=True)


if __name__ == "__main__":
    main()
