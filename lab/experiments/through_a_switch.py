#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time to accuracy through a trimming switch, beside Gloo on the same fabric: DistributedDataParallel in network namespaces.

Needs root, iproute2, `cargo build --release` and a Python with PyTorch and this package (--python):

    sudo python3 lab/experiments/through_a_switch.py --python venv/bin/python

Ranks train a small network on the digits of cli/data through one `trimwire-switch`, whose ports run at --rate. n:1: during bursts n - 1 neighbours send UDP at line rate to one
rank, in the queue of the gradients. Ways take turns, each seed beside the same bursts: this package through a switch that trims, with the default's planes and with as many as an algorithm says (--algorithm); Gloo, and Gloo with PyTorch's fp16 hook, through one that drops
what does not fit.

Into OUT: through-a-switch.csv, a line a run; through-a-switch.svg, accuracy against time. With --draw only table and plot, of the lines that are there; the plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAYS = {
    "Trimwire": ("trimwire", "trim"),
    "Trimwire, adaptive": ("trimwire-adaptive", "trim"),
    "Gloo": ("gloo", "drop-tail"),
    "Gloo, fp16 hook": ("gloo-fp16", "drop-tail"),
}
"""What ranks are told, and what the port does."""
FIELDS = ["load", "way", "seed", "seconds", "accuracy", "p50", "p99", "trimmed", "curve"]


def rank(options: argparse.Namespace) -> None:
    """One rank, in its namespace."""
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    if options.way.startswith("trimwire"):
        import trimwire.torch

        algorithm = options.algorithm if options.way.endswith("-adaptive") else None
        network = {"channels": 1, "rate_bps": round(options.rate * 1e6), "trim_delay": options.trim_delay}
        trimwire.torch.options(gradients="lossy", adaptive=algorithm, network=network)
    dist.init_process_group(options.way.split("-")[0])
    number, world = dist.get_rank(), dist.get_world_size()
    with gzip.open(ROOT / "cli/data/digits.csv.gz", "rt") as text:
        table = np.loadtxt(text, delimiter=",", comments="#", dtype=np.float32)
    pixels, labels = torch.from_numpy(table[:, :64] / 16.0), torch.from_numpy(table[:, 64]).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(options.seed))
    pixels, labels = pixels[order], labels[order]
    held_out = len(labels) // 5
    torch.manual_seed(options.seed)
    width = options.width
    net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    model = DistributedDataParallel(net)
    if options.way == "gloo-fp16":
        model.register_comm_hook(None, fp16_compress_hook)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    curve, steps = [], []
    dist.barrier()
    start = time.perf_counter()
    for step in range(options.steps):
        generator = torch.Generator().manual_seed(options.seed * 100_003 + step * world + number)
        batch = torch.randint(held_out, len(labels), (32,), generator=generator)
        before = time.perf_counter()
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(pixels[batch]), labels[batch]).backward()
        optimiser.step()
        steps.append(time.perf_counter() - before)
        if number == 0:
            with torch.no_grad():
                right = (net(pixels[:held_out]).argmax(1) == labels[:held_out]).float().mean().item()
            curve.append((time.perf_counter() - start, right))
    stats = dist.group.WORLD.stats() if options.way.startswith("trimwire") else {}
    dist.barrier()
    if number == 0:
        print(json.dumps({"curve": curve, "steps": sorted(steps), "stats": stats}), flush=True)
    dist.destroy_process_group()


def train(lab: object, options: argparse.Namespace, way: str, port: int) -> dict[str, object]:
    """All ranks of a run; what rank 0 says."""
    from congestion_lab import SHALLOW_AT, address

    words = [options.python, str(Path(__file__).resolve()), "--way", way, "--seed", str(options.seed)]
    words += ["--rate", str(options.rate), "--steps", str(options.steps), "--width", str(options.width)]
    words += ["--algorithm", options.algorithm, "--trim-delay", str(SHALLOW_AT * 8 / (options.rate * 1e6))]
    children = []
    for number in range(options.ranks):
        environment = {"RANK": number, "WORLD_SIZE": options.ranks, "MASTER_ADDR": address(0), "MASTER_PORT": port}
        interfaces = {"GLOO_SOCKET_IFNAME": "eth0", "TRIMWIRE_SOCKET_IFNAME": "eth0"}
        children.append(lab.start(f"r{number}", words, {name: str(value) for name, value in environment.items()} | interfaces))  # type: ignore[attr-defined]
    end = time.monotonic() + options.timeout
    said = [lab.end(child, end - time.monotonic()) for child in children]  # type: ignore[attr-defined]
    if any(child.returncode for child in children):
        sys.exit(f"{way} failed:\n{lab.complaints()}")  # type: ignore[attr-defined]
    return json.loads(said[0] or "")


def measure(options: argparse.Namespace, file: Path) -> None:
    """All runs, each in the file from the moment it is over."""
    sys.path.insert(0, str(ROOT / "lab/bench"))
    from congestion import BURST, DROPPABLE, GAP
    from congestion_lab import Lab, alone

    alone()
    port, rows = 29_500, []
    with Lab(options.programs, options.ranks, round(options.rate * 1e6)) as lab:
        for options.seed in range(1, options.seeds + 1):
            for load in options.loads:
                for name in options.ways:
                    way, policy = WAYS[name]
                    port += 10
                    lab.apply(policy)
                    neighbours = lab.neighbours(load, DROPPABLE if policy == "trim" else 0, f"training/{options.seed}", BURST / lab.rate, GAP / lab.rate)
                    result = train(lab, options, way, port)
                    lab.stop(neighbours)
                    # What still stands in queues is not the next one's.
                    time.sleep(0.5)
                    curve, steps, stats = result["curve"], result["steps"], result["stats"]
                    soon = next((at for at, right in curve if right >= options.accuracy), None)
                    trimmed = stats["packets_trimmed"] / max(1, stats["packets_received"]) if stats else None
                    numbers = {
                        "seconds": soon, "accuracy": curve[-1][1], "p50": steps[len(steps) // 2], "p99": steps[int(len(steps) * 0.99)], "trimmed": trimmed,
                    }  # fmt: skip
                    row = {"load": str(load), "way": name, "seed": str(options.seed)}
                    row |= {key: "" if value is None else f"{value:.5g}" for key, value in numbers.items()}
                    row["curve"] = " ".join(f"{at:.3f}:{right:.4f}" for at, right in curve)
                    rows.append(row)
                    with open(file, "w", newline="") as lines:
                        writer = csv.DictWriter(lines, FIELDS, lineterminator="\n")
                        writer.writeheader()
                        writer.writerows(rows)
                    print(" ".join(f"{key}={row[key]}" for key in FIELDS[:-1]), flush=True)


def medians(rows: list[dict[str, str]], load: str, way: str) -> dict[str, float]:
    """Of the seeds; a run that did not get there makes `seconds` infinite."""
    chosen = [row for row in rows if (row["load"], row["way"]) == (load, way)]
    return {key: statistics.median(float(row[key] or "inf") for row in chosen) for key in ("seconds", "accuracy", "p50", "p99", "trimmed")} if chosen else {}


def table(rows: list[dict[str, str]], accuracy: float) -> str:
    """Markdown."""
    lines = [f"| load | way | s to {accuracy:.0%} | × Trimwire's | accuracy at the end | step p50, p99 | trimmed |".replace("%", " %"), "|---|---|---|---|---|---|---|"]
    for load in dict.fromkeys(row["load"] for row in rows):
        ours = medians(rows, load, "Trimwire").get("seconds")
        for way in WAYS:
            found = medians(rows, load, way)
            if found:
                trimmed = "–" if found["trimmed"] == float("inf") else f"{100 * found['trimmed']:.1f} %"
                times = f"{found['p50']:.3f}, {found['p99']:.3f} s"
                many = f"{found['seconds'] / ours:.2f}" if ours else "–"
                name = f"{load}:1" if load != "0" else "idle"
                lines.append(f"| {name} | {way} | {found['seconds']:.1f} | {many} | {100 * found['accuracy']:.1f} % | {times} | {trimmed} |")
    return "\n".join(lines)


def drawing(rows: list[dict[str, str]]) -> str:
    """Accuracy against time, the mean of the seeds at every step; beside bursts, and dashed idle."""
    from plot import Line, chart

    lines = []
    for load in sorted(dict.fromkeys(row["load"] for row in rows), key=int, reverse=True):
        for way in WAYS:
            curves = [[tuple(map(float, point.split(":"))) for point in row["curve"].split()] for row in rows if (row["load"], row["way"]) == (load, way)]
            points = [tuple(statistics.fmean(axis) for axis in zip(*step, strict=True)) for step in zip(*curves, strict=False)]
            lines.append(Line(f"{way}, {load}:1" if load != "0" else f"{way}, idle", points, dashed=load == "0"))
    return chart("Held-out accuracy", "seconds", "accuracy", lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="folder of trimwire-switch and -controller")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rate", type=float, default=50.0, help="of every link, Mbit/s")
    parser.add_argument("--loads", type=int, nargs="+", default=[0, 3], help="n of n:1; 0 is idle")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--width", type=int, default=512, help="of the two hidden layers; 512 are 300,000 parameters")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--accuracy", type=float, default=0.9, help="the time until this is told")
    parser.add_argument("--timeout", type=float, default=300.0, help="s, of one run")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/figures")
    parser.add_argument("--draw", action="store_true", help="only the table and the plot of the runs that are there")
    parser.add_argument("--algorithm", default="progress", help="of the adaptive way (docs/explanation/planner.md)")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--trim-delay", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        return rank(options)
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "through-a-switch.csv"
    if not options.draw:
        measure(options, file)
    with open(file, newline="") as lines:
        rows = list(csv.DictReader(lines))
    print(table(rows, options.accuracy))
    (options.output / "through-a-switch.svg").write_text(drawing(rows))


if __name__ == "__main__":
    main()
