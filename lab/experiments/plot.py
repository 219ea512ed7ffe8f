# SPDX-License-Identifier: Apache-2.0
"""Line charts as SVG, by matplotlib. Nothing else in the package needs it."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Okabe and Ito's colours, which people with other colour vision tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d00", "#7f7f7f")
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "trimwire", "font.family": "sans-serif", "font.size": 9.0, "axes.spines.top": False, "axes.spines.right": False}
#: Points are marked where there are no more than so many.
_MARKED = 20


@dataclass(frozen=True)
class Line:
    """Points in order of x; `spread` is as much up and down around each. Points without a number are left out."""

    name: str
    points: Sequence[tuple[float, float]]
    spread: Sequence[float] = ()
    dashed: bool = False


def panels(count: int, title: str, *, width: float = 7.5, height: float = 4.0) -> tuple[Any, list[Any]]:
    """A figure of so many axes, one below another, each `width` by `height` inches.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install matplotlib") from error
    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height * count), layout="constrained")
        figure.suptitle(title, fontsize=11, fontweight="bold")
        axes = [figure.add_subplot(count, 1, nth + 1) for nth in range(count)]
    for each in axes:
        each.grid(axis="y", color="#dddddd", linewidth=0.8)
        each.set_axisbelow(True)
    return figure, axes


def svg(figure: Any) -> str:
    """The text of an SVG file, the same for the same figure."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context(_STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def legend(axes: Any) -> None:
    """Beside the axes, so that it hides nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)


def chart(title: str, x_label: str, y_label: str, lines: Sequence[Line], *, even_x: bool = False, y_from: float | None = None, percent_x: bool = False) -> str:
    """The text of an SVG file. `even_x`: each x gets the same room, whatever its value.

    Raises:
        ImportError: matplotlib is not installed.
    """
    figure, (axes,) = panels(1, title)
    good = [[(x, y, line.spread[n] if n < len(line.spread) else 0.0) for n, (x, y) in enumerate(line.points) if math.isfinite(y)] for line in lines]
    xs = sorted({x for points in good for x, _, _ in points})
    for nth, (line, points) in enumerate(zip(lines, good, strict=True)):
        axes.errorbar(
            [xs.index(x) if even_x else x for x, _, _ in points],
            [y for _, y, _ in points],
            yerr=[spread for _, _, spread in points] if any(spread for _, _, spread in points) else None,
            label=line.name,
            color=COLOURS[nth % len(COLOURS)],
            linestyle="--" if line.dashed else "-",
            linewidth=1.5,
            elinewidth=0.8,
            marker="o" if len(points) <= _MARKED else None,
            markersize=4,
        )
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if even_x:
        axes.set_xticks(range(len(xs)), [f"{x * 100:.4g} %" if percent_x else f"{x:.4g}" for x in xs])
    if y_from is not None:
        axes.set_ylim(bottom=y_from)
    legend(axes)
    return svg(figure)
