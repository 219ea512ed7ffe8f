# SPDX-License-Identifier: Apache-2.0
"""The tables and the plot of congestion.py's measurements."""

from __future__ import annotations

import math
import statistics

COLOURS = {
    "trim": "#0072b2",
    "trim, line rate": "#56b4e9",
    "trim, TIMELY": "#009e73",
    "drop": "#e69f00",
    "drop + repair": "#d55e00",
    "Gloo": "#666",
}
LEFT, WIDTH, TOP, HEIGHT, GAP = 56, 230, 84, 240, 62


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
        for name in ("operations", "p50", "p99", "mean", "cut", "missing", "repaired", "nmse", "throughput"):
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
        lines.append("| ranks | load | mode | p50 ms | p99 ms | p99 / its own idle | p99 / Gloo's | cut | missing | repaired | NMSE |")
        lines.append("|---" * 11 + "|")
    for (ranks, load, mode), numbers in all_of.items():
        cells = [str(ranks), load_name(load), mode]
        if "p50" in numbers:
            cells += [f"{1e3 * numbers[name]:.0f}" for name in ("p50", "p99")]
            cells += [ratio(numbers, all_of.get((ranks, 0.0, mode)), "p99"), ratio(numbers, all_of.get((ranks, load, "Gloo")), "p99")]
            cells += [share(numbers, name) for name in ("cut", "missing", "repaired")]
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


def text(x: float, y: float, words: str, more: str = 'text-anchor="middle"') -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'


class Panel:
    """Axes: categories along x, values between `low` and `high` along y."""

    def __init__(self, number: int, title: str, categories: list[str], low: float, high: float, logarithmic: bool, ticks: list[float]) -> None:
        self.left = LEFT + number * (WIDTH + GAP)
        self.step = WIDTH / max(1, len(categories))
        self.low, self.high, self.logarithmic = low, high, logarithmic
        self.parts = [text(self.left, TOP - 14, title, 'fill="#666"')]
        for tick in ticks:
            y = self.y(tick)
            self.parts.append(f'<path d="M{self.left} {y:.1f}h{WIDTH}" stroke="#ddd"/>' + text(self.left - 6, y + 4, f"{tick:g}", 'text-anchor="end"'))
        for at, category in enumerate(categories):
            self.parts.append(text(self.x(at), TOP + HEIGHT + 18, category))

    def x(self, category: int, offset: float = 0.0) -> float:
        return self.left + (category + 0.5) * self.step + offset

    def y(self, value: float) -> float:
        scale = math.log if self.logarithmic else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return TOP + HEIGHT * (1 - share)


def span(number: int, title: str, of: dict[tuple[float, str], dict[str, float]], low: float, high: float) -> Panel:
    """p50 (filled) to p99 (hollow) of a number of ranks."""
    loads = sorted({load for load, _ in of})
    modes = [mode for mode in COLOURS if any(mode == other for _, other in of)]
    ticks = [base * 10**power for power in range(0, 6) for base in (1, 2, 5) if low <= base * 10**power <= high]
    panel = Panel(number, title, [load_name(load) for load in loads], low, high, True, ticks)
    for (load, mode), numbers in of.items():
        x = panel.x(loads.index(load), (modes.index(mode) - (len(modes) - 1) / 2) * panel.step / (len(modes) + 1))
        if "p50" in numbers:
            y50, y99 = panel.y(1e3 * numbers["p50"]), panel.y(1e3 * numbers["p99"])
            panel.parts.append(
                f'<path d="M{x:.1f} {y50:.1f}V{y99:.1f}" stroke="{COLOURS[mode]}" stroke-width="2"/>'
                f'<circle cx="{x:.1f}" cy="{y99:.1f}" r="4" fill="#fff" stroke="{COLOURS[mode]}" stroke-width="2"/>'
                f'<circle cx="{x:.1f}" cy="{y50:.1f}" r="4" fill="{COLOURS[mode]}"/>'
            )
    return panel


def lines(number: int, title: str, of: dict[tuple[float, str], dict[str, float]]) -> Panel:
    """Throughput by loss."""
    losses = sorted({loss for loss, _ in of})
    most = max((numbers.get("throughput", 0.0) / 1e6 for numbers in of.values()), default=1.0) * 1.1
    step = 10 ** math.floor(math.log10(most)) / (1 if most / 10 ** math.floor(math.log10(most)) > 4 else 2)
    ticks = [step * count for count in range(int(most / step) + 1)]
    panel = Panel(number, title, [f"{loss:g} %" for loss in losses], 0, most, False, ticks)
    for mode, colour in COLOURS.items():
        points = [
            (panel.x(at), panel.y(of[loss, mode]["throughput"] / 1e6))
            for at, loss in enumerate(losses)
            if "throughput" in of.get((loss, mode), {})
        ]
        if points:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            panel.parts.append(f'<path fill="none" stroke="{colour}" stroke-width="2" d="M{path}"/>')
            panel.parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in points]
    return panel


def drawing(rows: list[dict[str, str]]) -> str:
    """SVG: a panel a number of ranks, and one of the link that loses."""
    panels: list[Panel] = []
    measured = medians(rows, "congestion")
    times = [1e3 * numbers[name] for numbers in measured.values() for name in ("p50", "p99") if name in numbers]
    for ranks in sorted({ranks for ranks, _, _ in measured}):
        of = {key[1:]: numbers for key, numbers in measured.items() if key[0] == ranks}
        panels.append(span(len(panels), f"{ranks} ranks: all-reduce, ms", of, 0.8 * min(times), 1.2 * max(times)))
    measured = medians(rows, "gray")
    for ranks in sorted({ranks for ranks, _, _ in measured}):
        of = {key[1:]: numbers for key, numbers in measured.items() if key[0] == ranks}
        panels.append(lines(len(panels), f"{ranks} ranks: Mbit/s of f32, by loss on one link", of))
    width, height = LEFT + max(1, len(panels)) * (WIDTH + GAP), TOP + HEIGHT + 36
    title = "All-reduce beside bursts of neighbours, and over a link that loses"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#333" role="img">',
        f"<title>{title}</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        text(LEFT, 24, title, 'font-size="16" font-weight="bold"'),
    ]
    at = LEFT
    for mode, colour in COLOURS.items():
        parts.append(f'<circle cx="{at + 4}" cy="44" r="4" fill="{colour}"/>' + text(at + 14, 48, mode, ""))
        at += 40 + 7 * len(mode)
    parts.append(text(at, 48, "filled: p50, hollow: p99", 'fill="#666"'))
    for panel in panels:
        parts += panel.parts
    return "\n".join([*parts, "</svg>"]) + "\n"
