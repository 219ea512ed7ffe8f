# SPDX-License-Identifier: Apache-2.0
"""Models, data and the loop that the experiments share: data-parallel training of several workers in one process, whose gradients go through a simulated network."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

import trimwire
from trimwire.torch import Simulation

ROOT = Path(__file__).resolve().parents[2]
#: Where `kept` keeps what trainings gave.
KEPT = ROOT / "figures-results/training"
DIGITS = ROOT / "cli/data/digits.csv.gz"
#: A text that every Debian has.
TEXT = Path("/usr/share/common-licenses/GPL-3")
WORKERS = 4
#: Looks at the held-out data, the last of which are averaged.
LOOKS, LAST = 20, 3
#: The quality of a model whose loss is no number.
DIVERGED = -1e3


@dataclass
class Task:
    """A model to make, batches to draw, and a quality that is better when higher."""

    name: str
    steps: int
    rate: float
    make: Callable[[], nn.Module]
    draw: Callable[[torch.Generator], Any]
    loss: Callable[[nn.Module, Any], torch.Tensor]
    quality: Callable[[nn.Module], float]
    unit: str
    #: A hash of the data.
    data: str

    def of(self, steps: int | None) -> Task:
        """The same of so many steps, where that is said."""
        return replace(self, steps=steps or self.steps)


class Network(Protocol):
    """What gradients go through: a `Simulation`, or an experiment's own."""

    def carry(self, source: torch.Tensor, message: int, sender: int, receiver: int) -> torch.Tensor:
        """What `receiver` has of `sender`'s flat tensor; the sender of a mean is `WORKERS`."""
        ...


@dataclass
class Outcome:
    """What a training has come to."""

    curve: list[tuple[int, float]] = field(default_factory=list)
    #: Mean NMSE of the averaged gradients, and of the parameters where those are gathered through the network.
    gradient_nmse: float = 0.0
    parameter_nmse: float = 0.0
    #: Bytes that a worker sends and gets a step, where the network counts them.
    wire_bytes: float = 0.0

    @property
    def final(self) -> float:
        """Mean of the last looks."""
        return float(np.mean([quality for _, quality in self.curve[-LAST:]]))

    def steps_to(self, quality: float) -> float:
        """Steps until the mean of `LAST` looks is there; infinite where it never is."""
        for end in range(LAST, len(self.curve) + 1):
            if np.mean([found for _, found in self.curve[end - LAST : end]]) >= quality:
                return self.curve[end - 1][0]
        return math.inf


def _hash(*data: torch.Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in data:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _classification(
    name: str,
    pixels: torch.Tensor,
    labels: torch.Tensor,
    make: Callable[[], nn.Module],
    steps: int,
    rate: float,
    batch_size: int = 32,
    most_held_out: int = 2_000,
) -> Task:
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    pixels, labels = pixels[order], labels[order]
    held_out = min(len(labels) // 5, most_held_out)

    def draw(generator: torch.Generator) -> Any:
        batch = torch.randint(held_out, len(labels), (batch_size,), generator=generator)
        return pixels[batch], labels[batch]

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def quality(model: nn.Module) -> float:
        return float((model(pixels[:held_out]).argmax(1) == labels[:held_out]).float().mean())

    return Task(name, steps, rate, make, draw, loss, quality, "accuracy", _hash(pixels, labels))


def digits(path: Path = DIGITS) -> tuple[torch.Tensor, torch.Tensor]:
    """8 by 8 images of digits, and what they are."""
    with gzip.open(path, "rt") as text:
        table = np.loadtxt(text, delimiter=",", comments="#", dtype=np.float32)
    return torch.from_numpy(table[:, :64] / 16.0).view(-1, 1, 8, 8), torch.from_numpy(table[:, 64]).long()


def fashion(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Fashion-MNIST's training images (Debian: dataset-fashion-mnist), at half their size."""

    def read(name: str) -> np.ndarray:
        with gzip.open(folder / name) as file:
            content = file.read()
        _, dimensions = struct.unpack(">HxB", content[:4])
        shape = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
        return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)

    images = torch.from_numpy(read("train-images-idx3-ubyte.gz").astype(np.float32) / 255.0).unsqueeze(1)
    return nn.functional.avg_pool2d(images, 2), torch.from_numpy(read("train-labels-idx1-ubyte.gz").astype(np.int64))


def perceptron(data: Path = DIGITS) -> Task:
    def make() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))

    return _classification("perceptron", *digits(data), make, 200, 0.1)


def convolutional(folder: Path | None = None) -> Task:
    pixels, labels = digits() if folder is None else fashion(folder)
    side = pixels.shape[-1] // 2

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(32 * side * side, 128), nn.ReLU(), nn.Linear(128, 10),
        )  # fmt: skip

    return _classification("convolutional", pixels, labels, make, 200, 0.05)


def textures(count: int = 6_000, classes: int = 10, noise: float = 0.35) -> tuple[torch.Tensor, torch.Tensor]:
    """Made images of 32 by 32 pixels in three colours, always the same, and their classes.

    A class is two waves of its own lengths, directions and colours. An image has them in a disc of any size and place, each at any phase, up to 15 % longer or shorter, turned
    by up to 0.2, in colours that are off by 0.6 of the classes' own spread; around the disc is a wave of no class, and on everything noise.
    """
    generator = torch.Generator().manual_seed(24)

    def uniform(least: float, most: float, *shape: int) -> torch.Tensor:
        return least + (most - least) * torch.rand(*shape, generator=generator)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    y, x = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")

    def waves(periods: torch.Tensor, angles: torch.Tensor, colours: torch.Tensor) -> torch.Tensor:
        """Sums over the second axis, in three colours."""
        periods, angles = periods[..., None, None], angles[..., None, None]
        phases = uniform(0, 2 * math.pi, *periods.shape)
        height = torch.sin(math.pi * periods * (x * torch.cos(angles) + y * torch.sin(angles)) + phases)
        return (height[:, :, None] * colours[..., None, None]).sum(1)

    periods, angles, colours = uniform(2, 7, classes, 2), uniform(0, math.pi, classes, 2), 0.5 * normal(classes, 2, 3)
    labels = torch.arange(count) % classes
    inner = waves(
        periods[labels] * uniform(0.85, 1.15, count, 2), angles[labels] + uniform(-0.2, 0.2, count, 2), colours[labels] + 0.3 * normal(count, 2, 3)
    )
    outer = waves(uniform(2, 7, count, 1), uniform(0, math.pi, count, 1), 0.5 * normal(count, 1, 3))
    radius, left, top = uniform(0.35, 0.7, count, 1, 1, 1), uniform(-0.4, 0.4, count, 1, 1, 1), uniform(-0.4, 0.4, count, 1, 1, 1)
    disc = (x - left) ** 2 + (y - top) ** 2 < radius**2
    return torch.where(disc, inner, outer) + noise * normal(count, 3, 32, 32), labels


class _Residual(nn.Module):
    """Two convolutions beside what goes past them (ResNet's basic block)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.both = nn.Sequential(*_convolution(inputs, outputs, stride), *_convolution(outputs, outputs)[:-1])
        self.past = nn.Identity() if inputs == outputs else nn.Sequential(*_convolution(inputs, outputs, stride, 1)[:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.both(x) + self.past(x))


def _convolution(inputs: int, outputs: int, stride: int = 1, size: int = 3) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def resnet() -> Task:
    """ResNet-8 of CIFAR's kind, but that its first convolution halves images: widths 16, 32 and 64, 78 thousand parameters."""

    def make() -> nn.Module:
        blocks = (_Residual(16, 16, 1), _Residual(16, 32, 2), _Residual(32, 64, 2))
        return nn.Sequential(*_convolution(3, 16, 2), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    return _classification("resnet", *textures(), make, 300, 0.1, batch_size=8, most_held_out=500)


def vgg() -> Task:
    """Six convolutions with batch norm and four halvings, as VGG has them: 550 thousand parameters."""

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for widths in ((3, 16), (16, 32), (32, 64, 128), (128, 128, 256)):
            for inputs, outputs in pairwise(widths):
                layers += _convolution(inputs, outputs)
            layers.append(nn.MaxPool2d(2))
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 4, 10))

    return _classification("vgg", *textures(), make, 200, 0.005, batch_size=8, most_held_out=500)


class _Transformer(nn.Module):
    """The next byte from those before it."""

    def __init__(self, context: int = 48, width: int = 64) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(128, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.tokens(text) + self.places.weight[: text.shape[1]]
        return self.head(self.norm(self.blocks(x, mask=self.mask)))


def transformer(path: Path = TEXT) -> Task:
    context = 48
    text = torch.from_numpy(np.frombuffer(path.read_bytes(), dtype=np.uint8).astype(np.int64)).clamp(max=127)
    split = len(text) * 9 // 10

    def windows(starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        both = torch.stack([text[start : start + context + 1] for start in starts.tolist()])
        return both[:, :-1], both[:, 1:]

    def draw(generator: torch.Generator) -> Any:
        return windows(torch.randint(0, split - context - 1, (8,), generator=generator))

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    held_out = windows(torch.arange(split, len(text) - context - 1, context))

    def quality(model: nn.Module) -> float:
        return -float(loss(model, held_out))

    return Task("transformer", 300, 0.2, _Transformer, draw, loss, quality, "minus the loss", _hash(text))


def _square(values: torch.Tensor) -> float:
    return float(values.double().square().sum())


def train(
    task: Task,
    seed: int,
    network: Network | None = None,
    *,
    feedback: bool = False,
    parameters: Simulation | None = None,
    steps: int | None = None,
) -> Outcome:
    """Trains with `WORKERS` workers, whose gradients go through `network` to be summed, and their mean on its way back, the same for all.

    `feedback`: what was trimmed of a worker's gradient is added to its next one. `parameters`: a network that every forward pass's parameters go through, as in FSDP's
    all-gather; what the optimiser steps stays exact.
    """
    steps = steps or task.steps
    torch.manual_seed(seed)
    model = task.make()
    learnt = list(model.parameters())
    optimiser = torch.optim.SGD(learnt, lr=task.rate, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    generator = torch.Generator().manual_seed(1_000 + seed)
    residuals = [torch.zeros(sum(parameter.numel() for parameter in learnt)) for _ in range(WORKERS)]
    outcome, errors, parameter_errors = Outcome(), [], []
    for step in range(steps):
        message = 2 * step
        exact = nn.utils.parameters_to_vector(learnt).detach().clone()
        if parameters is not None:
            gathered = parameters.carry(exact, step, WORKERS, 0)
            parameter_errors.append(_square(gathered - exact) / _square(exact))
            nn.utils.vector_to_parameters(gathered, learnt)
        sums, truth = torch.zeros_like(exact), torch.zeros_like(exact)
        for worker in range(WORKERS):
            optimiser.zero_grad()
            task.loss(model, task.draw(generator)).backward()
            own = torch.cat([parameter.grad.reshape(-1) for parameter in learnt])
            truth += own
            if network is not None:
                wanted = own + residuals[worker] if feedback else own
                own = network.carry(wanted, message, worker, 0)
                if feedback:
                    residuals[worker] = wanted - own
            sums += own
        mean = sums / WORKERS
        if network is not None:
            mean = network.carry(mean, message + 1, WORKERS, 0)
        energy = _square(truth / WORKERS)
        errors.append(_square(mean - truth / WORKERS) / max(energy, 1e-30))
        if parameters is not None:
            nn.utils.vector_to_parameters(exact, learnt)
        start = 0
        for parameter in learnt:
            parameter.grad = mean[start : start + parameter.numel()].view_as(parameter).clone()
            start += parameter.numel()
        optimiser.step()
        schedule.step()
        if (step + 1) % (steps // LOOKS) == 0:
            model.eval()
            with torch.no_grad():
                found = task.quality(model)
            model.train()
            outcome.curve.append((step + 1, found if math.isfinite(found) else DIVERGED))
    outcome.gradient_nmse = float(np.mean(errors))
    outcome.wire_bytes = float(getattr(network, "wire_bytes", 0.0)) / steps
    outcome.parameter_nmse = float(np.mean(parameter_errors)) if parameter_errors else 0.0
    return outcome


def kept(task: Task, seed: int, network: Network | None = None, *, feedback: bool = False, parameters: Simulation | None = None) -> Outcome:
    """`train`, or what it gave when it was called with the same arguments, data and source of this file: an interrupted experiment goes on."""
    settings = {"task": task.name, "data": task.data, "steps": task.steps, "rate": task.rate, "workers": WORKERS, "seed": seed}
    settings |= {"network": repr(network), "feedback": feedback, "parameters": repr(parameters), "trimwire": trimwire.__version__}
    key = hashlib.sha256(json.dumps(settings).encode() + Path(__file__).read_bytes()).hexdigest()[:16]
    path = KEPT / f"{task.name}-{key}.json"
    if path.exists():
        return Outcome(**json.loads(path.read_text())["outcome"])
    outcome = train(task, seed, network, feedback=feedback, parameters=parameters)
    KEPT.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"settings": settings, "outcome": asdict(outcome)}, indent=1) + "\n")
    new.replace(path)
    return outcome
