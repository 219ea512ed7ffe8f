# SPDX-License-Identifier: Apache-2.0
"""Ready topologies. Rates are Mininet's `bw`, Mbit/s, and hold for both directions of a link."""
from __future__ import annotations

from mininet.topo import Topo

from trimwire_net.run_folder import Problem

DEFAULT_BW = 20.0


def _check(topology: str, bw: float, **counts: tuple[int, int]) -> None:
    for name, (count, most) in counts.items():
        if not isinstance(count, int) or not 1 <= count <= most:
            raise Problem(f"--topo {topology}: {name}={count}; valid are 1 to {most}")
    if not isinstance(bw, (int, float)) or not 1 <= bw <= 1000:
        raise Problem(f"--topo {topology}: bw={bw}; valid are 1 to 1000 (Mbit/s). Software switches keep up with "
                      "some tens of Mbit/s")


class _Routed(Topo):
    """Hosts 10.0.0.N, all in one subnet: the switches route by /32, and neighbours are static."""

    def host_on(self, switch: str, number: int, bw: float) -> None:
        """Adds hN."""
        host = self.addHost(f"h{number}", ip=f"10.0.0.{number}/24", mac=f"02:00:00:00:00:{number:02x}")
        self.addLink(host, switch, bw=bw)


class Dumbbell(_Routed):
    """`hosts` hosts a side, two switches, one link between them: h1, h2, … ─ s1 ─ s2 ─ …"""

    def build(self, hosts: int = 2, bw: float = DEFAULT_BW) -> None:
        """Called by Mininet."""
        _check("dumbbell", bw, hosts=(hosts, 100))
        for side, switch in enumerate((self.addSwitch("s1"), self.addSwitch("s2"))):
            for number in range(1, hosts + 1):
                self.host_on(switch, side * hosts + number, bw)
        self.addLink("s1", "s2", bw=bw)


class LeafSpine(_Routed):
    """`hosts` hosts a leaf, each leaf linked to every spine, all links of one rate."""

    def build(self, leaves: int = 2, spines: int = 2, hosts: int = 2, bw: float = DEFAULT_BW) -> None:
        """Called by Mininet."""
        _check("leafspine", bw, leaves=(leaves, 16), spines=(spines, 16), hosts=(hosts, 12))
        for leaf in range(1, leaves + 1):
            # Data-path ids are P4Runtime device ids here, each switch its own.
            self.addSwitch(f"leaf{leaf}", dpid=f"{leaf:x}")
            for number in range(1, hosts + 1):
                self.host_on(f"leaf{leaf}", (leaf - 1) * hosts + number, bw)
        for spine in range(1, spines + 1):
            self.addSwitch(f"spine{spine}", dpid=f"{100 + spine:x}")
            for leaf in range(1, leaves + 1):
                self.addLink(f"leaf{leaf}", f"spine{spine}", bw=bw)


TOPOLOGIES = {"dumbbell": Dumbbell, "leafspine": LeafSpine}
