# SPDX-License-Identifier: Apache-2.0
"""Makes hosts ready, writes the fabric file and has the controller bring the switches to it."""
from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mininet.link import TCIntf
from mininet.log import info

from trimwire_net import offloads, programs
from trimwire_net.fabric_file import POLICY, bits_per_second, fabric_yaml, ports
from trimwire_net.run_folder import Problem, keep, run_folder

# More than the send buffers of an agent's sockets together.
HOST_TBF_LIMIT = 64 << 20


class Fabric:
    """A fabric that is up: its nodes, its file, and the controller's commands on it."""

    def __init__(self, switches: list[Any], hosts: list[Any]) -> None:
        self.switches = switches
        self.hosts = hosts
        self.file = run_folder() / "fabric.yaml"

    def host(self, name: str) -> Any:
        """A host by name."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise Problem(f"there is no host {name}; valid are {', '.join(host.name for host in self.hosts)}")

    def controller(self, *words: str, quiet: bool = True) -> str:
        """`trimwire-controller WORDS… fabric.yaml`; what it printed, or what went wrong."""
        command = [programs.ours("trimwire-controller"), *words, str(self.file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired as late:
            raise Problem(f"{' '.join(command)}: still runs after {late.timeout:g} s") from late
        if done.returncode != 0:
            raise Problem(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        if not quiet:
            info(done.stdout)
        return done.stdout

    def show(self, what: str) -> Any:
        """`trimwire-controller show WHAT --json`: its rows."""
        return json.loads(self.controller("show", what, "--json"))[what]

    def apply(self, policy: str | None = None) -> None:
        """Writes the file, with a policy as YAML in braces, and brings every switch to it."""
        policy = policy or os.environ.get("TRIMWIRE_POLICY") or POLICY
        before = self.file.read_text() if self.file.exists() else None
        self.file.write_text(fabric_yaml(self.switches, self.hosts, policy))
        try:
            self.controller("check")
        except Problem:
            if before is not None:
                # The file goes on saying what the switches do.
                self.file.write_text(before)
            raise
        self.controller("apply", quiet=False)


def reachable(switches: list[Any]) -> tuple[list[Any], list[Any]]:
    """All (switches, hosts) of a network of which some switches are given, in order of names as they were made."""
    found, hosts, left = list(switches), [], list(switches)
    while left:
        for _, _, other in ports(left.pop(0)):
            node = other.node
            if hasattr(node, "grpc_port"):
                if node not in found:
                    found.append(node)
                    left.append(node)
            elif node not in hosts:
                hosts.append(node)
    return found, hosts


def make_ready(host: Any, hosts: list[Any]) -> None:
    """Addresses without detection of duplicates, permanent neighbours, no offloads, the link's rate."""
    interface = host.defaultIntf()
    if isinstance(interface, TCIntf):
        raise Problem("--link tc: the switches keep the rates; leave it out and give the topology bw=MBIT instead")
    name, rate = interface.name, bits_per_second(interface)
    ipv6 = f"/proc/sys/net/ipv6/conf/{name}"
    commands = [
        f"ip link set dev {name} mtu 1500 gso_max_segs 1 txqueuelen 10000",
        # Turned off and on: link-local addresses, their duplicate detection and solicitations would
        # be in every count, as ARP would.
        f"[ ! -d {ipv6} ] || {{ echo 1 > {ipv6}/disable_ipv6; echo 0 > {ipv6}/accept_dad; echo 0 > {ipv6}/router_solicitations; "
        f"echo 1 > {ipv6}/addr_gen_mode; echo 0 > {ipv6}/disable_ipv6; ip addr replace {host.ip6}/64 dev {name} nodad; }}",
        f"tc qdisc replace dev {name} root tbf rate {rate}bit burst {max(3000, rate // 8000)} limit {HOST_TBF_LIMIT}",
        f"{sys.executable} {offloads.__file__} {name}",
    ]
    for other in hosts:
        if other is not host:
            mac = other.defaultIntf().MAC()
            commands.append(f"ip neigh replace {other.defaultIntf().IP()} lladdr {mac} dev {name} nud permanent")
            commands.append(f"[ ! -d {ipv6} ] || ip neigh replace {other.ip6} lladdr {mac} dev {name} nud permanent")
    shell = host.popen(["sh", "-e", "-c", "\n".join(commands)], stderr=subprocess.PIPE)
    _, errors = shell.communicate(timeout=30)
    if shell.returncode != 0:
        raise Problem(f"{host.name}: {errors.decode(errors='replace').strip()}")


def bring_up(started: list[Any]) -> None:
    """From started switches to a fabric that forwards."""
    switches, hosts = reachable(started)
    if any(switch.fabric is not None for switch in switches):
        return
    if len({switch.device_id for switch in switches}) < len(switches):
        raise Problem("two switches have the same dpid, which is their P4Runtime device id; give them dpid= in the topology")
    for number, host in enumerate(hosts, 1):
        host.ip6 = ipaddress.ip_address((0xFD << 120) + number).compressed
    for host in hosts:
        make_ready(host, hosts)
    for switch in switches:
        switch.wait_until_ready()
    fabric = Fabric(switches, hosts)
    info(f"\n*** Bringing up the fabric: {fabric.file}\n")
    try:
        fabric.apply()
    except Problem:
        keep()
        raise
    for switch in switches:
        switch.fabric = fabric
    # `h1 trimwire-agent …` at Mininet's prompt.
    folder = str(Path(programs.ours("trimwire-agent")).parent)
    for host in hosts:
        host.cmd(f"export PATH={folder}:$PATH")
