# SPDX-License-Identifier: Apache-2.0
"""Whether Triton's kernels can run here, and where: what the tests of `trimwire.cuda` begin with."""

from __future__ import annotations

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the codec on a GPU is not tested")
triton = pytest.importorskip("triton", reason="Triton is not installed: the codec on a GPU is not tested")

import triton.language as tl

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"


@triton.jit
def _seven(out):  # type: ignore[no-untyped-def]
    tl.store(out, 7)


def skip_unless_they_run() -> None:
    """Skips a module of tests, and says why."""
    try:
        import trimwire.cuda  # noqa: F401
    except ImportError as error:
        pytest.skip(f"SKIPPED: {error}", allow_module_level=True)
    if not torch.cuda.is_available() and not INTERPRETED:
        pytest.skip("SKIPPED: there is no GPU; TRITON_INTERPRET=1 has the kernels interpreted", allow_module_level=True)
    probe = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    _seven[(1,)](probe)
    if int(probe.item()) != 7:
        pytest.skip(f"the interpreter of Triton {triton.__version__} stores nothing under NumPy {np.__version__}", allow_module_level=True)
