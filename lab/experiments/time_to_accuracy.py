#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Accuracy against time, with trims and with drops that are sent again (the HotNets'24 paper's figures 3 and 4), on nets with batch norm and made images of 32 by 32 pixels.

    python3 lab/experiments/time_to_accuracy.py

Trainings are `accuracy.py codecs`'. How long an exchange of gradients takes is simulated (`trimwire-lab sim`): two all-to-alls of four hosts at 10 Gbit/s. Exact training has
links that lose so many packets, and sends them again. What is trimmed is charged what whole packets take, and the codec on one core, beside nothing else.

A step computes as long as exact training's exchange takes without drops. That is an assumption; times are in steps of that training.
Into OUT: codecs-MODEL.csv and .svg, time-MODEL-curves.svg (figure 3), time-MODEL.svg (figure 4), exchanges.csv. The same command goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import accuracy
import numpy as np
import torch
import training
from plot import COLOURS, Line, legend, panels, svg

#: What sends drops again: RoCEv2 with go-back-N, DCTCP with a short time-out, and pFabric, whose time-out is three round trips.
REPAIRING = {"RoCE": "dcqcn: {}", "DCTCP": "dctcp: { rto_min: 1ms }", "pFabric": "pfabric: {}"}
TRIMMING = "trimwire: {}"
#: Lines of the pictures: each has one colour in all of them.
LINES = (*(f"exact, {name}" for name in REPAIRING), "rht", "sign-magnitude", "sq", "sd")
#: Bytes of a coordinate, and of a packet of them: nine planes of ours; others' are floats.
OURS, FLOATS = (2.0, 888), (4.0, 1344)
#: Nanoseconds a coordinate: nine planes encoded once, and 1.5 times received and decoded (docs/results/codec-speed.md, one core of a Sapphire Rapids).
CODEC_NS = 0.84 + 1.5 * 0.88
LIMIT_S = 2.0
SEEDS = 5


def exchange(simulator: Path, transport: str, coordinates: int, kind: tuple[float, int], drops: float) -> list[float]:
    """Seconds of an all-reduce by seed: each host's shard from all others, then to them. Infinite where one is beyond the limit."""
    # A packet passes two links.
    loss = 1 - math.sqrt(1 - drops)
    links = ", ".join(f"{{ at: 0ns, link: {link}, loss: {loss} }}" for link in range(training.WORKERS))
    took = []
    for seed in range(1, SEEDS + 1):
        scenario = (
            f"scenario: exchange\nseed: {seed}\nlimit: {LIMIT_S}s\npayload: {kind[1]}\n"
            f"topology: {{ star: {{ hosts: {training.WORKERS}, rate: 10Gbps, delay: 1us }} }}\n"
            f"workload: {{ all_to_all: {{ bytes: {round(coordinates / training.WORKERS * kind[0])}B, jitter: 1us }} }}\n"
            f"links: [{links}]\nruns: [{{ name: run, transport: {{ {transport} }} }}]\n"
        )
        run = simulated(simulator, scenario)
        if run["unfinished"]:
            return [math.inf]
        took.append(2 * run["fct_max_s"])
    return took


def simulated(simulator: Path, scenario: str) -> dict[str, Any]:
    """What the scenario's only run gives, or gave to an earlier call."""
    kept = training.KEPT / f"exchange-{hashlib.sha256(simulator.read_bytes() + scenario.encode()).hexdigest()[:16]}.json"
    if not kept.exists():
        training.KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(scenario)
            file.flush()
            done = subprocess.run([simulator, "sim", file.name, "--json", "--threads", "1"], check=True, capture_output=True, text=True)
        kept.write_text(done.stdout)
    run: dict[str, Any] = json.loads(kept.read_text())["runs"][0]
    return run


def step_times(simulator: Path, model: str, coordinates: int, rates: list[float], writer: Any) -> dict[tuple[str, float], float]:
    """Mean time of a step by way and rate, in steps of exact training without drops."""

    def mean(name: str, transport: str, kind: tuple[float, int], drops: float) -> float:
        took = exchange(simulator, transport, coordinates, kind, drops)
        writer.writerow((model, coordinates, name, drops, *(f"{1e3 * one:.4g}" for one in (np.mean(took), min(took), max(took)))))
        return float(np.mean(took))

    repairing = {(name, rate): mean(name, transport, FLOATS, rate) for name, transport in REPAIRING.items() for rate in (0.0, *rates)}
    least = min(repairing[name, 0.0] for name in REPAIRING)
    compute, exact = least, 2 * least
    times = {way: (compute + time) / exact for way, time in repairing.items()}
    codec = CODEC_NS * 1e-9 * coordinates
    trimming = {way: compute + codec + mean(way, TRIMMING, kind, 0.0) for way, kind in (("rht", OURS), ("float codecs", FLOATS))}
    for rate in rates:
        times |= {(way, rate): trimming["rht" if way == "rht" else "float codecs"] / exact for way in ("rht", "sign-magnitude", "sq", "sd")}
    return times


def draw(axes: Any, lines: list[Line]) -> None:
    """Lines with their spread."""
    for line in lines:
        x, y = np.array(line.points).T
        axes.errorbar(x, y, yerr=line.spread or None, label=line.name, color=COLOURS[LINES.index(line.name)], linestyle="--" if line.dashed else "-", linewidth=1.5, elinewidth=0.8)


def curves(rows: list[dict[str, Any]], times: dict[tuple[str, float], float], rates: list[float], task: training.Task) -> str:
    """Accuracy against time, a panel for each rate, a line for each codec and each way to send again: means of seeds (figure 3)."""
    looks = np.arange(1, training.LOOKS + 1) * (task.steps // training.LOOKS)
    by_run: dict[tuple[str, float], list[list[float]]] = defaultdict(list)
    for row in rows:
        by_run[row["way"], row["rate"]].append([float(look) for look in row["curve"].split()])
    figure, all_axes = panels(len(rates), f"Accuracy against time: {task.name}", height=2.6)
    for axes, rate in zip(all_axes, rates, strict=True):
        lines = []
        for (way, at), time in times.items():
            if at == rate and math.isfinite(time):
                found = np.mean(by_run["exact", 0.0] if way in REPAIRING else by_run[way, rate], axis=0)
                lines.append(Line(way if way not in REPAIRING else f"exact, {way}", [(float(x), float(y)) for x, y in zip(looks * time, found, strict=True)], dashed=way in REPAIRING))
        draw(axes, lines)
        axes.set_title(f"{rate:.1%} trimmed, or dropped", fontsize=9)
        axes.set_ylabel(task.unit)
        axes.set_xlim(0, 3 * task.steps)
        legend(axes)
    all_axes[-1].set_xlabel("time, in steps of exact training without drops")
    return svg(figure)


def to_target(rows: list[dict[str, Any]], times: dict[tuple[str, float], float]) -> dict[str, dict[float, list[float]]]:
    """Time to the target of each seed, by way and rate; infinite where it never is."""
    steps: dict[tuple[str, float], list[float]] = defaultdict(list)
    for row in rows:
        steps[row["way"], row["rate"]].append(float(row["steps_to_target"]))
    found: dict[str, dict[float, list[float]]] = defaultdict(dict)
    for (way, rate), time in times.items():
        found[f"exact, {way}" if way in REPAIRING else way][rate] = [time * one for one in (steps["exact", 0.0] if way in REPAIRING else steps[way, rate])]
    return found


def by_rate(found: dict[str, dict[float, list[float]]], rates: list[float], title: str) -> str:
    """Time to the target against the rate, where all seeds get there (figure 4)."""
    figure, (axes,) = panels(1, title)
    places = {rate: place for place, rate in enumerate((0.0, *rates))}
    lines = []
    for way, of_way in found.items():
        reached = {places[rate]: took for rate, took in of_way.items() if np.isfinite(took).all()}
        if reached:
            spread = [float(np.std(took, ddof=min(1, len(took) - 1))) for took in reached.values()]
            lines.append(Line(way, [(float(place), float(np.mean(took))) for place, took in reached.items()], spread, dashed=way.startswith("exact")))
    draw(axes, lines)
    axes.set_yscale("log")
    axes.set_xticks(range(len(places)), [f"{100 * rate:.4g} %" for rate in places])
    axes.set_xlabel("share of the packets that are trimmed, or dropped")
    axes.set_ylabel("steps of exact training without drops")
    legend(axes)
    return svg(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulator", type=Path, default=training.ROOT / "target/release/trimwire-lab", help="the program `trimwire-lab`")
    parser.add_argument("--models", nargs="+", choices=("perceptron", "resnet", "vgg"), default=["resnet", "vgg"])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.001, 0.02, 0.1, 0.5])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of each training, in place of the model's own")
    parser.add_argument("--out", type=Path, default=accuracy.FIGURES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = accuracy.runs_of("codecs", options.rates)
    with (options.out / "exchanges.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("model", "coordinates", "what", "drops", "mean_ms", "least_ms", "most_ms"))
        for task in (getattr(training, model)().of(options.steps) for model in options.models):
            coordinates = sum(each.numel() for each in task.make().parameters())
            times = step_times(options.simulator, task.name, coordinates, options.rates, writer)
            file.flush()
            rows = accuracy.measure(f"codecs-{task.name}", task, runs, options.seeds, options.out)
            title = f"Codecs: {task.name}, {options.seeds} seeds"
            (options.out / f"codecs-{task.name}.svg").write_text(accuracy.plot(rows, title, task.unit))
            (options.out / f"time-{task.name}-curves.svg").write_text(curves(rows, times, options.rates, task))
            found = to_target(rows, times)
            (options.out / f"time-{task.name}.svg").write_text(by_rate(found, options.rates, f"Time to the exact accuracy: {task.name}, {options.seeds} seeds"))
            sys.stdout.write(f"\n{task.name}\n\n{accuracy.table(rows, task.unit)}\n| way | rate | a step | to the target |\n|---|---|---|---|\n")
            for way, of_way in found.items():
                for rate, took in of_way.items():
                    step = times[way.removeprefix("exact, "), rate]
                    sys.stdout.write(f"| {way} | {100 * rate:.4g} % | {step:.3g} | {np.mean(took):.3g} ({min(took):.3g} to {max(took):.3g}) |\n")


if __name__ == "__main__":
    main()
