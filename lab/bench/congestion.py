#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce through one switch beside bursts of neighbours, and over a link that loses: trimming, dropping, repairing, and PyTorch's Gloo.

Needs root, iproute2, trimwire-agent, -switch and -controller (`cargo build --release`) and a Python with PyTorch (--python):

    sudo lab/bench/congestion.py --python venv/bin/python

Ranks, each in a network namespace, are linked to a `trimwire-switch` by --rate both ways. n:1: during a burst n - 1 neighbours send UDP at line rate to
one rank (of each four), in the queue that the ranks' own packets are in. The modes take turns, --rounds times, beside the same sequence of bursts.
Writes congestion.csv (a line a measurement), congestion.md (medians over the rounds) and congestion.svg into --output. An operation takes as
long as its slowest rank; a measurement's p99 is of its own operations, so below 100 of them it is their slowest.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import sys
import time
from pathlib import Path

from congestion_figures import drawing, tables
from congestion_lab import ROOT, SHALLOW_AT, Lab, address, alone

DROPPABLE = 19 << 2 | 0b10
"""Traffic class of neighbours: droppable and ECN-capable, in the queue of the gradients of class 0."""
MODES = {
    "trim": ("trim", ["--loss", "0.01"], DROPPABLE),
    "trim, line rate": ("trim", ["--loss", "0.01", "--set", "rate-algorithm=fixed"], DROPPABLE),
    "trim, TIMELY": ("trim", ["--loss", "0.01", "--set", "rate-algorithm=timely", "--set", "t-low=6ms", "--set", "t-high=20ms"], DROPPABLE),
    "drop": ("selective", ["--set", "droppable=true", "--loss", "0.01"], DROPPABLE),
    "drop + repair": ("marking", ["--set", "droppable=true", "--reliable"], DROPPABLE),
    "Gloo": ("drop-tail", None, 0),
}
"""What the port does, what our agents are told (none: Gloo), what neighbours' packets carry: for Gloo best effort, as TCP.
TIMELY's thresholds are for queues of milliseconds; its own go by 20 µs, less than a packet takes here, and it starves."""
EXPERIMENTS = {
    "congestion": ["trim", "trim, line rate", "drop", "drop + repair", "Gloo"],
    "gray": ["trim", "trim, TIMELY", "drop", "drop + repair", "Gloo"],
}
"""What takes turns; where no rate algorithm is named it is the agent's default."""
BURST, GAP = 2e6, 8e6
"""Bits that a link carries in a burst and between two, means: the demo's at 10 Gbit/s, whatever --rate."""
FIELDS = ["experiment", "ranks", "load", "mode", "round", "bytes", "operations", "p50", "p99", "mean", "trimmed", "missing", "repaired", "nmse", "offered"]

GLOO = """
import datetime, json, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
rank, world, size = map(int, sys.argv[1:])
dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=90))
data = torch.randn(size // 4)
print("ready", flush=True)
for line in sys.stdin:
    operations, seconds = line.split()
    end, times = time.monotonic() + float(seconds), []
    for number in range(int(operations) + 2):
        # All stop together, and start together as after a barrier.
        stop = torch.tensor([float(time.monotonic() > end)])
        dist.all_reduce(stop)
        if stop.item():
            break
        copy = data.clone()
        start = time.perf_counter()
        dist.all_reduce(copy)
        times.append(time.perf_counter() - start)
    print(json.dumps(times[2:]), flush=True)
"""


class Gloo:
    """Its ranks, which keep their connections from one measurement to the next."""

    def __init__(self, lab: Lab, python: str, size: int) -> None:
        self.lab = lab
        environment = {"MASTER_ADDR": address(0), "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0"}
        words = lambda rank: [python, "-c", GLOO, str(rank), str(lab.world), str(size)]  # noqa: E731
        self.ranks = [lab.start(f"r{rank}", words(rank), environment, talk=True) for rank in range(lab.world)]
        for rank in self.ranks:
            if rank.stdout.readline() != "ready\n":
                sys.exit(f"Gloo does not start: {lab.complaints()}")

    def measure(self, operations: int, seconds: float) -> dict[str, object] | None:
        for rank in self.ranks:
            rank.stdin.write(f"{operations} {seconds}\n")
            rank.stdin.flush()
        each = [json.loads(rank.stdout.readline() or "[]") for rank in self.ranks]
        return {"seconds": [max(times) for times in zip(*each)]} if all(each) else None


def ours(lab: Lab, options: argparse.Namespace, words: list[str]) -> dict[str, object] | None:
    """All ranks of trimwire-agent; None where they did not come to an end."""
    peers = ",".join(address(rank) for rank in range(lab.world))
    common = ["perf", "all-reduce", "--world", str(lab.world), "--peers", peers, "-b", str(options.size), "-e", str(options.size), "-w", "2"]
    trim_delay = f"{SHALLOW_AT * 8 * 10**6 // lab.rate}us"
    common += ["-n", str(options.operations), "--bitrate", str(lab.rate), "--set", f"trim-delay={trim_delay}", "--channels", "1", "--timeout", "30s", "--json", *words]
    agent = str(options.programs / "trimwire-agent")
    ranks = [lab.start(f"r{rank}", [agent, *common, "--rank", str(rank)]) for rank in range(lab.world)]
    end = time.monotonic() + options.limit
    said = [lab.end(rank, end - time.monotonic()) for rank in ranks]
    if any(rank.returncode for rank in ranks):
        print(lab.complaints(), file=sys.stderr)
        return None
    rows = [json.loads(text)["rows"][0] for text in said]
    mean = lambda key: statistics.fmean(row[key] for row in rows)  # noqa: E731
    packets = sum(row["packets"] for row in rows)
    return {
        "seconds": [max(times) for times in zip(*(row["seconds_each"] for row in rows))],
        "trimmed": mean("trimmed_share"), "missing": mean("missing_share"), "repaired": sum(row["repaired"] for row in rows) / max(1, packets), "nmse": mean("nmse"),
    }  # fmt: skip


def quantile(times: list[float], share: float) -> float:
    """Nearest rank, as `perf` has it."""
    return sorted(times)[max(0, math.ceil(len(times) * share) - 1)]


class Results:
    """The measurements, in a file from the moment they are made."""

    def __init__(self, file: Path, keep: bool) -> None:
        self.file, self.rows = file, []
        if keep and file.exists():
            with open(file, newline="") as lines:
                self.rows = list(csv.DictReader(lines))

    def add(self, result: dict[str, object] | None, **place: object) -> None:
        row = {key: "" for key in FIELDS} | place
        if result:
            times = result.pop("seconds")
            row |= {"operations": len(times), "p50": quantile(times, 0.5), "p99": quantile(times, 0.99), "mean": statistics.fmean(times)} | result
        row = {key: f"{value:.6g}" if isinstance(value, float) else str(value) for key, value in row.items()}
        self.rows.append(row)
        with open(self.file, "w", newline="") as lines:
            writer = csv.DictWriter(lines, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
        print(" ".join(f"{key}={row[key]}" for key in FIELDS if row[key]), flush=True)


def measure(lab: Lab, gloo: Gloo, options: argparse.Namespace, mode: str, place: dict[str, object], load: int) -> dict[str, object] | None:
    policy, words, tos = MODES[mode]
    lab.apply(policy)
    neighbours = lab.neighbours(load, tos, f"{options.seed}/{place['round']}", BURST / lab.rate, GAP / lab.rate)
    result = gloo.measure(options.operations, options.limit) if words is None else ours(lab, options, words)
    offered = lab.stop(neighbours)
    # What still stands in queues is not the next one's.
    time.sleep(0.3)
    return result | {"offered": offered} if result and offered else result


def run(results: Results, options: argparse.Namespace, experiment: str, ranks: int) -> None:
    """All rounds of an experiment with so many ranks."""
    gray = experiment == "gray"
    with Lab(options.programs, ranks, options.rate, lossy=gray) as lab:
        lab.apply("drop-tail")
        gloo = Gloo(lab, options.python, options.size)
        for number in range(options.rounds):
            for load in options.loss if gray else options.loads:
                if gray:
                    lab.lose(load / 100)
                for mode in options.modes or EXPERIMENTS[experiment]:
                    place = {"experiment": experiment, "ranks": ranks, "load": load, "mode": mode, "round": number, "bytes": options.size}
                    results.add(measure(lab, gloo, options, mode, place, 0 if gray else load), **place)
    if lab.missed:
        print(f"{experiment}, {ranks} ranks: the switch missed or lost {lab.missed} frames besides its queues' drops", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter with PyTorch")
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="folder of trimwire-agent, -switch and -controller")
    parser.add_argument("--experiments", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--gray-ranks", type=int, default=2)
    parser.add_argument("--loads", type=int, nargs="+", default=[0, 3, 8], help="n of n:1; 0 is idle")
    parser.add_argument("--loss", type=float, nargs="+", default=[0, 0.01, 0.1, 1], help="of the frames on rank 0's link, each way, %%")
    parser.add_argument("--modes", nargs="+", choices=MODES, help="instead of those that an experiment has by itself")
    parser.add_argument("--rate", type=float, default=50, help="of every rank's link, Mbit/s")
    parser.add_argument("--size", type=int, default=1 << 20, help="of the tensor, bytes of f32")
    parser.add_argument("--operations", type=int, default=20, help="of a measurement; two more go before")
    parser.add_argument("--limit", type=float, default=60, help="s after which a measurement is given up (Gloo: takes what it has)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="of the bursts")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/figures")
    parser.add_argument("--keep", action="store_true", help="add to the measurements that are there")
    parser.add_argument("--draw", action="store_true", help="only the table and the plot of the measurements that are there")
    options = parser.parse_args()
    options.rate = round(options.rate * 1e6)
    options.programs = options.programs.resolve()
    results = Results(options.output / "congestion.csv", options.keep or options.draw)
    if not options.draw:
        alone()
        for experiment in options.experiments:
            for ranks in [options.gray_ranks] if experiment == "gray" else options.ranks:
                run(results, options, experiment, ranks)
    text = tables(results.rows)
    (options.output / "congestion.md").write_text(text)
    (options.output / "congestion.svg").write_text(drawing(results.rows))
    print(text)


if __name__ == "__main__":
    main()
