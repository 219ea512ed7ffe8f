# SPDX-License-Identifier: Apache-2.0
"""What of its gradients a model can do without: rounds to a target quality against the share that is trimmed or lost (MLT, §3)."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from layers import Layer, gradient_of, layers_of, order_of, set_gradient
from plot import Line, chart
from progress import Progress
from torch import nn

from trimwire.torch import Simulation

#: Looks whose mean counts: one alone is noise.
_SMOOTH = 3
#: The share of the rounds in which exact training has to reach the target; what is lost may take the rest.
_ROOM = 0.75
#: A part's sensitivity is at least this share of the largest: where none was seen, there may be some.
_LEAST = 0.05
_MAGNITUDES = ("smallest", "middle", "largest")
_ROW = 2**15
#: Planes of what is not trimmed.
_SENT = 9


@dataclass(frozen=True)
class Condition:
    """What happens to every worker's gradient: `trimmed` or `lost` packets of all of it, or of a part (`layers 2/4`) or magnitude (`largest fifth`)."""

    name: str
    rate: float

    @property
    def key(self) -> str:
        return f"{self.name} @ {self.rate:g}"


EXACT = Condition("exact", 0.0)


@dataclass
class Profile:
    """What `profile` has found. Rounds are those until the target, one a seed; infinite where it was not reached.

    `curves` has (round, quality) of every look: by what happened and rate, one a seed. Those of `exact` (rate 0) are whole unless a target was given, others end where it is reached.
    """

    model: str
    target: float
    rounds: int
    look_every: int
    slack: float
    rates: list[float]
    exact: list[float]
    runs: dict[str, dict[float, list[float]]]
    layers: list[tuple[str, int, int]]
    parts: int
    low_energy: float | None
    curves: dict[str, dict[float, list[list[tuple[int, float]]]]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def tolerance(self, name: str) -> float:
        """The largest rate of those tried up to which the target takes no more rounds than exactly, within `slack` and a look; 0 if there is none."""
        most = _mean(self.exact) * (1.0 + self.slack) + self.look_every
        tolerated = itertools.takewhile(lambda rate: _mean(self.runs[name][rate]) <= most, self.rates)
        return max(tolerated, default=0.0)

    def sensitivities(self) -> list[float]:
        """Of each layer: what is added to the rounds, in shares of them, when all of its gradient is lost; what was measured of its part, by parameters.

        Least squares through the origin over the rates; rounds that were not reached count as one more than were tried. At least a twentieth of the largest.
        """
        if not all(self._part(part) in self.runs for part in range(self.parts)):
            raise ValueError("sensitivities: the profile was made without 'layers'")
        exact = _mean(self.exact)
        slopes = []
        for part in range(self.parts):
            by_rate = self.runs[self._part(part)]
            added = {rate: _mean([min(rounds, self.rounds + 1) for rounds in by_rate[rate]]) / exact - 1.0 for rate in self.rates}
            slopes.append(sum(rate * added[rate] for rate in self.rates) / sum(rate * rate for rate in self.rates))
        largest = max(*slopes, 0.0) if len(slopes) > 1 else slopes[0]
        slopes = [max(slope, largest * _LEAST) if largest > 0.0 else 1.0 for slope in slopes]
        sizes = [sum(size for _, size, part in self.layers if part == wanted) for wanted in range(self.parts)]
        return [slopes[part] * size / sizes[part] for _, size, part in self.layers]

    def _part(self, part: int) -> str:
        return part_name(part, self.parts)

    def table(self) -> str:
        """Rounds until the target by what happens and how much of it, with the spread (standard deviation) over seeds, and what is tolerated."""
        width = max(len(name) for name in [*self.runs, "exact"]) + 2
        head = "".join(f"{rate:>14.2%}" for rate in self.rates)
        lines = [
            f"{self.model}: quality {self.target:.4g} after so many rounds of at most {self.rounds}; {len(self.exact)} seeds",
            f"{'':{width}}{'exact':>14}{head}{'tolerated':>12}",
        ]
        for name, by_rate in self.runs.items():
            cells = "".join(f"{_cell(by_rate[rate]):>14}" for rate in self.rates)
            lines.append(f"{name:{width}}{_cell(self.exact):>14}{cells}{self.tolerance(name):>12.2%}")
        return "\n".join(lines) + "\n"

    def svg(self) -> str:
        """Rounds until the target against the rate, a line for each thing that happens; what was never reached is left out.

        Raises:
            ImportError: matplotlib is not installed.
        """
        rates = [0.0, *self.rates]
        lines = []
        for name, by_rate in self.runs.items():
            all_ = [self.exact, *(by_rate[rate] for rate in self.rates)]
            points = [(rate, _mean(rounds)) for rate, rounds in zip(rates, all_, strict=True)]
            lines.append(Line(name, points, [_deviation(rounds) for rounds in all_]))
        title = f"{self.model}: rounds to quality {self.target:.4g}"
        return chart(title, "share trimmed or lost", "rounds", lines, even_x=True, y_from=0.0, percent_x=True)

    def model_file(self, *, load: float = 1.0, line_rate: str = "100Gbps", buffer: str = "1MiB", classes: int = 4) -> str:
        """The layers file that `trimwire-lab plan thresholds` reads. The arguments are the port's, and guesses until they are measured."""
        lines = [
            "# Measured: layers and their sensitivities. Guessed: what the port has to carry (load, line_rate, buffer).",
            "version: 1",
            f"model: {json.dumps(self.model)}",
            f"load: {load:g}",
            f"line_rate: {line_rate}",
            f"buffer: {buffer}",
            f"classes: {min(classes, len(self.layers))}",
        ]
        if self.low_energy is not None:
            lines.append(f"less_important: {{ share: 50%, energy: {self.low_energy:.1%} }}")
        lines.append("layers:")
        for (name, size, _), sensitivity in zip(self.layers, self.sensitivities(), strict=True):
            lines.append(f"  - {{ name: {json.dumps(name)}, parameters: {size}, sensitivity: {max(sensitivity, 1e-9):.6g} }}")
        return "\n".join(lines) + "\n"

    def save(self, folder: str | Path) -> None:
        """`table.txt`, `rounds.svg` and, where layers were looked at, `layers.yaml` into a folder. Without matplotlib there is a warning and no plot."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "table.txt").write_text(self.table())
        try:
            (folder / "rounds.svg").write_text(self.svg())
        except ImportError as error:
            warnings.warn(f"{folder / 'rounds.svg'} is not written: {error}", stacklevel=2)
        if self._part(0) in self.runs:
            (folder / "layers.yaml").write_text(self.model_file())


def part_name(part: int, parts: int) -> str:
    return f"layers {part + 1}/{parts} lost"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    mean = _mean(values)
    if len(values) < 2 or not math.isfinite(mean):
        return 0.0
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _cell(rounds: Sequence[float]) -> str:
    missed = sum(not math.isfinite(one) for one in rounds)
    if missed:
        return f"{missed}/{len(rounds)} never"
    return f"{_mean(rounds):.0f} ± {_deviation(rounds):.0f}"


def _cross_entropy(model: nn.Module, batch: Any) -> torch.Tensor:
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs), targets)


def _sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def reached(curve: Sequence[tuple[int, float]], target: float) -> float:
    """The round after which the mean of the last looks is at the target; infinite if none is."""
    for end in range(_SMOOTH, len(curve) + 1):
        if _mean([quality for _, quality in curve[end - _SMOOTH : end]]) >= target:
            return curve[end - 1][0]
    return math.inf


@dataclass
class _Job:
    """Training on one process as `workers` would do it together."""

    model: nn.Module
    order: list[str]
    batches: list[Any]
    loss: Callable[[nn.Module, Any], torch.Tensor]
    quality: Callable[[nn.Module], float]
    optimiser: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    workers: int
    rounds: int
    look_every: int
    planes: int
    parts: int

    def train(self, condition: Condition, seed: int, target: float | None, energies: list[float]) -> list[tuple[int, float]]:
        """Quality after rounds; ends early where the target is reached."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = copy.deepcopy(self.model)
            model.train()
            layers = layers_of(model, self.order)
            optimiser = self.optimiser([parameter for parameter in model.parameters() if parameter.requires_grad])
            order = torch.Generator().manual_seed(seed)
            curve: list[tuple[int, float]] = []
            for round_ in range(1, self.rounds + 1):
                total = torch.zeros(sum(layer.size for layer in layers))
                for worker in range(self.workers):
                    batch = self.batches[int(torch.randint(len(self.batches), (1,), generator=order))]
                    model.zero_grad(set_to_none=True)
                    self.loss(model, batch).backward()
                    message = round_ * self.workers + worker
                    total += self._suffer(gradient_of(layers), condition, layers, seed, message)
                mean = total / self.workers
                if condition == EXACT and round_ * 4 % self.rounds < 4:
                    energies += _low_half(mean)
                set_gradient(layers, mean)
                optimiser.step()
                if round_ % self.look_every == 0:
                    model.eval()
                    with torch.no_grad():
                        found = self.quality(model)
                    model.train()
                    curve.append((round_, found if math.isfinite(found) else -math.inf))
                    if target is not None and math.isfinite(reached(curve, target)):
                        break
            return curve

    def _suffer(self, gradient: torch.Tensor, condition: Condition, layers: list[Layer], seed: int, message: int) -> torch.Tensor:
        rate = condition.rate
        if condition == EXACT:
            return gradient
        if condition.name == cut_name(self.planes):
            return Simulation(trim_rate=rate, planes=self.planes, sent_planes=_SENT, seed=seed).carry(gradient, message, 0, 0)
        lossy = Simulation(trim_rate=0.0, drop_rate=rate, sent_planes=_SENT, seed=seed)
        if condition.name == "lost":
            return lossy.carry(gradient, message, 0, 0)
        for part in range(self.parts):
            if condition.name == part_name(part, self.parts):
                start = sum(layer.size for nth, layer in enumerate(layers) if _part_of(nth, len(layers), self.parts) < part)
                size = sum(layer.size for nth, layer in enumerate(layers) if _part_of(nth, len(layers), self.parts) == part)
                # Contiguous: layers are in order.
                got = gradient.clone()
                got[start : start + size] = lossy.carry(gradient[start : start + size].contiguous(), message, 0, 0)
                return got
        for nth, name in enumerate(_MAGNITUDES):
            if condition.name == magnitude_name(name):
                size = gradient.numel()
                order = gradient.abs().argsort()
                # MLT, figure 4b: of the smallest, the middle and the largest fifth some are set to zero.
                fifth = order[[0, size * 2 // 5, size - size // 5][nth] :][: size // 5]
                chance = torch.rand(fifth.numel(), generator=torch.Generator().manual_seed(seed * 1_000_003 + message))
                gradient[fifth[chance < rate]] = 0.0
                return gradient
        raise ValueError(f"condition: {condition.name}")


def cut_name(planes: int) -> str:
    return f"trimmed to {planes} plane{'s' if planes > 1 else ''}"


def magnitude_name(name: str) -> str:
    return f"{name} fifth zeroed"


def _part_of(layer: int, layers: int, parts: int) -> int:
    return layer * parts // layers


def _low_half(gradient: torch.Tensor) -> list[float]:
    """What the half of the rows with less energy has of it; nothing of gradients with few rows."""
    rows = gradient[: gradient.numel() // _ROW * _ROW].view(-1, _ROW)
    if len(rows) < 4:
        return []
    energy = rows.double().square().sum(1).sort().values
    total = float(energy.sum())
    return [float(energy[: len(energy) // 2].sum()) / total] if total > 0.0 else []


def profile(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    loss: Callable[[nn.Module, Any], torch.Tensor] = _cross_entropy,
    quality: Callable[[nn.Module], float] | None = None,
    optimiser: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = _sgd,
    workers: int = 4,
    rounds: int = 200,
    look_every: int = 5,
    rates: Sequence[float] = (0.01, 0.05, 0.2, 0.5),
    what: Sequence[str] = ("trimmed", "lost", "layers", "magnitudes"),
    planes: int = 1,
    parts: int = 4,
    seeds: int = 3,
    target: float | None = None,
    slack: float = 0.05,
    state: str | Path | None = None,
    progress: bool = True,
) -> Profile:
    """What trims and losses `model` tolerates when `workers` train it together, found by training copies of it in this process, without any network.

    Each worker's gradient of each round suffers by itself; the mean of them is what the optimiser gets. Of `what`: `trimmed` has a share of the packets (the `rates`) trimmed
    to `planes`, `lost` loses them, `layers` loses packets of one of `parts` groups of layers only, `magnitudes` sets a share of the smallest, middle or largest
    fifth of the coordinates to zero (MLT, figures 3 and 4). The target is the quality that exact training reaches within three quarters of `rounds` with every
    seed, unless it is given.

    `loader` gives batches, all of which are kept in memory; `loss(model, batch)` is cross-entropy of (inputs, targets) by default. `quality(model)` is better when
    higher; by default it is minus the mean loss of the last fifth of the batches, which are not trained on. Every copy starts with the model's weights; seeds differ in the
    order of batches and in what is trimmed.

    With `state`, a file, what is done is kept: the same call goes on after an interruption. One of another call is refused (ValueError).
    """
    batches = list(loader)
    if quality is None:
        held_out = max(len(batches) // 5, 1)
        batches, rest = batches[:-held_out], batches[-held_out:]

        def quality(trained: nn.Module) -> float:
            return -_mean([float(loss(trained, batch)) for batch in rest])

    if not batches:
        raise ValueError("loader: not enough batches: one to train on is needed, and without `quality` one more")
    rates = sorted(rates)
    if not rates or not all(0.0 < rate <= 1.0 for rate in rates):
        raise ValueError(f"rates: {rates}; shares above 0 and up to 1")
    for name, value in (("workers", workers), ("rounds", rounds), ("look_every", look_every), ("parts", parts), ("seeds", seeds)):
        if value < 1:
            raise ValueError(f"{name}: {value}; at least 1")
    if rounds < look_every * _SMOOTH / _ROOM:
        raise ValueError(f"rounds: {rounds}; at least {math.ceil(look_every * _SMOOTH / _ROOM)}, four looks' worth")
    # A forward pass may change running statistics: a copy's.
    scratch = copy.deepcopy(model)
    order = order_of(scratch, lambda: loss(scratch, batches[0]))
    layers = layers_of(model, order)
    if not layers:
        raise ValueError("model: no parameter of it learns")
    parts = min(parts, len(layers))
    job = _Job(model, order, batches, loss, quality, optimiser, workers, rounds, look_every, planes, parts)
    names: list[str] = []
    for kind in what:
        if kind == "trimmed":
            names.append(cut_name(planes))
        elif kind == "lost":
            names.append("lost")
        elif kind == "layers":
            names += [part_name(part, parts) for part in range(parts)]
        elif kind == "magnitudes":
            names += [magnitude_name(name) for name in _MAGNITUDES]
        else:
            raise ValueError(f"what: '{kind}'; valid are 'trimmed', 'lost', 'layers' and 'magnitudes'")
    settings = {"rounds": rounds, "look_every": look_every, "workers": workers, "planes": planes, "parts": parts, "target": target}
    kept = _State(state, {**settings, "model": _fingerprint(model), "batches": len(batches)})
    energies: list[float] = []

    with Progress(seeds * (1 + len(names) * len(rates)), "profile", show=progress) as bar:

        def run(condition: Condition, seed: int, aim: float | None) -> list[tuple[int, float]]:
            key = f"{condition.key}, seed {seed}"
            if key not in kept.runs:
                seen: list[float] = []
                kept.add(key, job.train(condition, seed, aim, seen), seen)
            energies.extend(kept.energies[key])
            bar.step(key)
            return kept.runs[key]

        exact = [run(EXACT, seed, target) for seed in range(seeds)]
        if target is None:
            soon = int(rounds * _ROOM) // look_every
            target = min(
                max(_mean([found for _, found in curve[end - _SMOOTH : end]]) for end in range(_SMOOTH, soon + 1)) for curve in exact
            )
        curves = {name: {rate: [run(Condition(name, rate), seed, target) for seed in range(seeds)] for rate in rates} for name in names}
    return Profile(
        model=type(model).__name__,
        target=target,
        rounds=rounds,
        look_every=look_every,
        slack=slack,
        rates=list(rates),
        exact=[reached(curve, target) for curve in exact],
        runs={name: {rate: [reached(curve, target) for curve in found] for rate, found in by_rate.items()} for name, by_rate in curves.items()},
        layers=[(layer.name, layer.size, _part_of(nth, len(layers), parts)) for nth, layer in enumerate(layers)],
        parts=parts,
        low_energy=_mean(energies) if energies else None,
        curves={EXACT.name: {0.0: exact}, **curves},
        settings=settings,
    )


def _fingerprint(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().to("cpu", torch.float64).numpy().tobytes())
    return digest.hexdigest()[:16]


class _State:
    """What is done of a profile, in a file that is always whole."""

    def __init__(self, path: str | Path | None, of: dict[str, Any]) -> None:
        self._path = None if path is None else Path(path)
        self._of = of
        self.runs: dict[str, list[tuple[int, float]]] = {}
        self.energies: dict[str, list[float]] = {}
        if self._path is None or not self._path.exists():
            return
        try:
            kept = json.loads(self._path.read_text())
            other = kept["of"]
            self.runs = {key: [(int(at), float(found)) for at, found in curve] for key, curve in kept["runs"].items()}
            self.energies = {key: [float(energy) for energy in kept["energies"][key]] for key in self.runs}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"state: {self._path} is no state of a profile: {error!r}") from None
        different = [f"{key} {other.get(key)} instead of {value}" for key, value in of.items() if other.get(key) != value]
        if different:
            raise ValueError(f"state: {self._path} is of another profile: {', '.join(different)}")

    def add(self, key: str, curve: list[tuple[int, float]], energies: list[float]) -> None:
        self.runs[key], self.energies[key] = curve, energies
        if self._path is not None:
            new = self._path.with_name(self._path.name + ".new")
            new.write_text(json.dumps({"of": self._of, "runs": self.runs, "energies": self.energies}))
            os.replace(new, self._path)
