# SPDX-License-Identifier: Apache-2.0
"""A model as the layers that its gradient is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Layer:
    """A module's own parameters."""

    name: str
    parameters: tuple[nn.Parameter, ...]

    @property
    def size(self) -> int:
        """Coordinates of its gradient."""
        return sum(parameter.numel() for parameter in self.parameters)


def order_of(model: nn.Module, forward: Callable[[], object]) -> list[str]:
    """The names of all modules in the order in which `forward` first calls them.

    One that is not called, as what is around it uses its parameters (the projection that ends an attention), comes right behind the innermost around it that is.
    """
    called: dict[str, None] = {}
    hooks = [
        module.register_forward_pre_hook(lambda *_, name=name: called.setdefault(name, None)) for name, module in model.named_modules()
    ]
    try:
        forward()
    finally:
        for hook in hooks:
            hook.remove()
    behind: dict[str | None, list[str]] = {}
    for name, _ in model.named_modules():
        if name not in called:
            parts = name.split(".")[:-1]
            around = (".".join(parts[:length]) for length in range(len(parts), -1, -1))
            behind.setdefault(next((outer for outer in around if outer in called), None), []).append(name)
    return [name for outer in (*called, None) for name in ([] if outer is None else [outer]) + behind.get(outer, [])]


def layers_of(model: nn.Module, order: Sequence[str]) -> list[Layer]:
    """The modules with parameters that learn, in `order`. Parameters that several share are the first one's."""
    modules = dict(model.named_modules())
    seen: set[int] = set()
    layers = []
    for name in order:
        own = [parameter for parameter in modules[name].parameters(recurse=False) if parameter.requires_grad and id(parameter) not in seen]
        seen.update(id(parameter) for parameter in own)
        if own:
            layers.append(Layer(name or type(model).__name__, tuple(own)))
    return layers


def gradient_of(layers: list[Layer]) -> torch.Tensor:
    """The gradients of all layers, one behind the other, as float32; zeros where there is none."""
    parts = [
        torch.zeros(parameter.numel()) if parameter.grad is None else parameter.grad.detach().reshape(-1).to("cpu", torch.float32)
        for layer in layers
        for parameter in layer.parameters
    ]
    return torch.cat(parts)


def set_gradient(layers: list[Layer], gradient: torch.Tensor) -> None:
    """The opposite of `gradient_of`."""
    start = 0
    for layer in layers:
        for parameter in layer.parameters:
            part = gradient[start : start + parameter.numel()].view(parameter.shape)
            parameter.grad = part.to(device=parameter.device, dtype=parameter.dtype, copy=True)
            start += parameter.numel()
