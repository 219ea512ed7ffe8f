# SPDX-License-Identifier: Apache-2.0
"""Where faults happen: ranks joined by a bridge, or by a trimwire-switch that `trimwire-controller run` keeps in place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from congestion_lab import ROOT, Lab, address, sh

VERSION = int(re.search(r"VERSION: u8 = (\d+)", (ROOT / "host-encoder/src/wire/sizes.rs").read_text())[1])
"""Of the wire format."""

STRANGER = """
import json, os, random, socket, struct, sys, time
version, seconds, port, ranks, ports = json.loads(sys.argv[1])

def check(data):
    # CRC-16/M17 (docs/reference/wire-format.md, 1)
    crc = 0xffff
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ (0x5935 if crc & 0x8000 else 0)) & 0xffff
    return struct.pack(">H", crc)

def prefix(kind, rank, message):
    return struct.pack(">BBHI", version << 4 | kind, 0x10, rank, message)

def number():
    # Of operations that are to come, either phase, any shard.
    return random.randrange(1, 300) << 11 | random.randrange(2) << 10 | random.randrange(len(ranks))

def data(rank):
    head = prefix(1, rank, number()) + struct.pack(">I", random.randrange(150) << 8 | 14) + struct.pack(">f", 100.0) + bytes([203, 70])
    return head + check(head) + os.urandom(14 * 4 * 8 + 448)

def control(rank):
    kind = random.choice([2, 3, 4, 5, 7, 8])
    incarnations = struct.pack(">II", random.randrange(1, 1 << 32), random.choice([0, random.randrange(1, 1 << 32)]))
    bodies = {
        2: bytes(28) + struct.pack(">I", 0) + bytes([1, 255, 255, 255]), 3: struct.pack(">IIBBHII", 1, 150, 9, 0, 0, 0, 0),
        5: bytes(32), 7: struct.pack(">BBH", 1, 0, random.randrange(len(ranks))), 8: struct.pack(">BBHH", 1, 0, 1, 40000),
    }
    return prefix(kind, rank, 0 if kind == 8 else number()) + incarnations + bodies.get(kind, bodies[2])

def packet(source, source_port, to, payload):
    udp = struct.pack(">HHHH", source_port, port, 8 + len(payload), 0) + payload
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(to))
    return head + udp

raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
sent = {"DATA": 0, "control": 0, "noise": 0}
end = time.monotonic() + seconds
while time.monotonic() < end:
    rank, to = random.sample(range(len(ranks)), 2)
    what = random.choice(["DATA", "DATA", "control", "noise"])
    payload = {"DATA": data, "control": control, "noise": lambda _: os.urandom(random.randrange(1, 1400))}[what](rank)
    source_port = random.choice(ports[rank]) if what == "DATA" else port
    try:
        raw.sendto(packet(ranks[rank], source_port, ranks[to], payload), (ranks[to], 0))
    except OSError:
        continue
    sent[what] += 1
print(json.dumps(sent))
"""
"""Packets in the name of ranks: from their addresses and ports, of the job, with right headers and checks, for operations that are to come. It has read the documentation and all addresses
and ports; what it has not seen is a packet between ranks, and so it does not know their incarnations."""


class Bridge:
    """Ranks r0, r1, … and a stranger around a bridge in one more namespace; links as fast as the machine."""

    bitrate = "1G"

    def __init__(self, _programs: Path, world: int) -> None:
        self.names = [*(f"r{rank}" for rank in range(world)), "stranger"]

    def __enter__(self) -> Bridge:
        sh("ip netns add hub")
        sh("ip -n hub link add br0 type bridge")
        sh("ip -n hub link set br0 up")
        for number, name in enumerate(self.names):
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
            sh(f"ip link add eth0 netns {name} type veth peer name p{number} netns hub")
            sh(f"ip -n hub link set p{number} master br0 up")
            sh(f"ip -n {name} addr add {address(number)}/24 dev eth0")
            sh(f"ip -n {name} link set eth0 up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in [*self.names, "hub"]:
            sh(f"ip netns del {name}")

    def link(self, rank: int, state: str) -> None:
        sh(f"ip -n hub link set p{rank} {state}")

    def stranger(self, seconds: float, port: int) -> dict[str, int]:
        """Packets in the ranks' names, from somewhere else on the bridge; how many of which."""
        world = len(self.names) - 1
        ranks, ports = [address(rank) for rank in range(world)], []
        for rank in range(world):
            table = sh(f"ip netns exec r{rank} cat /proc/net/udp").splitlines()[1:]
            local = [int(line.split()[1].split(":")[1], 16) for line in table]
            ports.append([one for one in local if one != port] or [port])
        told = json.dumps([VERSION, seconds, port, ranks, ports])
        words = ["ip", "netns", "exec", "stranger", sys.executable, "-c", STRANGER, told]
        return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)


class Switched(Lab):
    """Ranks on the ports of a trimwire-switch that trims, at 50 Mbit/s each; `trimwire-controller run` programs it, and does so again."""

    bitrate = "50M"

    def __init__(self, programs: Path, world: int) -> None:
        super().__init__(programs, world, 50_000_000)
        self.said: list[tuple[float, str]] = []

    def __enter__(self) -> Switched:
        super().__enter__()
        words = [str(self.programs / "trimwire-controller"), "run", "--metrics", "off", str(self.fabric("trim"))]
        self.controller = subprocess.Popen(["ip", "netns", "exec", "switch", *words], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.children.append(self.controller)
        threading.Thread(target=self._listen, daemon=True).start()
        self.wait_until_in_place(0)
        return self

    def _listen(self) -> None:
        for line in self.controller.stderr:
            self.said.append((time.monotonic(), line))

    def wait_until_in_place(self, since: float) -> float:
        """When the controller found the switch to be what the file says, at some time after `since`."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            for at, line in self.said:
                if at > since and " in place" in line and "not in place" not in line:
                    return at
            time.sleep(0.01)
        sys.exit(f"the switch is not in place: {''.join(line for _, line in self.said)[-2_000:]}")

    def kill_switch(self) -> None:
        """SIGKILL: what stood in its queues is gone, and all that it was told."""
        self.switch.kill()
        self.end(self.switch, 5)
