#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trimmable top-k against planes at the same bytes on the wire (HotNets'24, §5.2), in all-reduces of a ResNet and a VGG with batch norm.

    python3 top_k.py

Top-k goes in packets of entries (`entries.py`) with error feedback. Of the sums go all coordinates that any worker sent (`union`), or the largest again with the owner's
error feedback (`twice`). Bytes are those of packets with UDP's, IP's and Ethernet's headers, of a worker's message and of the sums' one.

A line of OUT/top-k-MODEL.csv for each training. The same command goes on where it was interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import accuracy
import entries
import numpy as np
import torch
import training

import trimwire
from trimwire.torch import Simulation

#: Ethernet, IPv4 and UDP in front of a packet; what a trim to the sign plane leaves of one with 1,376 coordinates.
HEADERS, TRIMMED = 42, 198
#: Shares of the sign plane's bytes; and of packets that are trimmed.
BUDGETS, RATES = {1.0: "one plane", 0.25: "a quarter plane"}, [0.0, 0.5]
PASSES = 5


def plane_bytes(planes: int | None, coordinates: int) -> int:
    """Of a message of so many planes; None: of all."""
    return sum(len(packet) + HEADERS for packet in trimwire.encode(np.ones(coordinates, np.float32), planes=planes))


@dataclass
class TopK:
    """What packets of the largest coordinates bring; k follows the bytes that the last messages took."""

    #: Bytes of a worker's message and of the sums' one together.
    budget: float
    #: Whether all coordinates of the sums go that any worker sent.
    union: bool
    trim_rate: float
    seed: int
    wire_bytes: float = field(default=0.0, repr=False)
    _k: dict[bool, float] = field(default_factory=dict, repr=False)
    _residuals: dict[int, torch.Tensor] = field(default_factory=dict, repr=False)
    _sent: float = field(default=0.0, repr=False)

    def forget(self) -> None:
        """All but k."""
        self._residuals.clear()
        self.wire_bytes = 0.0

    def carry(self, source: torch.Tensor, message: int, sender: int, receiver: int) -> torch.Tensor:
        sums = sender == training.WORKERS
        wanted = source + self._residuals.get(sender, 0.0)
        of = sums and not self.union
        k = self._k.setdefault(of, self.budget / 4)
        packets = list(entries.packets(wanted.numpy(), wanted.numel() if sums and self.union else min(round(k), wanted.numel())))
        whole = torch.from_numpy(entries.values(packets, wanted.numel()))
        self._residuals[sender] = wanted - whole
        size = float(sum(len(packet) + HEADERS for packet in packets))
        self.wire_bytes += size if sums else size / training.WORKERS
        if not self.union:
            self._k[of] = k * self.budget / 2 / size
        elif sums:
            self._k[of] = k * self.budget / (self._sent + size)
        self._sent = size
        if self.trim_rate == 0.0:
            return whole
        chance = np.random.default_rng((self.seed, message, sender))
        return torch.from_numpy(entries.values(packets, wanted.numel(), [TRIMMED if chance.random() < self.trim_rate else None for _ in packets]))


@dataclass
class Recorder:
    """Loses nothing, and keeps workers' gradients of some steps."""

    steps: tuple[int, ...]
    gradients: dict[int, list[torch.Tensor]] = field(default_factory=dict)

    def carry(self, source: torch.Tensor, message: int, sender: int, receiver: int) -> torch.Tensor:
        if sender < training.WORKERS and message // 2 in self.steps:
            self.gradients.setdefault(message // 2, []).append(source.clone())
        return source


def networks(coordinates: int) -> dict[tuple[str, float], Callable[[int], TopK | Simulation]]:
    """By seed: planes, and top-k of as many bytes."""
    plane = 2 * plane_bytes(1, coordinates)
    found: dict[tuple[str, float], Callable[[int], TopK | Simulation]] = {}
    for name, planes, decoding in (("one plane", 1, "unbiased"), ("one plane, mmse", 1, "mmse"), ("two planes", 2, "unbiased")):
        for rate in RATES if planes > 1 else RATES[:1]:
            found[name, rate] = lambda seed, planes=planes, rate=rate, decoding=decoding: Simulation(
                trim_rate=rate, sent_planes=planes, decoding=decoding, seed=seed
            )
    for share, of in BUDGETS.items():
        for union in (False, True):
            for rate in RATES if share == 1.0 else RATES[:1]:
                name = f"top-k, {'union' if union else 'twice'}, bytes of {of}"
                found[name, rate] = lambda seed, share=share, union=union, rate=rate: TopK(share * plane, union, rate, seed)
    return found


def errors(task: training.Task, coordinates: int) -> str:
    """NMSE of the mean of gradients of an exact training, and bytes: each step alone, without error feedback."""
    recorder = Recorder((0, 10, 39))
    training.train(task, 0, recorder, steps=40)
    lines = [f"| way | trimmed | bytes | {' | '.join(f'NMSE, step {step}' for step in recorder.steps)} |", "|---|---|---|---|---|---|"]
    for (way, rate), make in networks(coordinates).items():
        found = []
        for gradients in recorder.gradients.values():
            network, took = make(0), 0.0
            # k has to find its bytes.
            for attempt in range(PASSES if isinstance(network, TopK) else 1):
                if isinstance(network, TopK):
                    network.forget()
                sums = sum(network.carry(own, 2 * attempt, worker, 0) for worker, own in enumerate(gradients))
                mean = network.carry(sums / training.WORKERS, 2 * attempt + 1, training.WORKERS, 0)
                took = network.wire_bytes if isinstance(network, TopK) else 2 * plane_bytes(network.sent_planes, coordinates)
            truth = sum(gradients) / training.WORKERS
            found.append(f"{float((mean - truth).square().sum() / truth.square().sum()):.2g}")
        lines.append(f"| {way} | {rate:.0%} | {took:.0f} | {' | '.join(found)} |")
    return "\n".join(lines) + "\n"


def runs_of(coordinates: int) -> dict[tuple[str, float], accuracy.Run]:
    """Exact training, and one through each network."""
    runs = {("exact", 0.0): accuracy.runs_of("codecs")["exact", 0.0]}
    for way, make in networks(coordinates).items():
        runs[way] = lambda task, seed, make=make: training.kept(task, seed, make(seed))
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=("resnet", "vgg"), default=["resnet", "vgg"])
    parser.add_argument("--errors", action="store_true", help="errors of single steps only, without the trainings")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=accuracy.FIGURES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for model in options.models:
        task = getattr(training, model)()
        coordinates = sum(each.numel() for each in task.make().parameters())
        sys.stdout.write(f"\n{model}: {coordinates} coordinates\n\n{errors(task, coordinates)}\n")
        sys.stdout.flush()
        if options.errors:
            continue
        runs = runs_of(coordinates)
        rows = accuracy.measure(f"top-k-{model}", task, runs, options.seeds, options.out)
        sys.stdout.write(accuracy.table(rows, task.unit))
        for (way, rate), run in runs.items():
            if way.startswith("top-k"):
                sys.stdout.write(f"{way}, {rate:.0%} trimmed: {np.mean([run(task, seed).wire_bytes for seed in range(options.seeds)]):.0f} bytes a step\n")


if __name__ == "__main__":
    main()
