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
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = _eval_frame.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            _eval_frame.set_eval_frame(before)

    _eval_frame.skip_code(call.__code__)
    return call


def untraced(cls: T) -> T:
    """A class whose public methods run as they are, whoever traces their caller. Without a tracer that can be told so it stays as it is."""
    if hasattr(_eval_frame, "set_eval_frame") and hasattr(_eval_frame, "skip_code"):
        for name, member in list(vars(cls).items()):
            if isinstance(member, FunctionType) and not name.startswith("_"):
                setattr(cls, name, _untraced(member))
    return cls
