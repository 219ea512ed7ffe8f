# SPDX-License-Identifier: Apache-2.0
"""Ranks around one trimwire-switch, each in a namespace: links with a rate, neighbours who burst, a link that loses.

Everything lives in namespaces of the calling process (`alone`): when it ends, however it ends, nothing is left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OFFLOADS = ROOT / "mininet/trimwire_net/offloads.py"
GRPC = "127.0.0.1:9559"
QUEUES = "queues: { control: { mark_at: 20KB, drop_at: 20KB } }"
"""The default of 1 ms is less than a packet at tens of Mbit/s."""
SHALLOW_AT = 25_000
"""B, from which on the policies trim or mark."""
POLICIES = {
    "trim": f"{{ mark_at: 25KB, shallow_at: 25KB, deep_at: 75KB, drop_at: 150KB, trim_limit: 125KB, shallow_size: 3 planes, deep_size: 1 plane, {QUEUES} }}",
    "selective": f"{{ trim: off, selective_drop: on, mark_at: 25KB, shallow_at: 75KB, drop_at: 150KB, {QUEUES} }}",
    "marking": f"{{ trim: off, mark_at: 25KB, drop_at: 150KB, {QUEUES} }}",
    "drop-tail": f"{{ trim: off, mark_at: 150KB, drop_at: 150KB, {QUEUES} }}",
}
"""What a port does: bytes are the demo's at 10 Gbit/s (20, 60 and 120 µs)."""

NEIGHBOURS = """
import random, signal, socket, sys, time
rate, load, tos, seed = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
burst, gap, victims = float(sys.argv[5]), float(sys.argv[6]), sys.argv[7:]
draw = random.Random(seed)
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
payload = bytes(1472)
interval = 1514 * 8 / (rate * (load - 1))
sent = left_out = 0
def stop(*_):
    print(sent, left_out, flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, stop)
at = time.monotonic()
while True:
    at += draw.expovariate(1 / gap)
    end = at + draw.expovariate(1 / burst)
    to = (draw.choice(victims), 9)
    while at < end:
        now = time.monotonic()
        if now < at:
            time.sleep(min(at - now, 0.0005) if at - now < 0.001 else at - now - 0.0005)
            continue
        # What was left out while off the processor for long is not made good: that would be another load than the one asked for.
        if at < now - 0.002:
            left_out += int((min(now - 0.002, end) - at) / interval)
            at = now - 0.002
        out.sendto(payload, to)
        sent += 1
        at += interval
    at = end
"""
"""All neighbours of a group: load - 1 times the line's rate at one rank of the group at a time."""


def alone() -> None:
    """Goes on in namespaces of its own: for networks, their names, and processes."""
    inside = "TRIMWIRE_LAB_INSIDE"
    if inside in os.environ:
        Path("/run/netns").mkdir(exist_ok=True)
        sh("mount -t tmpfs tmpfs /run/netns")
        return
    # Whoever is killed takes all below with it.
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--", sys.executable, *sys.argv]
    sys.exit(subprocess.run(words, env={**os.environ, inside: "1"}, check=False).returncode)


def sh(words: str) -> str:
    done = subprocess.run(words.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{words}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def address(rank: int) -> str:
    return f"10.233.0.{rank + 1}"


class Lab:
    """`world` ranks r0, r1, … and the neighbours, on ports 1, 2, … of a switch whose ports to ranks run at `rate`, bit/s. A rank's own link does, too."""

    def __init__(self, programs: Path, world: int, rate: int, lossy: bool = False) -> None:
        self.programs, self.world, self.rate, self.lossy = programs, world, rate, lossy
        self.children: list[subprocess.Popen[str]] = []
        self.folder = tempfile.TemporaryDirectory()
        self.policy = ""
        self.errors = open(Path(self.folder.name, "errors"), "w+")  # noqa: SIM115
        self.missed = 0

    def __enter__(self) -> Lab:
        sh("ip netns add switch")
        sh("ip -n switch link set lo up")
        names = [f"r{rank}" for rank in range(self.world)] + ["neighbours"]
        for port, name in enumerate(names, 1):
            self.host(name, port)
        self.start_switch()
        return self

    def __exit__(self, *_: object) -> None:
        self.switch.terminate()
        self.end(self.switch, 5)
        counted = Path(self.folder.name, "switch.json")
        if counted.exists():
            self.missed = sum(port["lost"] + port["missed"] for port in json.loads(counted.read_text())["ports"])
        for child in self.children:
            child.kill()
            child.wait()
        spaces = ["switch", "neighbours", *(f"r{rank}" for rank in range(self.world)), *(["wire"] if self.lossy else [])]
        for name in spaces:
            sh(f"ip netns del {name}")
        self.errors.close()
        self.folder.cleanup()

    @staticmethod
    def mac(number: int) -> str:
        return f"02:00:00:00:02:{number + 1:02x}"

    def host(self, name: str, port: int) -> None:
        """A namespace whose eth0 is linked to a port, rank 0's through `wire` where the link loses."""
        sh(f"ip netns add {name}")
        sh(f"ip -n {name} link set lo up")
        ends = [(name, "eth0", "switch", f"p{port}")]
        if self.lossy and port == 1:
            sh("ip netns add wire")
            sh("ip -n wire link add br0 type bridge")
            sh("ip -n wire link set br0 up")
            ends = [(name, "eth0", "wire", "w0"), ("wire", "w1", "switch", "p1")]
        for near, interface, far, other in ends:
            sh(f"ip link add name {interface} netns {near} type veth peer name {other} netns {far}")
            for space, end in ((near, interface), (far, other)):
                sh(f"ip netns exec {space} sysctl -qw net.ipv6.conf.{end}.disable_ipv6=1")
                sh(f"ip netns exec {space} {sys.executable} {OFFLOADS} {end}")
                sh(f"ip -n {space} link set {end} up txqueuelen 10000")
                if space == "wire":
                    # It has two ends, and what came in at one goes out at the other, whatever the switch has made of the addresses.
                    sh(f"ip -n wire link set {end} master br0")
                    sh(f"ip -n wire link set {end} type bridge_slave learning off flood on")
        sh(f"ip -n {name} link set eth0 address {self.mac(port - 1)}")
        sh(f"ip -n {name} addr add {address(port - 1)}/24 dev eth0")
        if name != "neighbours":
            # Longer than what sockets may have waiting: senders block, nothing is lost here.
            sh(f"ip netns exec {name} tc qdisc add dev eth0 root tbf rate {self.rate}bit burst 6000 limit 20000000")

    def start_switch(self) -> None:
        """An empty one."""
        words = ["--no-p4", "--device-id", "1", "-L", "warn", "--stats-json", f"{self.folder.name}/switch.json"]
        for port in range(1, self.world + 2):
            words += ["-i", f"{port}@p{port}"]
        for port in range(1, self.world + 1):
            words += ["--rate", f"{port}={self.rate}bps"]
        self.switch = self.start("switch", [str(self.programs / "trimwire-switch"), *words, "--", "--grpc-server-addr", GRPC])

    def start(self, space: str, words: list[str], environment: dict[str, str] | None = None, talk: bool = False) -> subprocess.Popen[str]:
        """A program in a namespace; `talk` to keep its input open."""
        child = subprocess.Popen(
            ["ip", "netns", "exec", space, *words],
            stdin=subprocess.PIPE if talk else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.children.append(child)
        return child

    def complaints(self) -> str:
        """The end of what all programs said on stderr."""
        self.errors.seek(0)
        return self.errors.read()[-2_000:]

    def end(self, child: subprocess.Popen[str], seconds: float) -> str | None:
        """What a program printed, or None where it did not end in time and was killed."""
        try:
            return child.communicate(timeout=max(0.1, seconds))[0]
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return None
        finally:
            self.children.remove(child)

    def fabric(self, policy: str) -> Path:
        """The fabric file, with a policy of POLICIES."""
        hosts, links = ["hosts:"], ["links:"]
        for number in range(self.world + 1):
            hosts.append(f'  h{number}: {{ ip: {address(number)}, mac: "{self.mac(number)}" }}')
            links.append(f'  - {{ a: h{number}, b: "s1:{number + 1}", speed: {self.rate}bps }}')
        head = ["version: 1", "switches:", f'  s1: {{ address: "{GRPC}", device_id: 1, target: trimwire }}']
        file = Path(self.folder.name, "fabric.yaml")
        file.write_text("\n".join([*head, *hosts, *links, f"policy: {POLICIES[policy]}"]) + "\n")
        return file

    def apply(self, policy: str) -> None:
        """Brings the switch to a policy of POLICIES."""
        if policy == self.policy:
            return
        file = self.fabric(policy)
        words = ["ip", "netns", "exec", "switch", str(self.programs / "trimwire-controller"), "apply", str(file)]
        for _ in range(20):
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
            if done.returncode == 0:
                self.policy = policy
                return
            time.sleep(0.25)
        sys.exit(f"the controller cannot apply {file.read_text()}\n{done.stderr[-2_000:]}")

    def lose(self, share: float) -> None:
        """Rank 0's link loses so many of the frames, each way, from here on (classic BPF: a random number below the share)."""
        for end in ("w0", "w1"):
            subprocess.run(["ip", "netns", "exec", "wire", "tc", "qdisc", "del", "dev", end, "clsact"], capture_output=True, check=False)
            sh(f"ip netns exec wire tc qdisc add dev {end} clsact")
            limit = round(share * 2**32)
            program = f"4,32 0 0 4294963256,53 1 0 {limit},6 0 0 2,6 0 0 0"
            words = ["ip", "netns", "exec", "wire", "tc", "filter", "add", "dev", end, "ingress", "bpf", "da", "bytecode", program]
            subprocess.run(words, check=True, capture_output=True)

    def neighbours(self, load: int, tos: int, seed: str, burst: float, gap: float) -> list[subprocess.Popen[str]]:
        """Neighbours of up to four ranks a group, until they are killed. None where the load is 0."""
        if load == 0:
            return []
        children = []
        for first in range(0, self.world, 4):
            victims = [address(rank) for rank in range(first, min(first + 4, self.world))]
            words = [self.rate, load, tos, f"{seed}/{first}", burst, gap, *victims]
            children.append(self.start("neighbours", [sys.executable, "-c", NEIGHBOURS, *map(str, words)]))
        return children

    def stop(self, children: list[subprocess.Popen[str]]) -> float | None:
        """Ends neighbours; the share of what they were to send that they did send."""
        for child in children:
            child.terminate()
        counts = [[int(word) for word in (self.end(child, 5) or "").split()] for child in children]
        sent, left_out = (sum(count[at] for count in counts if len(count) == 2) for at in (0, 1))
        return sent / (sent + left_out) if sent else None
