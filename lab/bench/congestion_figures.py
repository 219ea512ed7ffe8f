# SPDX-License-Identifier: Apache-2.0
"""The tables and the plot of congestion.py's measurements."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

COLOURS = {
    "trim": "#0072b2",
    "trim, line rate": "#56b4e9",
    "trim, TIMELY": "#009e73",
    "drop": "#e69f00",
    "drop + repair": "#d55e00",
    "Gloo": "#666",
}


def medians(rows: list[dict[str, str]], experiment: str) -> dict[tuple[int, float, str], dict[str, float]]:
    """By (ranks, load, mode): the median over the rounds of what was measured, and how many rounds came to an end (`rounds`) or did not (`failed`)."""
    found: dict[tuple[int, float, str], list[dict[str, str]]] = {}
    for row in rows:
        if row["experiment"] == experiment:
            found.setdefault((int(row["ranks"]), float(row["load"]), row["mode"]), []).append(row)
    result = {}
    for key, each in sorted(found.items(), key=lambda item: (*item[0][:2], list(COLOURS).index(item[0][2]))):
        ended = [row for row in each if row["p50"]]
        numbers: dict[str, float] = {"rounds": len(ended), "failed": len(each) - len(ended)}
        for name in ("operations", "p50", "p99", "mean", "trimmed", "missing", "repaired", "nmse", "throughput"):
            values = [int(row["bytes"]) * 8 / float(row["mean"]) if name == "throughput" else float(row[name]) for row in ended if name == "throughput" or row[name]]
            if values:
                numbers[name] = statistics.median(values)
        result[key] = numbers
    return result


def ratio(numbers: dict[str, float], other: dict[str, float] | None, name: str) -> str:
    return f"{numbers[name] / other[name]:.2f}" if other and name in numbers and name in other else "–"


def share(numbers: dict[str, float], name: str) -> str:
    return f"{numbers[name]:.2%}".replace("%", " %") if name in numbers else "–"


def load_name(load: float) -> str:
    return f"{load:.0f}:1" if load else "idle"


def tables(rows: list[dict[str, str]]) -> str:
    """Markdown."""
    lines = []
    all_of = medians(rows, "congestion")
    if all_of:
        lines.append("| ranks | load | mode | p50 ms | p99 ms | p99 / its own idle | p99 / Gloo's | trimmed | missing | repaired | NMSE |")
        lines.append("|---" * 11 + "|")
    for (ranks, load, mode), numbers in all_of.items():
        cells = [str(ranks), load_name(load), mode]
        if "p50" in numbers:
            cells += [f"{1e3 * numbers[name]:.0f}" for name in ("p50", "p99")]
            cells += [ratio(numbers, all_of.get((ranks, 0.0, mode)), "p99"), ratio(numbers, all_of.get((ranks, load, "Gloo")), "p99")]
            cells += [share(numbers, name) for name in ("trimmed", "missing", "repaired")]
            cells.append(f"{numbers['nmse']:.1e}" if "nmse" in numbers else "–")
            if numbers["failed"]:
                cells[2] += f" ({numbers['failed']:.0f} of {numbers['failed'] + numbers['rounds']:.0f} rounds gave up)"
        else:
            cells += ["gave up", *["–"] * 7]
        lines.append(f"| {' | '.join(cells)} |")
    all_of = medians(rows, "gray")
    if all_of:
        lines += ["", "| ranks | lost | mode | Mbit/s of f32 | of its own at 0 | p50 ms | p99 ms | missing | repaired |", "|---" * 9 + "|"]
    for (ranks, loss, mode), numbers in all_of.items():
        cells = [str(ranks), f"{loss:g} %", mode]
        if "p50" in numbers:
            cells += [f"{numbers['throughput'] / 1e6:.1f}", ratio(numbers, all_of.get((ranks, 0.0, mode)), "throughput")]
            cells += [f"{1e3 * numbers[name]:.0f}" for name in ("p50", "p99")]
            cells += [share(numbers, name) for name in ("missing", "repaired")]
        else:
            cells += ["gave up", *["–"] * 5]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def span(axes: Any, of: dict[tuple[float, str], dict[str, float]]) -> None:
    """p50 (filled) to p99 (hollow) of a number of ranks, by load."""
    loads = sorted({load for load, _ in of})
    modes = [mode for mode in COLOURS if any(mode == other for _, other in of)]
    for nth, mode in enumerate(modes):
        found = [(loads.index(load), numbers) for (load, of_mode), numbers in of.items() if of_mode == mode and "p50" in numbers]
        at = [place + (nth - (len(modes) - 1) / 2) / (len(modes) + 1) for place, _ in found]
        middle, high = ([1e3 * numbers[name] for _, numbers in found] for name in ("p50", "p99"))
        axes.vlines(at, middle, high, color=COLOURS[mode])
        axes.plot(at, middle, "o", color=COLOURS[mode], label=mode)
        axes.plot(at, high, "o", color=COLOURS[mode], markerfacecolor="white")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_yticks([tick for tick in (base * 10**power for power in range(6) for base in (1, 2, 5)) if low <= tick <= high])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")
    axes.set_xticks(range(len(loads)), [load_name(load) for load in loads])
    axes.set_ylabel("ms, p50 to p99")


def throughput(axes: Any, of: dict[tuple[float, str], dict[str, float]]) -> None:
    """By loss."""
    losses = sorted({loss for loss, _ in of})
    for mode, colour in COLOURS.items():
        points = [(at, of[loss, mode]["throughput"] / 1e6) for at, loss in enumerate(losses) if "throughput" in of.get((loss, mode), {})]
        if points:
            axes.plot(*zip(*points, strict=True), "o-", color=colour, label=mode)
    axes.set_xticks(range(len(losses)), [f"{loss:g} %" for loss in losses])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("Mbit/s of f32")


def drawing(rows: list[dict[str, str]]) -> str:
    """SVG: a panel for each number of ranks, and one for the link that loses.

    Raises:
        ImportError: matplotlib is not installed.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))
    from plot import legend, panels, svg

    shown: list[tuple[str, Any, dict[tuple[float, str], dict[str, float]]]] = []
    for experiment, draw, title in (("congestion", span, "beside bursts of neighbours"), ("gray", throughput, "packets lost on one link")):
        measured = medians(rows, experiment)
        for ranks in sorted({ranks for ranks, _, _ in measured}):
            of = {key[1:]: numbers for key, numbers in measured.items() if key[0] == ranks}
            shown.append((f"{ranks} ranks, {title}", draw, of))
    figure, all_axes = panels(max(1, len(shown)), "All-reduce beside bursts, and over a link that loses", height=2.8)
    for axes, (title, draw, of) in zip(all_axes, shown, strict=False):
        draw(axes, of)
        axes.set_title(title, loc="left", fontsize=9)
        legend(axes)
    return svg(figure)
