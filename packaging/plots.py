#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/figures/*.svg from the CSV beside them. Needs matplotlib.

    packaging/plots.py                   all of them
    packaging/plots.py NAME…             some: planes-algorithms, rate-algorithms
"""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs/figures"

sys.path.insert(0, str(ROOT / "lab/experiments"))
plot = importlib.import_module("plot")


def read(name: str) -> list[dict[str, str]]:
    path = FIGURES / f"{name}.csv"
    if not path.exists():
        sys.exit(f"{path.relative_to(ROOT)} is not there: docs/how-to/figures.md has the command that writes it")
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def curves(axes: Any, rows: list[dict[str, str]], series: str, at: str, value: Callable[[dict[str, str]], float], names: list[str]) -> None:
    for nth, name in enumerate(names):
        points = [(float(row[at]), value(row)) for row in rows if row[series] == name]
        axes.plot(*zip(*points, strict=True), color=plot.COLOURS[nth % len(plot.COLOURS)], linewidth=1.2, label=name)


def planes_algorithms() -> dict[str, str]:
    """Share of the gradient that planes algorithms send on one link."""
    rows = read("planes-algorithms")
    scenarios = list(dict.fromkeys(row["scenario"] for row in rows))
    figure, all_axes = plot.panels(len(scenarios), "Share of the gradient that is sent: 46.2 MB a step, one link in virtual time", height=2.8)
    for axes, scenario in zip(all_axes, scenarios, strict=True):
        own = [row for row in rows if row["scenario"] == scenario]
        curves(axes, own, "series", "at_s", lambda row: float(row["share"]), [name for name in dict.fromkeys(row["series"] for row in own) if name != "link"])
        link = [(float(row["at_s"]), float(row["share"])) for row in own if row["series"] == "link"]
        axes.plot(*zip(*link, strict=True), "--", color="#333", linewidth=1.0, label="link, of its greatest")
        axes.set_yscale("log")
        axes.set_ylim(0.003, 1.1)
        axes.set_title(scenario, loc="left", fontsize=9)
        plot.legend(axes)
    all_axes[-1].set_xlabel("seconds")
    return {"planes-algorithms": plot.svg(figure)}


def rate_algorithms() -> dict[str, str]:
    """Rates and the queue of one port: eight flows, four leave at 20 ms, a ninth joins at 30 ms."""
    titles = {
        "timely-trim": "TIMELY-like, packets are trimmed",
        "dctcp-trim": "DCTCP-like, packets are trimmed",
        "timely-drop": "TIMELY-like, packets are dropped (baseline)",
        "dctcp-drop": "DCTCP-like, packets are marked and dropped (baseline)",
    }
    rows, found = read("rate-algorithms"), {}
    for run, title in titles.items():
        own = [row for row in rows if row["run"] == run]
        figure, (rates, queue) = plot.panels(2, title, height=2.4)
        flows = [name for name in dict.fromkeys(row["series"] for row in own) if name.startswith("flow")]
        curves(rates, own, "series", "at_ms", lambda row: float(row["value"]), flows)
        rates.set_ylabel("Gbit/s that arrived")
        rates.set_ylim(0, 4)
        curves(queue, own, "series", "at_ms", lambda row: float(row["value"]), ["queue mean", "queue 99 %"])
        queue.set_ylabel("data queue, µs")
        queue.set_ylim(bottom=0)
        queue.set_xlabel("ms")
        plot.legend(rates)
        plot.legend(queue)
        found[f"rate-{run}"] = plot.svg(figure)
    return found


DRAWINGS = {"planes-algorithms": planes_algorithms, "rate-algorithms": rate_algorithms}


def main() -> None:
    names = sys.argv[1:] or list(DRAWINGS)
    if unknown := [name for name in names if name not in DRAWINGS]:
        sys.exit(f"{unknown[0]}: valid are {', '.join(DRAWINGS)}")
    for name in names:
        for file, text in DRAWINGS[name]().items():
            (FIGURES / f"{file}.svg").write_text(text, encoding="utf-8")
            print(FIGURES.relative_to(ROOT) / f"{file}.svg")


if __name__ == "__main__":
    main()
