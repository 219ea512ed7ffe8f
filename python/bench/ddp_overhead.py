#!/usr/bin/env python3
"""Time of a DistributedDataParallel iteration by how gradients are averaged, all in one run and in turns.

Ranks are processes of this machine, over its loopback interface, or over another one (--interface, as TRIMWIRE_SOCKET_IFNAME's and GLOO_SOCKET_IFNAME's names). Prints medians over the iterations of all rounds, and
ratios to plain DDP over Gloo.

    python3 ddp_overhead.py --ranks 2 --width 2048 --layers 4
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

WAYS = ("ddp", "fp16", "powersgd", "hook", "backend")


def rank(arguments: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    way = arguments.way
    if way in ("hook", "backend"):
        import trimwire.torch

        trimwire.torch.options(gradients="lossy")
    dist.init_process_group("trimwire" if way == "backend" else "gloo")
    torch.manual_seed(1)
    layers = [layer for _ in range(arguments.layers) for layer in (nn.Linear(arguments.width, arguments.width), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers))
    hook = None
    if way == "hook":
        hook = trimwire.torch.register(model)
    elif way == "fp16":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        model.register_comm_hook(None, fp16_compress_hook)
    elif way == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=3)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    x = torch.randn(arguments.batch, arguments.width)
    times = []
    for iteration in range(arguments.iterations + 4):
        dist.barrier()
        start = time.perf_counter()
        model.zero_grad()
        model(x).square().mean().backward()
        if iteration >= 4:
            times.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        print(json.dumps(times))
    dist.barrier()
    if hook is not None:
        hook.close()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=1_536, help="of each layer")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--interface", default="lo")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        return rank(arguments)
    cores = sorted(os.sched_getaffinity(0))
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for round_ in range(arguments.rounds):
        for nth, way in enumerate(WAYS):
            environment = {
                **os.environ,
                "WORLD_SIZE": str(arguments.ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(29_600 + round_ * len(WAYS) + nth),
                "TRIMWIRE_SOCKET_IFNAME": arguments.interface,
                "GLOO_SOCKET_IFNAME": arguments.interface,
            }
            children = [
                subprocess.Popen(
                    ["taskset", "-c", str(cores[number % len(cores)]), sys.executable, *sys.argv, "--way", way],
                    env={**environment, "RANK": str(number)},
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for number in range(arguments.ranks)
            ]
            said = [child.communicate(timeout=600)[0] for child in children]
            if any(child.returncode for child in children):
                sys.exit(f"{way}: a rank failed")
            times[way] += json.loads(said[0])
    plain = statistics.median(times["ddp"])
    coordinates = arguments.layers * arguments.width * (arguments.width + 1)
    print(f"{arguments.ranks} ranks on {arguments.interface}, {coordinates * 4 / 2**20:.0f} MiB of gradients")
    for way in WAYS:
        median = statistics.median(times[way])
        print(f"{way:10} {median * 1e3:8.1f} ms  {median / plain:5.2f} x plain DDP")


if __name__ == "__main__":
    main()
