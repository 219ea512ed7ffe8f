#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of its gradients a model can lose without taking longer (MLT's figures 3, 4 and 18, tables 1, 2 and 5), on small models, by `profiles.profile`.

    python3 loss_bounds.py convolutional                     on the digits, or --data FOLDER for Fashion-MNIST
    python3 loss_bounds.py transformer --text FILE

Into OUT: bounds-MODEL.csv, a line for each training; bounds-MODEL-{loss,layers,magnitudes,curves}.svg. With --state FILE the same command goes on where it was interrupted.

    python3 loss_bounds.py convolutional --of-final 0.98     MLT's table 2; once more with --data

loses packets at random, nothing else, until that share of what exact training ends at: lost-MODEL.csv.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import training
from plot import Line, chart
from profiles import Profile, profile

FIGURES = Path(__file__).resolve().parents[2] / "docs/figures"
#: So many batches, drawn from the data as other experiments draw them; each worker takes one a round.
BATCHES = 400
#: Rounds, and looks at the held-out data: the least that exact training settles in.
ROUNDS = {"convolutional": (120, 4), "transformer": (200, 5)}
#: MLT drops of the front, the middle and the back fifth of the layers. A net of four layers has no fifths.
PARTS = 5
#: Rounds, and looks, with --of-final: MLT takes 500, after which accuracy hardly grows.
LONG = (400, 5)
#: Looks whose mean is what exact training ends at.
LAST = 10


def by_rate(found: Profile, wanted: Callable[[str], bool], title: str) -> str:
    """Rounds until the target against the rate (MLT's figures 3 and 4)."""
    lines = []
    for name, runs in found.runs.items():
        if wanted(name):
            rounds = {0.0: found.exact, **runs}
            points = [(rate, float(np.mean(some))) for rate, some in rounds.items()]
            spread = [float(np.std(some, ddof=min(1, len(some) - 1))) if np.isfinite(some).all() else 0.0 for some in rounds.values()]
            lines.append(Line(name, points, spread))
    return chart(title, "share trimmed, lost or zeroed", "rounds to the target", lines, even_x=True, y_from=0.0, percent_x=True)


def curves(found: Profile, unit: str, title: str) -> str:
    """Quality against rounds by what is lost (MLT's figure 18): the mean of the seeds, as long as all of them train."""
    lines = []
    for name in ("exact", "lost", trimmed(found)):
        for rate, of_seeds in found.curves[name].items():
            length = min(map(len, of_seeds))
            quality = np.array([[one for _, one in curve[:length]] for curve in of_seeds]).mean(0)
            rounds = [at for at, _ in of_seeds[0][:length]]
            # The beginnings are alike, and would leave no room for what is not.
            shown = [(float(at), float(one)) for at, one in zip(rounds, quality, strict=True)][length // 5 :]
            lines.append(Line(name if name == "exact" else f"{name}, {rate:.0%}", shown, dashed=name == "lost"))
    return chart(title, "rounds", unit, lines)


def trimmed(found: Profile) -> str:
    """What the profile calls packets that are trimmed."""
    return next(name for name in found.runs if name.startswith("trimmed"))


def write(found: Profile, path: Path) -> None:
    """A line for each training."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("what", "rate", "seed", "rounds"))
        for name, runs in {"exact": {0.0: found.exact}, **found.runs}.items():
            for rate, rounds in runs.items():
                writer.writerows((name, rate, seed, f"{one:g}") for seed, one in enumerate(rounds))


def added(found: Profile) -> str:
    """Rounds that losses add to each seed's own, and what the seeds' mean of them deviates by."""
    lines = [f"exact {found.exact}"]
    for rate, rounds in found.runs["lost"].items():
        more = np.subtract(rounds, found.exact)
        lines.append(f"{rate:.1%} lost: {more.tolist()}, mean {more.mean():+.1f} ± {more.std(ddof=1) / len(more) ** 0.5:.1f}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=ROUNDS)
    parser.add_argument("--data", type=Path, help="folder of Fashion-MNIST (Debian: /usr/share/datasets/fashion-mnist)")
    parser.add_argument("--text", type=Path, default=training.TEXT, help="a text for the transformer")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.01, 0.1, 0.3, 0.5])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--of-final", type=float, metavar="SHARE", help="random losses alone, until SHARE of what exact training ends at")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--out", type=Path, default=FIGURES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = training.transformer(options.text) if options.model == "transformer" else training.convolutional(options.data)
    rounds, look_every = LONG if options.of_final else ROUNDS[options.model]
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    profiled = partial(
        profile,
        task.make(),
        [task.draw(generator) for _ in range(BATCHES)],
        loss=task.loss,
        quality=task.quality,
        optimiser=lambda parameters: torch.optim.SGD(parameters, lr=task.rate, momentum=0.9),
        workers=options.workers,
        rounds=options.rounds or rounds,
        look_every=look_every,
        rates=options.rates,
        parts=PARTS,
        seeds=options.seeds,
    )
    name = f"{task.name}{'-fashion' if options.data else ''}"
    options.out.mkdir(parents=True, exist_ok=True)
    if options.of_final:
        exact = profiled(what=()).curves["exact"][0.0]
        final = float(np.mean([[quality for _, quality in curve[-LAST:]] for curve in exact]))
        sys.stdout.write(f"exact training ends at {final:.4f}\n")
        found = profiled(what=("lost",), target=options.of_final * final, state=options.state)
        found.model = task.name
        write(found, options.out / f"lost-{name}.csv")
        sys.stdout.write(found.table() + added(found))
        return
    found = profiled(state=options.state)
    found.model = task.name
    name = f"bounds-{name}"
    write(found, options.out / f"{name}.csv")
    title = f"{task.name}, {options.seeds} seeds"
    figures = {
        "loss": by_rate(found, lambda what: what in ("lost", trimmed(found)), f"Packets trimmed and lost: {title}"),
        "layers": by_rate(found, lambda what: what.startswith("layers"), f"Layers lost: {title}"),
        "magnitudes": by_rate(found, lambda what: what.endswith("zeroed"), f"Magnitudes zeroed: {title}"),
        "curves": curves(found, task.unit, f"Trimmed and lost: {title}"),
    }
    for what, text in figures.items():
        (options.out / f"{name}-{what}.svg").write_text(text)
    sys.stdout.write(found.table())
    for nth, part in enumerate(dict.fromkeys(part for _, _, part in found.layers)):
        sys.stdout.write(f"layers {nth + 1}/{found.parts}: {', '.join(layer for layer, _, of in found.layers if of == part)}\n")


if __name__ == "__main__":
    main()
