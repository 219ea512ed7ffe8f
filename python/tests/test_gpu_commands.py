# SPDX-License-Identifier: Apache-2.0
"""Promises of the commands that measure on a GPU (docs/reference/gpu.md): what they say without one, and how a trace is read."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the commands that measure on a GPU are not tested")
BENCH = Path(os.environ.get("TRIMWIRE_REPOSITORY", Path(__file__).parents[2])) / "lab/bench"


def module(name: str) -> Any:
    found = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert found is not None and found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("command", [["gpu_codec.py"], ["gpu_training.py"], ["gpu_training.py", "--trace", "never.json"]])
def test_without_a_gpu_nothing_is_measured_and_one_line_says_so(command: list[str], tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, str(BENCH / command[0]), *command[1:]], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 1 and ran.stdout == ""
    assert ran.stderr.startswith("SKIPPED: there is no GPU") and ran.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_trace_tells_how_long_kernels_of_ours_ran_beside_others() -> None:
    def kernel(name: str, begin: float, length: float) -> dict[str, Any]:
        return {"cat": "kernel", "name": name, "ts": begin, "dur": length}

    events = [
        kernel("encode_rows", 100.0, 50.0),
        # Beside the first one, from a stream of another thread: no time counts twice.
        kernel("decode_rows", 140.0, 20.0),
        kernel("decode_rows", 300.0, 10.0),
        # Of the first 60, from 110 to 130 and from 155 on; of the last 10 none.
        kernel("gemm", 110.0, 15.0),
        kernel("gemm", 120.0, 10.0),
        kernel("softmax", 155.0, 100.0),
        # What is no kernel is beside nothing.
        {"cat": "cpu_op", "name": "encode_rows", "ts": 0.0, "dur": 1000.0},
        {"cat": "gpu_memcpy", "name": "Memcpy DtoH", "ts": 300.0, "dur": 10.0},
        {"name": "process_name", "ph": "M"},
    ]
    assert module("gpu_training").overlap(events) == (70.0, 25.0)
    assert module("gpu_training").overlap([]) == (0.0, 0.0)
