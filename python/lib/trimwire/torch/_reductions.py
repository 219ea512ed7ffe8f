# SPDX-License-Identifier: Apache-2.0
"""What is no sum of floats: every rank has all parts, and reduces them by itself, in order of rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def _average(parts: torch.Tensor) -> torch.Tensor:
    if parts.is_floating_point() or parts.is_complex():
        return parts.mean(0)
    return parts.sum(0, dtype=parts.dtype) // parts.shape[0]


def _bitwise(operation: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    def reduce(parts: torch.Tensor) -> torch.Tensor:
        total = parts[0].clone()
        for part in parts[1:]:
            total = operation(total, part)
        return total

    return reduce


REDUCE: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    dist.ReduceOp.SUM: lambda parts: parts.sum(0, dtype=parts.dtype),
    dist.ReduceOp.PRODUCT: lambda parts: parts.prod(0, dtype=parts.dtype),
    dist.ReduceOp.MIN: lambda parts: parts.amin(0),
    dist.ReduceOp.MAX: lambda parts: parts.amax(0),
    dist.ReduceOp.AVG: _average,
    dist.ReduceOp.BAND: _bitwise(torch.bitwise_and),
    dist.ReduceOp.BOR: _bitwise(torch.bitwise_or),
    dist.ReduceOp.BXOR: _bitwise(torch.bitwise_xor),
}


def reduction(options: Any) -> Any:
    """The operation of a call's options, or the one that is given instead of them.

    Raises:
        NotImplementedError: it is none of those above.
    """
    given = isinstance(options, (dist.ReduceOp, dist.ReduceOp.RedOpType))
    op = options if given else getattr(options, "reduceOp", dist.ReduceOp.SUM)
    # Some versions wrap the operation.
    for known in REDUCE:
        if op == known:
            return known
    raise NotImplementedError(f"trimwire: {op} is not supported; {', '.join(str(known) for known in REDUCE)} are")


def check(op: Any, tensor: torch.Tensor) -> None:
    """
    Raises:
        ValueError: numbers of that type have no such reduction.
    """
    if tensor.is_complex() and op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT):
        raise ValueError(f"trimwire: all_reduce does not support {op} on complex tensors")
