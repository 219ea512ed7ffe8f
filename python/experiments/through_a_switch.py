#!/usr/bin/env python3
"""DistributedDataParallel in Mininet, through trimming software switches, beside Gloo on the same fabric. Needs root, Debian's mininet and
`cargo build --release`; --python names an interpreter with PyTorch and this package.

    sudo /usr/bin/python3 python/experiments/through_a_switch.py --python venv/bin/python --bw 20 --steps 60

Four ranks, two on each side of a dumbbell, train a small network on the digits of cli/data. Every all-reduce is an incast at every port.
Prints a line per backend: seconds until the given accuracy on held-out images, the last accuracy, seconds a step, and what the switches did.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RANKS = 4


def rank(options: argparse.Namespace) -> None:
    """One rank, on its host."""
    import gzip

    import numpy as np
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    if options.way == "trimwire":
        import trimwire.torch

        trimwire.torch.options(threads=0, rate_bps=int(options.bw * 1e6))
    dist.init_process_group(options.way)
    number = dist.get_rank()
    with gzip.open(ROOT / "cli/data/digits.csv.gz", "rt") as text:
        table = np.loadtxt(text, delimiter=",", comments="#", dtype=np.float32)
    pixels, labels = torch.from_numpy(table[:, :64] / 16.0), torch.from_numpy(table[:, 64]).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(options.seed))
    pixels, labels = pixels[order], labels[order]
    held_out = len(labels) // 5
    torch.manual_seed(options.seed)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    model = DistributedDataParallel(net)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    curve, steps = [], []
    dist.barrier()
    start = time.perf_counter()
    for step in range(options.steps):
        generator = torch.Generator().manual_seed(options.seed * 100_003 + step * RANKS + number)
        batch = torch.randint(held_out, len(labels), (64,), generator=generator)
        before = time.perf_counter()
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(pixels[batch]), labels[batch]).backward()
        optimiser.step()
        steps.append(time.perf_counter() - before)
        with torch.no_grad():
            right = (net(pixels[:held_out]).argmax(1) == labels[:held_out]).float().mean().item()
        curve.append((time.perf_counter() - start, right))
    stats = dist.group.WORLD.stats() if options.way == "trimwire" else {}
    dist.barrier()
    if number == 0:
        print(json.dumps({"curve": curve, "steps": sorted(steps), "stats": stats}), flush=True)
    dist.destroy_process_group()


def train(fabric: object, options: argparse.Namespace, way: str, port: int) -> dict[str, object]:
    """All ranks of a run; what rank 0 says."""
    hosts = fabric.hosts  # type: ignore[attr-defined]
    children = []
    for number, host in enumerate(hosts):
        interface = str(host.defaultIntf())
        environment = {
            "RANK": number,
            "WORLD_SIZE": RANKS,
            "MASTER_ADDR": hosts[0].IP(),
            "MASTER_PORT": port,
            "GLOO_SOCKET_IFNAME": interface,
            "TRIMWIRE_SOCKET_IFNAME": interface,
        }
        words = [f"{name}={value}" for name, value in environment.items()]
        words = ["env", *words, options.python, str(Path(__file__).resolve()), "--way", way, *sys.argv[1:]]
        errors = tempfile.TemporaryFile()  # noqa: SIM115
        children.append((host.popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors), errors))
    said = b""
    for number, (child, errors) in enumerate(children):
        out = child.communicate(timeout=options.timeout)[0]
        said = said or out
        if child.returncode:
            errors.seek(0)
            sys.exit(f"{way}, rank {number} failed:\n{errors.read().decode()[-2_000:]}")
    return json.loads(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--bw", type=float, default=20.0, help="rate of every link, Mbit/s")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--accuracy", type=float, default=0.9, help="the time until this is told")
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--json", type=Path, help="everything, into this file")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        return rank(options)
    inside = "TRIMWIRE_EXPERIMENT_INSIDE"
    if inside not in os.environ:
        words = ["unshare", "--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--", sys.executable, *sys.argv]
        sys.exit(subprocess.run(words, env={**os.environ, inside: "1"}, check=False).returncode)
    sys.path.insert(0, str(ROOT / "mininet"))
    from trimwire_net.accounts import DROPPED, Accounts
    from trimwire_net.scenarios import network
    from trimwire_net.switches import SWITCHES

    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    results = {}
    print(f"{'backend':10} {'s to ' + format(options.accuracy, '.0%'):>12} {'accuracy':>9} {'s/step p50':>11} {'p99':>7} {'cut':>8} {'dropped':>8}")
    for nth, way in enumerate(("gloo", "trimwire")):
        with network("dumbbell", SWITCHES["trimwire"], options.bw) as fabric:
            before = Accounts(fabric)
            result = results[way] = train(fabric, options, way, 29_500 + nth)
            time.sleep(1.0)
            counted = Accounts(fabric).since(before)
        curve, steps = result["curve"], result["steps"]
        soon = next((at for at, right in curve if right >= options.accuracy), None)
        result["cut"], result["dropped"] = counted.sum(["trimmed"]), counted.sum(DROPPED)
        reached = f"{soon:.2f}" if soon is not None else "-"
        print(
            f"{way:10} {reached:>12} {curve[-1][1]:>9.2%} {steps[len(steps) // 2]:>11.3f} {steps[int(len(steps) * 0.99)]:>7.3f} "
            f"{result['cut']:>8} {result['dropped']:>8}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
