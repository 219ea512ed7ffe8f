# SPDX-License-Identifier: Apache-2.0
"""Replicas that drift apart are brought together again, a slice a step."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class Resync:
    """After every step of `optimizer` all ranks take a slice of `model`'s parameters from rank 0, bit by bit; each parameter once in `every` steps.

    Replicas that decode what reached each of them (`consistent=False`) drift apart where packets are trimmed. The slices are of equal size, so every step costs the same: 1/`every` of the
    parameters, by a broadcast of the model's process group. What is left of the drift is what `every` steps bring. Buffers are not touched: DistributedDataParallel broadcasts them.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, every: int) -> None:
        if every < 1:
            raise ValueError(f"every is {every}; it has to be a number of steps, 1 or more")
        self.every, self.steps = every, 0
        self._group = getattr(model, "process_group", None)
        # The same order on all ranks; of each dtype and device a broadcast of its own.
        kinds: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
        for parameter in model.parameters():
            kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter.detach())
        self._kinds = list(kinds.values())
        self._handle = optimizer.register_step_post_hook(self._after_step)

    def _after_step(self, *_: Any) -> None:
        for parameters in self._kinds:
            self._take(parameters)
        self.steps += 1

    @torch.no_grad()
    def _take(self, parameters: list[torch.Tensor]) -> None:
        length = sum(parameter.numel() for parameter in parameters)
        part = self.steps % self.every
        start, end = length * part // self.every, length * (part + 1) // self.every
        if start == end:
            return
        pieces, at = [], 0
        for parameter in parameters:
            first, last = max(start - at, 0), min(end - at, parameter.numel())
            if first < last:
                pieces.append((parameter, first, last))
            at += parameter.numel()
        flat = torch.cat([parameter.reshape(-1)[first:last] for parameter, first, last in pieces])
        root = dist.get_global_rank(self._group, 0) if self._group is not None else 0
        dist.broadcast(flat, root, group=self._group)
        at = 0
        for parameter, first, last in pieces:
            values = flat[at : at + last - first]
            if parameter.is_contiguous():
                parameter.view(-1)[first:last] = values
            else:
                whole = parameter.reshape(-1)
                whole[first:last] = values
                parameter.copy_(whole.view(parameter.shape))
            at += last - first

    def remove(self) -> None:
        """No more of it."""
        self._handle.remove()
