# SPDX-License-Identifier: Apache-2.0
"""Keeps torch.compile's tracing out of what c10d calls.

DistributedDataParallel's C++ calls a backend while a compiled model runs. Dynamo then traces the backend's methods as if they were the model's, and fails at c10d's option objects.
`torch.compiler.disable` does what is done here, but imports the compiler, which takes seconds, into every process.
"""

from __future__ import annotations

import functools
from types import FunctionType
from typing import Any, TypeVar

import torch

T = TypeVar("T", bound=type)

_eval_frame: Any = getattr(torch._C._dynamo, "eval_frame", None)


def _untraced(function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        before = _eval_frame.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            _eval_frame.set_eval_frame(before)

    _eval_frame.skip_code(call.__code__)
    return functools.wraps(function)(call)


def _mark(function: FunctionType) -> Any:
    """The function, which tracers pass over with all that it calls; None where this PyTorch has no word for it."""
    if hasattr(_eval_frame, "set_code_exec_strategy"):
        skip = _eval_frame._FrameAction.SKIP
        _eval_frame.set_code_exec_strategy(function.__code__, _eval_frame._FrameExecStrategy(skip, skip))
        return function
    return _untraced(function) if hasattr(_eval_frame, "skip_code") else None


def untraced(cls: T) -> T:
    """A class whose public methods run as they are, whoever traces their caller."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType) and not name.startswith("_") and (marked := _mark(member)) is not None:
            setattr(cls, name, marked)
    return cls
