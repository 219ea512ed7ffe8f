# SPDX-License-Identifier: Apache-2.0
"""A plan of `trimwire-lab plan --json`, applied to a model's buckets."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from typing import Any

import torch

from .. import _native


@dataclass(frozen=True)
class Treatment:
    """How a tensor's gradient is sent."""

    #: Planes.
    planes: int
    #: What is trimmed is sent again: the plan has not given the tensor to switches.
    full: bool


def _planes_of(share: float) -> int:
    """The most planes that take at most a share of f32's bytes; at least one."""
    return next((planes for planes in range(_native.PLANES, 0, -1) if _native.packet_share(planes) <= share * (1 + 1e-9)), 1)


class Plan:
    """Which tensors of a model are compressed, by name.

    Of an option it counts whether the tensor is compressed (`*`) or goes in packets that switches may trim (`~`), and with how many planes; which collectives and
    devices were planned does not: the group's own algorithms do it.
    """

    def __init__(self, file: str | os.PathLike[str], planes: int) -> None:
        self.file = os.fspath(file)
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        try:
            made = json.loads(text)
            self.model = str(made["model"])
            strategy = [(str(choice["tensor"]), int(choice["elements"]), str(choice["option"])) for choice in made["strategy"]]
            share = float(made["compressor_share"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"plan: {self.file} is no plan of `trimwire-lab plan --json`: {type(error).__name__}: {error}") from None
        self.elements = {name: elements for name, elements, _ in strategy}
        self._treatments = {name: self._treatment(name, option, planes, share) for name, _, option in strategy}

    def _treatment(self, name: str, option: str, planes: int, share: float) -> Treatment:
        trimmed = re.search(r"encode (\d+) planes", option)
        if trimmed:
            sent = int(trimmed[1])
            if not 1 <= sent <= _native.PLANES:
                raise ValueError(f"plan: {self.file}: '{name}' is sent with {sent} planes; valid are 1 to {_native.PLANES}")
            return Treatment(sent, full=False)
        return Treatment(min(planes, _planes_of(share)) if "compress" in option else planes, full=True)

    def check(self, parameters: dict[str, torch.nn.Parameter]) -> None:
        """Refuses a model that the plan was not made for, by the first tensor that differs."""
        own = {name: parameter.numel() for name, parameter in parameters.items() if parameter.requires_grad}
        for name, elements in own.items():
            if name not in self.elements:
                raise ValueError(f"plan: {self.file} was made for {self.model}, which has no tensor '{name}'")
            if self.elements[name] != elements:
                raise ValueError(f"plan: {self.file} was made for {self.model}, whose '{name}' has {self.elements[name]} elements; this model's has {elements}")
        for name in self.elements:
            if name not in own:
                raise ValueError(f"plan: {self.file} was made for {self.model}, whose tensor '{name}' this model does not train")

    def pieces(self, bucket: Any, names: dict[torch.nn.Parameter, str]) -> list[tuple[int, int, Treatment]]:
        """A bucket's parts that are sent alike: from and to which element, and how."""
        found: list[tuple[int, int, Treatment]] = []
        at = 0
        for parameter in bucket.parameters():
            until, treatment = at + parameter.numel(), self._treatments[names[parameter]]
            if found and found[-1][2] == treatment:
                found[-1] = (found[-1][0], until, treatment)
            else:
                found.append((at, until, treatment))
            at = until
        return found
