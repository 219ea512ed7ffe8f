#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What training loses by trimmed gradients, in simulated networks: several workers in one process, several seeds, results as CSV and SVG.

    python3 accuracy.py codecs                          codecs against trim rates (the HotNets'24 paper's figures 3 and 4)
    python3 accuracy.py feedback --model perceptron     with and without error feedback
    python3 accuracy.py parameters                      FSDP's parameters, gathered through a network that trims them
    python3 accuracy.py codecs --model transformer --text FILE    or --data FOLDER, of Fashion-MNIST, for --model convolutional

A line of OUT/EXPERIMENT-MODEL.csv for each training. What each gave is kept (`training.kept`): the same command goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import training
from plot import Line, chart
from progress import Progress
from training import Outcome, Task, kept

from trimwire.torch import Simulation

FIGURES = Path(__file__).resolve().parents[2] / "docs/figures"
FIELDS = ("way", "rate", "seed", "final", "steps_to_target", "gradient_nmse", "parameter_nmse", "curve")
#: The target is the worst seed's exact quality in the end, less this share of it; of an exact training its own.
SHY = 0.02
#: Planes of what is not trimmed.
PLANES = 9

Run = Callable[[Task, int], Outcome]


def codecs(rates: list[float]) -> dict[tuple[str, float], Run]:
    """Each codec, every packet of which a share is trimmed to one plane; the mean on its way back, too."""
    runs: dict[tuple[str, float], Run] = {}
    for codec in ("rht", "sign-magnitude", "sq", "sd"):
        for rate in rates:
            runs[codec, rate] = lambda task, seed, codec=codec, rate=rate: kept(task, seed, Simulation(trim_rate=rate, sent_planes=PLANES, codec=codec, seed=seed))
    return runs


def feedback(rates: list[float]) -> dict[tuple[str, float], Run]:
    """The default codec with unbiased decoding and with that of least error, each with and without feedback."""
    runs: dict[tuple[str, float], Run] = {}
    for decoding in ("unbiased", "mmse"):
        for again in (False, True):
            name = f"{decoding}{', feedback' if again else ''}"
            for rate in rates:
                network = Simulation(trim_rate=rate, sent_planes=PLANES, decoding=decoding)
                runs[name, rate] = lambda task, seed, network=network, again=again: kept(
                    task, seed, replace(network, seed=seed), feedback=again
                )
    return runs


def parameters(rates: list[float]) -> dict[tuple[str, float], Run]:
    """Nine planes of each parameter, of which a share of the packets is trimmed to so many; gradients arrive exactly."""
    runs: dict[tuple[str, float], Run] = {}
    for planes in (8, 4, 2, 1):
        for rate in rates:
            network = Simulation(trim_rate=rate, sent_planes=PLANES, planes=planes)
            runs[f"{planes} plane{'s' if planes > 1 else ''}", rate] = lambda task, seed, network=network: kept(task, seed, parameters=replace(network, seed=seed))
    runs["9 planes, none trimmed", 0.0] = lambda task, seed: kept(task, seed, parameters=Simulation(trim_rate=0.0, sent_planes=PLANES, seed=seed))
    return runs


EXPERIMENTS = {"codecs": (codecs, [0.02, 0.1, 0.25, 0.5]), "feedback": (feedback, [0.5, 1.0]), "parameters": (parameters, [0.1, 0.5])}


def runs_of(experiment: str, rates: list[float] | None = None) -> dict[tuple[str, float], Run]:
    """An experiment's trainings, the exact one first."""
    make, usual = EXPERIMENTS[experiment]
    return {("exact", 0.0): lambda task, seed: kept(task, seed), **make(rates or usual)}


def measure(name: str, task: Task, runs: dict[tuple[str, float], Run], seeds: int, out: Path) -> list[dict[str, Any]]:
    """Makes the runs that were not made, of which exact ones come first: the target is theirs. A line of OUT/NAME.csv for each."""
    rows: list[dict[str, Any]] = []
    target = math.inf
    with Progress(len(runs) * seeds, name) as bar:
        for (way, rate), run in runs.items():
            for seed in range(seeds):
                outcome = run(task, seed)
                own = outcome.final - SHY * abs(outcome.final)
                if way == "exact":
                    target = min(target, own)
                figures = (outcome.final, outcome.steps_to(own if way == "exact" else target), outcome.gradient_nmse, outcome.parameter_nmse)
                looks = " ".join(f"{quality:.4g}" for _, quality in outcome.curve)
                rows.append(dict(zip(FIELDS, (way, rate, seed, *(f"{figure:.6g}" for figure in figures), looks), strict=True)))
                bar.step(f"{way}, {rate:.1%}, seed {seed}")
    out.mkdir(parents=True, exist_ok=True)
    with (out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return rows


def table(rows: list[dict[str, Any]], unit: str) -> str:
    """Mean and standard deviation over seeds, a line for each way and rate."""
    groups: dict[tuple[str, float], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["way"], float(row["rate"])].append(row)
    lines = [f"| way | trimmed | seeds | {unit} | steps to the target | NMSE of the gradient | of parameters |", "|---|---|---|---|---|---|---|"]
    for (way, rate), group in groups.items():
        final = np.array([float(row["final"]) for row in group])
        steps = [float(row["steps_to_target"]) for row in group]
        if final.min() <= training.DIVERGED / 2:
            lines.append(f"| {way} | {100 * rate:.4g} % | {len(group)} | diverged | | | |")
            continue
        missed = sum(math.isinf(one) for one in steps)
        took = f"{missed} of {len(steps)} never" if missed else f"{np.mean(steps):.0f} ± {np.std(steps, ddof=min(1, len(steps) - 1)):.0f}"
        nmses = [np.mean([float(row[key]) for row in group]) for key in ("gradient_nmse", "parameter_nmse")]
        spread = np.std(final, ddof=min(1, len(final) - 1))
        lines.append(f"| {way} | {100 * rate:.4g} % | {len(group)} | {final.mean():.4f} ± {spread:.4f} | {took} | {nmses[0]:.2g} | {nmses[1]:.2g} |")
    return "\n".join(lines) + "\n"


def plot(rows: list[dict[str, Any]], title: str, unit: str) -> str:
    """Final quality against the rate, a line for each way; each begins with exact training."""
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        final = float(row["final"])
        found[row["way"]][float(row["rate"])].append(final if final > training.DIVERGED / 2 else math.nan)
    exact = found.pop("exact")[0.0]
    lines = []
    for way, by_rate in found.items():
        finals = {0.0: exact, **by_rate} if way != "9 planes, none trimmed" else dict(by_rate)
        points = sorted((rate, float(np.mean(finals[rate]))) for rate in finals)
        lines.append(Line(way, points, [float(np.std(finals[rate], ddof=min(1, len(finals[rate]) - 1))) for rate, _ in points]))
    return chart(title, "share of the packets that are trimmed", unit, lines, even_x=True, percent_x=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--model", choices=("perceptron", "convolutional", "transformer", "resnet", "vgg"), default="convolutional")
    parser.add_argument("--data", type=Path, help="folder of Fashion-MNIST (Debian: /usr/share/datasets/fashion-mnist)")
    parser.add_argument("--text", type=Path, default=training.TEXT, help="a text for the transformer")
    parser.add_argument("--rates", type=float, nargs="+")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="of each training, in place of the model's own")
    parser.add_argument("--out", type=Path, default=FIGURES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.model == "transformer":
        task = training.transformer(options.text)
    elif options.model == "convolutional":
        task = training.convolutional(options.data)
    else:
        task = getattr(training, options.model)()
    task = task.of(options.steps)
    runs = runs_of(options.experiment, options.rates)
    name = f"{options.experiment}-{options.model}{'-fashion' if options.data else ''}"
    rows = measure(name, task, runs, options.seeds, options.out)
    (options.out / f"{name}.svg").write_text(plot(rows, f"{options.experiment}: {task.name}, {options.seeds} seeds", task.unit))
    sys.stdout.write(table(rows, task.unit))


if __name__ == "__main__":
    main()
