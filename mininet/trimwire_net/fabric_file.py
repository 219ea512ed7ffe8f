# SPDX-License-Identifier: Apache-2.0
"""The fabric file (docs/reference/fabric-file.md) of a running Mininet."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimwire_net.topologies import DEFAULT_BW

# In bytes, because at tens of Mbit/s the microseconds of the defaults hold no packet, and the
# control queue's 1 ms two or three. `drop_at` is below BMv2's 64 packets of 1,404 bytes.
CONTROL = "queues: { control: { mark_at: 20KB, drop_at: 20KB } }"
POLICY = ("{ shallow_size: 3 planes, deep_size: 1 plane, mark_at: 10KB, shallow_at: 15KB, deep_at: 40KB, drop_at: 70KB, "
          f"trim_limit: 400KB, {CONTROL} }}")


def bits_per_second(interface: Any) -> int:
    """The rate of an interface's link."""
    bw = interface.params.get("bw")
    return round(float(DEFAULT_BW if bw is None else bw) * 1e6)


def ports(switch: Any) -> Iterator[tuple[int, Any, Any]]:
    """(port number, interface, the interface at the other end) of a switch, in order of ports."""
    for number, interface in sorted(switch.intfs.items()):
        link = interface.link
        if link is not None:
            yield number, interface, (link.intf2 if link.intf1 is interface else link.intf1)


def end(interface: Any, switches: list[Any]) -> str:
    """An end of a link as the fabric file writes it."""
    node = interface.node
    return f"{node.name}:{node.ports[interface]}" if node in switches else node.name


def fabric_yaml(switches: list[Any], hosts: list[Any], policy: str) -> str:
    """The file's text."""
    lines = ["version: 1", "mtu: 1500", "switches:"]
    for switch in switches:
        lines.append(f'  {switch.name}: {{ address: "127.0.0.1:{switch.grpc_port}", device_id: {switch.device_id}, '
                     f"target: {switch.target} }}")
    lines.append("hosts:")
    for host in hosts:
        interface = host.defaultIntf()
        lines.append(f'  {host.name}: {{ ip: {interface.IP()}, ip6: "{host.ip6}", mac: "{interface.MAC()}" }}')
    lines.append("links:")
    seen = set()
    for switch in switches:
        for _, interface, other in ports(switch):
            if interface.link not in seen:
                seen.add(interface.link)
                lines.append(f'  - {{ a: "{end(interface, switches)}", b: "{end(other, switches)}", '
                             f"speed: {bits_per_second(interface)}bps }}")
    lines.append(f"policy: {policy}")
    return "\n".join(lines) + "\n"
