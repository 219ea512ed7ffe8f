# SPDX-License-Identifier: Apache-2.0
"""What a model's backward pass computes, when: the model file of `trimwire-lab plan`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Traced:
    """A tensor's gradient."""

    name: str
    elements: int
    #: Microseconds from the gradient before it, or from the beginning of the backward pass.
    compute_us: float


@dataclass(frozen=True)
class Trace:
    """Tensors in the order in which the backward pass makes their gradients."""

    model: str
    #: Milliseconds of the forward pass, and of the optimiser where there was one.
    forward_ms: float
    tensors: tuple[Traced, ...]

    def yaml(self) -> str:
        """The file that `trimwire-lab plan` reads."""
        lines = [f"model: {json.dumps(self.model)}", f"forward_ms: {self.forward_ms:.6f}", "tensors:"]
        lines += [f"  - {{ name: {json.dumps(tensor.name)}, elements: {tensor.elements}, compute_us: {tensor.compute_us:.3f} }}" for tensor in self.tensors]
        return "\n".join(lines) + "\n"

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes it."""
        with open(file, "w", encoding="utf-8") as out:
            out.write(self.yaml())


def trace(
    model: torch.nn.Module,
    loss: Callable[[], torch.Tensor],
    *,
    optimiser: torch.optim.Optimizer | None = None,
    steps: int = 10,
    warmup: int = 3,
    name: str | None = None,
) -> Trace:
    """Runs `steps` steps of one process after `warmup` others, and says what each took: medians.

    `loss` computes the loss of a batch with `model`, which is not wrapped in DistributedDataParallel: communication is what is planned. With an `optimiser` its step is timed, too, and
    changes the model. On a GPU every gradient is waited for, which takes away what kernels overlap.
    """
    if isinstance(model, DistributedDataParallel):
        raise ValueError("model: it is wrapped in DistributedDataParallel, whose communication would be traced, too; give model.module")
    if steps < 1 or warmup < 0:
        raise ValueError(f"steps: {steps}, warmup: {warmup}; there is at least one step, and none is warmed up less than 0 times")
    named = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
    if not named:
        raise ValueError("model: none of its parameters is trained")
    on_gpu = any(parameter.is_cuda for parameter in named.values())

    def now() -> float:
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    made: list[tuple[str, float]] = []
    handles = [parameter.register_post_accumulate_grad_hook(_noting(key, made, now)) for key, parameter in named.items()]
    besides: list[float] = []
    took: dict[str, list[float]] = {key: [] for key in named}
    places: dict[str, list[int]] = {key: [] for key in named}
    try:
        for step in range(warmup + steps):
            model.zero_grad(set_to_none=True)
            made.clear()
            began = now()
            value = loss()
            before = now()
            value.backward()  # type: ignore[no-untyped-call]
            after = now()
            if optimiser is not None:
                optimiser.step()
            seconds = before - began + (now() - after if optimiser is not None else 0.0)
            missing = next((key for key in named if key not in dict(made)), None)
            if missing is not None:
                raise ValueError(f"loss: the backward pass makes no gradient of '{missing}'; freeze it (requires_grad_(False)), or use it")
            if step < warmup:
                continue
            besides.append(seconds)
            for place, (key, at) in enumerate(made):
                took[key].append(at - before)
                places[key].append(place)
                before = at
    finally:
        for handle in handles:
            handle.remove()
        model.zero_grad(set_to_none=True)
    order = sorted(named, key=lambda key: median(places[key]))
    tensors = tuple(Traced(key, named[key].numel(), median(took[key]) * 1e6) for key in order)
    return Trace(name or type(model).__name__, median(besides) * 1e3, tensors)


def _noting(key: str, made: list[tuple[str, float]], now: Callable[[], float]) -> Callable[[Any], None]:
    def note(_: Any) -> None:
        made.append((key, now()))

    return note
