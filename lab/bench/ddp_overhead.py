#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a DistributedDataParallel iteration by how gradients are averaged, all in one run and in turns.

Ranks are processes of this machine, over its loopback interface or another one (--interface). With --link each rank lives in a
network namespace of its own, on a veth pair, and sends at no more than that rate (needs root and iproute2). Prints medians and
99th percentiles over the iterations of all rounds, and ratios to plain DDP over Gloo. With --per-host N ranks share a namespace,
as they share a host; a column then says how many bytes the first host sent an iteration.

    python3 ddp_overhead.py --ranks 2 --width 2048 --layers 6
    sudo python3 ddp_overhead.py --ranks 4 --width 1000 --link 1gbit
    sudo python3 ddp_overhead.py --ranks 8 --per-host 4 --width 1000 --link 1gbit --ways ddp hook two-levels
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

WAYS = ("ddp", "fp16", "bf16", "powersgd", "hook", "two-levels", "backend")
WARM_UP = 4
"""Iterations that are not counted."""


def sent_by(interface: str) -> int:
    """Bytes that this host has sent."""
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def rank(arguments: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    way, interface = arguments.way, arguments.interface if arguments.link is None else "eth0"
    if way in ("hook", "two-levels", "backend"):
        import trimwire.torch

        trimwire.torch.options(gradients="lossy")
    dist.init_process_group("trimwire" if way == "backend" else "gloo")
    torch.manual_seed(1)
    layers = [layer for _ in range(arguments.layers) for layer in (nn.Linear(arguments.width, arguments.width), nn.ReLU())]
    # PowerSGD's collectives of several buckets start in whatever order their predecessors end, which Gloo does not sort out.
    buckets = {"bucket_cap_mb": 1 << 20} if way == "powersgd" else {}
    model = DistributedDataParallel(nn.Sequential(*layers), **buckets)
    hook = None
    if way == "hook":
        hook = trimwire.torch.TrimwireState(local_size=1)
        model.register_comm_hook(hook, trimwire.torch.trimwire_hook)
    elif way == "two-levels":
        hook = trimwire.torch.TrimwireState(local_size=arguments.per_host)
        model.register_comm_hook(hook, trimwire.torch.trimwire_hook)
    elif way in ("fp16", "bf16"):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        model.register_comm_hook(None, getattr(default_hooks, f"{way}_compress_hook"))
    elif way == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=3)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    x = torch.randn(arguments.batch, arguments.width)
    times, sent = [], 0
    for iteration in range(arguments.iterations + WARM_UP):
        dist.barrier()
        if iteration == WARM_UP:
            sent = sent_by(interface)
        start = time.perf_counter()
        model.zero_grad()
        model(x).square().mean().backward()
        if iteration >= WARM_UP:
            times.append(time.perf_counter() - start)
    dist.barrier()
    if dist.get_rank() == 0:
        print(json.dumps({"times": times, "bytes": (sent_by(interface) - sent) / len(times)}))
    dist.barrier()
    if hook is not None:
        hook.close()
    dist.destroy_process_group()


@contextlib.contextmanager
def network(arguments: argparse.Namespace) -> Iterator[tuple[str, str, list[list[str]]]]:
    """Rank 0's address, the interface's name, and what to put before each rank's command."""
    if arguments.link is None:
        yield "127.0.0.1", arguments.interface, [[] for _ in range(arguments.ranks)]
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab/bench"))
    from beside_gloo import Ranks

    with Ranks(arguments.ranks // arguments.per_host, None if arguments.link == "veth" else arguments.link, None, 1500) as hosts:
        yield hosts.address(0), "eth0", [["ip", "netns", "exec", hosts.names[number // arguments.per_host]] for number in range(arguments.ranks)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=1_536, help="of each layer")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--interface", default="lo")
    parser.add_argument("--link", help="namespaces, with links of such a rate in tc's words (10gbit), or as fast as veth is (veth)")
    parser.add_argument("--per-host", type=int, default=1, metavar="N", help="N successive ranks share a namespace")
    parser.add_argument("--ways", nargs="+", choices=WAYS, help="instead of all; the first is what others are compared with")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        return rank(arguments)
    if arguments.per_host < 1 or arguments.ranks % arguments.per_host or (arguments.per_host > 1 and arguments.link is None):
        parser.error(f"--per-host {arguments.per_host}: it has to divide --ranks {arguments.ranks}, and needs --link")
    cores = sorted(os.sched_getaffinity(0))
    ways = arguments.ways or [way for way in WAYS if way != "two-levels" or arguments.per_host > 1]
    times: dict[str, list[float]] = {way: [] for way in ways}
    sent: dict[str, float] = {}
    with network(arguments) as (master, interface, before):
        for round_ in range(arguments.rounds):
            for nth, way in enumerate(ways):
                environment = {
                    **os.environ,
                    "WORLD_SIZE": str(arguments.ranks),
                    "MASTER_ADDR": master,
                    "MASTER_PORT": str(29_600 + round_ * len(ways) + nth),
                    "TRIMWIRE_SOCKET_IFNAME": interface,
                    "GLOO_SOCKET_IFNAME": interface,
                }
                children = [
                    subprocess.Popen(
                        [*before[number], "taskset", "-c", str(cores[number % len(cores)]), sys.executable, *sys.argv, "--way", way],
                        env={**environment, "RANK": str(number)},
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                    for number in range(arguments.ranks)
                ]
                said = [child.communicate(timeout=600)[0] for child in children]
                if any(child.returncode for child in children):
                    sys.exit(f"{way}: a rank failed")
                found = json.loads(said[0])
                times[way] += found["times"]
                sent[way] = found["bytes"]
    plain = statistics.median(times[ways[0]])
    coordinates = arguments.layers * arguments.width * (arguments.width + 1)
    place = arguments.interface if arguments.link is None else arguments.link
    print(f"{arguments.ranks} ranks, {arguments.per_host} a host, on {place}, {coordinates * 4 / 2**20:.0f} MiB of gradients")
    for way in ways:
        median = statistics.median(times[way])
        worst = statistics.quantiles(times[way], n=100, method="inclusive")[-1]
        print(f"{way:10} {median * 1e3:8.1f} ms  p99 {worst * 1e3:8.1f} ms  {median / plain:5.2f} x {ways[0]}  {sent[way] / 1e6:8.2f} MB")


if __name__ == "__main__":
    main()
