# SPDX-License-Identifier: Apache-2.0
"""Line charts as SVG, without any library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 210, 40, 55
#: Okabe and Ito's colours, which people with other colour vision tell apart.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d00", "#7f7f7f")


@dataclass(frozen=True)
class Line:
    """Points in order of x; `spread` is as much up and down around each. Points without a number are left out."""

    name: str
    points: Sequence[tuple[float, float]]
    spread: Sequence[float] = ()
    dashed: bool = False


def _ticks(low: float, high: float) -> list[float]:
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    return [step * nth for nth in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def chart(title: str, x_label: str, y_label: str, lines: Sequence[Line], *, even_x: bool = False, y_from: float | None = None, percent_x: bool = False) -> str:
    """The text of an SVG file. `even_x`: each x gets the same room, whatever its value."""
    good = [
        (line, [(x, y, line.spread[n] if n < len(line.spread) else 0.0) for n, (x, y) in enumerate(line.points) if math.isfinite(y)])
        for line in lines
    ]
    xs = sorted({x for _, points in good for x, _, _ in points}) or [0.0, 1.0]
    ends = [end for _, points in good for _, y, spread in points for end in (y - spread, y + spread)] or [0.0, 1.0]
    low = min(ends) if y_from is None else y_from
    high = max(*ends, low + 1e-9)
    high += (high - low) * 0.05

    def across(x: float) -> float:
        share = xs.index(x) / max(len(xs) - 1, 1) if even_x else (x - xs[0]) / max(xs[-1] - xs[0], 1e-12)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def down(y: float) -> float:
        return _HEIGHT - _BOTTOM - (min(max(y, low), high) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="14" font-weight="bold">{escape(title)}</text>',
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 14}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text transform="translate(16 {(_TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>',
    ]
    for y in _ticks(low, high):
        out.append(f'<path d="M{_LEFT} {down(y):.1f}H{right}" stroke="#ddd"/>')
        out.append(f'<text x="{_LEFT - 6}" y="{down(y) + 4:.1f}" text-anchor="end">{y:.4g}</text>')
    for x in xs if even_x else _ticks(xs[0], max(xs[-1], xs[0] + 1e-9)):
        place = across(x)
        text = f"{x * 100:.4g} %" if percent_x else f"{x:.4g}"
        out.append(f'<path d="M{place:.1f} {bottom}v4" stroke="#444"/><text x="{place:.1f}" y="{bottom + 18}" text-anchor="middle">{text}</text>')
    out.append(f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#444"/>')
    for nth, (line, points) in enumerate(good):
        colour = _COLOURS[nth % len(_COLOURS)]
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        for x, y, spread in points:
            if spread > 0.0:
                out.append(f'<path d="M{across(x):.1f} {down(y - spread):.1f}V{down(y + spread):.1f}" stroke="{colour}" opacity="0.5"/>')
            if len(points) <= 20:
                out.append(f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="3" fill="{colour}"/>')
        path = "L".join(f"{across(x):.1f} {down(y):.1f}" for x, y, _ in points)
        if path:
            out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
        height = _TOP + 10 + nth * 18
        out.append(f'<path d="M{right + 12} {height}h22" stroke="{colour}" stroke-width="2"{dash}/><text x="{right + 40}" y="{height + 4}">{escape(line.name)}</text>')
    return "\n".join([*out, "</svg>", ""])
