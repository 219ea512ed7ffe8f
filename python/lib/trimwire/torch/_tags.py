# SPDX-License-Identifier: Apache-2.0
"""Which gradient a sum is of: the same one has the same tag in every step, so that its rows are compared with themselves one step ago.

Nobody says so: torch.distributed knows tensors, not names, and buckets of one length are common. But a training job sums in the same order in
every step, so a gradient is known by its kind, type and length and by how many of those the step has summed before it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

#: Tags of a group at most. A job that keeps summing and never steps an optimiser would make ever more of them; what comes beyond this shares one.
_MOST = 4_096

_steps = 0


def _backward() -> int:
    """The backward pass that this thread is in; -1 outside of any."""
    return int(torch._C._current_graph_task_id())


def _stepped(optimiser: Any, arguments: Any, keywords: Any) -> None:
    # Optimisers that step within the backward pass, a parameter at a time, do not end anything.
    global _steps
    if _backward() < 0:
        _steps += 1


register_optimizer_step_post_hook(_stepped)


class Tags:
    """Tags of a group's sums of gradients, in the order in which they are called. They stay on this rank: others may count differently.

    A step ends when an optimiser of torch.optim has stepped; before any has, and in jobs without one, when another backward pass begins.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], int] = {}
        self._seen: dict[tuple[Any, ...], int] = {}
        self._step = _steps
        self._pass = -1
        self._stepped = False

    def has_stepped(self) -> bool:
        """Whether a step has ended since the last call."""
        stepped, self._stepped = self._stepped, False
        return stepped

    def next(self, kind: str, tensor: torch.Tensor) -> int:
        """The tag of the next sum: of what kind, of which tensor."""
        now = _backward()
        another = now >= 0 and now != self._pass
        if another:
            self._pass = now
        if self._step != _steps or (another and _steps == 0):
            self._seen.clear()
            self._step = _steps
            self._stepped = True
        signature = (kind, tensor.dtype, tensor.numel())
        nth = self._seen.get(signature, 0)
        self._seen[signature] = nth + 1
        tag = self._known.get((*signature, nth), _MOST)
        if tag == _MOST and len(self._known) < _MOST:
            tag = self._known[(*signature, nth)] = len(self._known)
        return tag
