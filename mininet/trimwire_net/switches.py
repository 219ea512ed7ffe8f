# SPDX-License-Identifier: Apache-2.0
"""Mininet's switch nodes: trimwire-switch and BMv2's simple_switch_grpc.

They run in the root namespace, as Mininet's switches do, on one gRPC port each. What is the same for both is in `FabricSwitch`:
interfaces made ready, a process that ends with Mininet, an answer on its gRPC port before the fabric is brought up.
"""
from __future__ import annotations

import atexit
import os
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mininet.log import debug
from mininet.node import Switch

from trimwire_net import bring_up, programs
from trimwire_net.fabric_file import bits_per_second, ports
from trimwire_net.offloads import turn_off
from trimwire_net.processes import own_session, poll
from trimwire_net.run_folder import Problem, keep, run_folder
from trimwire_net.thrift import set_all_egress_queue_depths

FIRST_GRPC_PORT = 9559
FIRST_THRIFT_PORT = 9090
CPU_PORT = 510


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable, str(default))
    if not text.isdigit() or not 1024 <= int(text) <= 65000:
        raise Problem(f"{variable}={text}; valid are ports from 1024 to 65000")
    return int(text)


def tbf(interface: str, rate_bps: int, limit: int) -> list[str]:
    """`tc` with the words that give an interface a rate.

    The limit has to exceed the senders' socket buffers: then they block, and the queue stays where thresholds see it, instead
    of being dropped here.
    """
    # Two frames, or what the line sends between two ticks of a slow kernel timer, whichever is
    # more.
    burst = max(3000, rate_bps // 8 // 1000)
    return ["tc", "qdisc", "replace", "dev", interface, "root", "tbf", "rate", f"{rate_bps}bit", "burst", str(burst),
            "limit", str(limit)]


class FabricSwitch(Switch):
    """What both switches share."""

    program = ""
    target = ""
    instances: list[FabricSwitch] = []

    def __init__(self, name: str, **params: Any) -> None:
        if params.get("inNamespace"):
            raise Problem("the switches run in the root namespace, beside the controller: leave out --innamespace")
        left_over = sorted(interface for _, interface in socket.if_nameindex() if interface.startswith(f"{name}-eth"))
        if left_over:
            raise Problem(f"{name}: interface {left_over[0]} exists: another Mininet runs, or one was killed. "
                          f"`ip link del {left_over[0]}` removes it, `sudo mn -c` everything of Mininet's")
        super().__init__(name, **params)
        self.device_id = int(self.dpid, 16)
        self.grpc_port = _number("TRIMWIRE_GRPC_PORT", FIRST_GRPC_PORT) + len(self.instances)
        self.thrift_port = _number("TRIMWIRE_THRIFT_PORT", FIRST_THRIFT_PORT) + len(self.instances)
        self.process: subprocess.Popen[bytes] | None = None
        self.fabric: bring_up.Fabric | None = None
        self.instances.append(self)

    def command(self, interfaces: list[tuple[int, str, int]]) -> list[str]:
        """The program and its words for (port, interface, bit/s)."""
        raise NotImplementedError

    def shape(self, interface: str, rate_bps: int) -> None:
        """Gives an interface its rate, where the program does not."""

    def needs_ports(self) -> list[int]:
        """TCP ports that the program will listen on."""
        return [self.grpc_port]

    def is_set_up(self) -> None:
        """Called when the program answers."""

    def start(self, controllers: Iterable[Any]) -> None:
        """Called by Mininet. OpenFlow controllers mean nothing here."""
        interfaces = [(port, intf.name, bits_per_second(intf)) for port, intf, _ in ports(self)]
        if not interfaces:
            raise Problem(f"{self.name} has no links")
        for _, interface, rate_bps in interfaces:
            conf = Path("/proc/sys/net/ipv6/conf", interface, "disable_ipv6")
            if conf.exists():
                conf.write_text("1")
            turn_off(interface)
            self.shape(interface, rate_bps)
        for port in self.needs_ports():
            self.refuse_used(port)
        command = self.command(interfaces)
        debug(" ".join(command) + "\n")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                            cwd=run_folder(), start_new_session=True, preexec_fn=own_session)
        (run_folder() / f"{self.name}.pid").write_text(f"{self.process.pid}\n")

    @property
    def log(self) -> Path:
        """Where the program writes to."""
        return run_folder() / f"{self.name}.log"

    def refuse_used(self, port: int) -> None:
        """Says so when somebody listens there: the fabric would be brought up on the wrong switch."""
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError as error:
                raise Problem(f"{self.name}: TCP port {port}: {error.strerror}. `ss -ltnp` tells who has it; "
                              "TRIMWIRE_GRPC_PORT and TRIMWIRE_THRIFT_PORT (BMv2) name other first ports") from error

    def wait_until_ready(self) -> None:
        """Until its gRPC port answers."""
        process = self.process

        def answers() -> bool | None:
            if process is None or process.poll() is not None:
                return False
            with socket.socket() as trial:
                return True if trial.connect_ex(("127.0.0.1", self.grpc_port)) == 0 else None

        if not poll(f"{self.name}: an answer on port {self.grpc_port}", 20, answers):
            keep()
            lines = self.log.read_text(errors="replace").splitlines()[-10:]
            raise Problem("\n  ".join([f"{self.name}: {self.program} ended; the end of {self.log}:", *lines]))
        self.is_set_up()

    def is_running(self) -> bool:
        """Whether the program has not ended."""
        return self.process is not None and self.process.poll() is None

    def stop(self, deleteIntfs: bool = True) -> None:
        """Called by Mininet."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        super().stop(deleteIntfs)

    @classmethod
    def batchStartup(cls, switches: Iterable[FabricSwitch]) -> list[FabricSwitch]:
        """Called by Mininet when all switches have been started."""
        started = list(switches)
        bring_up.bring_up(started)
        return started


class TrimwireSwitch(FabricSwitch):
    """trimwire-switch. It keeps line rates itself: its queues are in its traffic manager, where a `tbf` would empty them."""

    program = "trimwire-switch"
    target = "trimwire"

    def command(self, interfaces: list[tuple[int, str, int]]) -> list[str]:
        """See above."""
        words = [programs.ours(self.program), "--no-p4", "--device-id", str(self.device_id)]
        for port, interface, rate_bps in interfaces:
            words += ["-i", f"{port}@{interface}", "--rate", f"{port}={rate_bps}bps"]
        return [*words, "--", "--grpc-server-addr", f"127.0.0.1:{self.grpc_port}", "--cpu-port", str(CPU_PORT)]


class Bmv2Switch(FabricSwitch):
    """simple_switch_grpc. It has no line rate: a token bucket makes its sender block, and its queues build up."""

    program = "simple_switch_grpc"
    target = "bmv2"
    # Packets a queue. The default of 64 would drop heads without a word; thresholds are to decide.
    queue_depth = 4096

    def command(self, interfaces: list[tuple[int, str, int]]) -> list[str]:
        """See above."""
        words = [programs.bmv2(), "--no-p4", "--device-id", str(self.device_id), "-L", "off"]
        for port, interface, _ in interfaces:
            words += ["-i", f"{port}@{interface}"]
        words += ["--thrift-port", str(self.thrift_port), "--notifications-addr", f"ipc://{run_folder()}/{self.name}.ipc"]
        return [*words, "--", "--grpc-server-addr", f"127.0.0.1:{self.grpc_port}", "--cpu-port", str(CPU_PORT),
                "--priority-queues", "8"]

    def needs_ports(self) -> list[int]:
        """See above."""
        return [self.grpc_port, self.thrift_port]

    def shape(self, interface: str, rate_bps: int) -> None:
        """See above."""
        buffer = int(Path("/proc/sys/net/core/wmem_default").read_text())
        done = subprocess.run(tbf(interface, rate_bps, max(2_000_000, 4 * buffer)), capture_output=True, text=True)
        if done.returncode != 0:
            raise Problem(f"{interface}: no rate: {' '.join(done.args)}: {done.stderr.strip()} (kernel module sch_tbf)")

    def is_set_up(self) -> None:
        """See above."""
        try:
            set_all_egress_queue_depths(self.thrift_port, self.queue_depth)
        except (OSError, ValueError) as error:
            raise Problem(f"{self.name}: BMv2's queues stay at 64 packets: Thrift on port {self.thrift_port}: {error}. "
                          "A simple_switch_grpc built without Thrift cannot be told") from error


SWITCHES: dict[str, type[FabricSwitch]] = {"trimwire": TrimwireSwitch, "bmv2": Bmv2Switch}


def chosen() -> type[FabricSwitch]:
    """The one that the environment's SWITCH names."""
    name = os.environ.get("SWITCH", "trimwire")
    if name not in SWITCHES:
        raise Problem(f"SWITCH={name}; valid are {' and '.join(SWITCHES)}")
    return SWITCHES[name]


def clean_up(*_ignored: Any) -> None:
    """Ends what is left of this run's switches, and their interfaces. Touches nothing else."""
    for switch in FabricSwitch.instances:
        if switch.process is not None:
            switch.process.kill()
            switch.process.wait()
            switch.process = None
        for _, interface, _ in ports(switch):
            subprocess.run(["ip", "link", "del", interface.name], capture_output=True)


atexit.register(clean_up)
