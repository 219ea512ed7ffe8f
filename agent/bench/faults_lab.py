"""Where faults happen: ranks joined by a bridge, or by a trimwire-switch that `trimwire-controller run` keeps in place."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from congestion_lab import Lab, address, sh

STRANGER = """
import os, random, socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for rank, host in enumerate(sys.argv[3:]):
        kind = random.randrange(8)
        head = struct.pack(">HBBHI", 0x5457, 3 << 4 | kind, random.randrange(256), rank, random.randrange(1 << 32))
        s.sendto(random.choice([head, b""]) + os.urandom(random.randrange(1400)), (host, int(sys.argv[2])))
"""


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

    def stranger(self, seconds: float, port: int) -> None:
        """Packets from an address that is no rank's: noise, and headers that look right, to the port where ranks listen."""
        ranks = [address(rank) for rank in range(len(self.names) - 1)]
        words = ["ip", "netns", "exec", "stranger", sys.executable, "-c", STRANGER, str(seconds), str(port), *ranks]
        subprocess.run(words, check=True)


class Switched(Lab):
    """Ranks on the ports of a trimwire-switch that cuts, at 50 Mbit/s each; `trimwire-controller run` programs it, and does so again."""

    bitrate = "50M"

    def __init__(self, programs: Path, world: int) -> None:
        super().__init__(programs, world, 50_000_000)
        self.said: list[tuple[float, str]] = []

    def __enter__(self) -> Switched:
        super().__enter__()
        words = [str(self.programs / "trimwire-controller"), "run", "--metrics", "off", str(self.fabric("cut"))]
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
