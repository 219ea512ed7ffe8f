# SPDX-License-Identifier: Apache-2.0
"""Whether Triton's kernels can run here, and where: what the tests of `trimwire.cuda` begin with."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the codec on a GPU is not tested")
triton = pytest.importorskip("triton", reason="Triton is not installed: the codec on a GPU is not tested")

import triton.language as tl
from triton.runtime import interpreter

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"


@triton.jit
def _counted(out, most):  # type: ignore[no-untyped-def]
    count = 0
    for _ in range(0, tl.load(most)):
        count += 1
    tl.store(out, count)


def _patched_once_a_launch() -> None:
    """Takes a third off the interpreter's time: Triton puts its language in place for every function that a kernel calls, though it is there until the kernel ends."""
    patched = getattr(interpreter, "_patch_lang", None)
    if patched is None or hasattr(patched, "there"):
        return
    # Modules of the language that functions see; kernels run one at a time.
    there: dict[frozenset[int], Any] = {}

    def once(fn: Any) -> Any:
        seen = frozenset(id(value) for value in fn.__globals__.values() if value is tl or value is tl.core)
        if seen in there:
            return there[seen]
        scope = there[seen] = patched(fn)
        restore = scope.restore

        def ended() -> None:
            there.clear()
            restore()

        scope.restore = ended
        return scope

    once.there = there  # type: ignore[attr-defined]
    interpreter._patch_lang = once


def skip_unless_they_run() -> None:
    """Skips a module of tests, and says why."""
    if INTERPRETED:
        _patched_once_a_launch()
    try:
        import trimwire.cuda  # noqa: F401
    except ImportError as error:
        pytest.skip(f"SKIPPED: {error}", allow_module_level=True)
    if not torch.cuda.is_available() and not INTERPRETED:
        pytest.skip("SKIPPED: there is no GPU; TRITON_INTERPRET=1 has the kernels interpreted", allow_module_level=True)
    probe = torch.tensor([0, 7], dtype=torch.int32, device=DEVICE)
    fault = "stores nothing"
    try:
        _counted[(1,)](probe, probe[1:])
    except triton.runtime.errors.InterpreterError as error:
        fault = f"does not run kernels ({error})"
    if int(probe[0]) != 7:
        pytest.skip(f"SKIPPED: the interpreter of Triton {triton.__version__} {fault} under NumPy {np.__version__}", allow_module_level=True)
