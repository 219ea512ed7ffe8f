# SPDX-License-Identifier: Apache-2.0
"""Benches and experiments that pages name, once each at the smallest size: that they run and print what they are for, whatever the figures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

LAB = Path(os.environ.get("TRIMWIRE_REPOSITORY", Path(__file__).resolve().parents[2])) / "lab"


def ran(program: str, *words: str | Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, LAB / program, *words], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_ddp_steps_beside_gloo() -> None:
    said = ran("bench/ddp_overhead.py", "--width", "64", "--layers", "2", "--iterations", "2", "--rounds", "1")
    ways = re.findall(r"^(\S+) +[\d.]+ ms  p99 +[\d.]+ ms +[\d.]+ x ddp +[\d.]+ MB$", said, re.MULTILINE)
    assert ways == ["ddp", "fp16", "bf16", "powersgd", "hook", "backend"], said


def test_adamw() -> None:
    said = ran("experiments/adamw.py", "--steps", "2", "--seeds", "1", "--ways", "exact", "8 planes, 30 %")
    # Two steps are near exact ones, and replicas are equal.
    rows = re.findall(r"^\| (exact|8 planes, 30 %) \| ([\d.]+) .*? \| ([-+\d.]+) to [-+\d.]+ \| 0 \| [\d.e-]+ \|$", said, re.MULTILINE)
    assert [way for way, _, _ in rows] == ["exact", "8 planes, 30 %"] and all(abs(float(apart)) < 0.1 for _, _, apart in rows), said


def test_bounds_of_losses(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="SKIPPED: matplotlib is not installed")
    ran("experiments/loss_bounds.py", "convolutional", "--seeds", "1", "--rates", "0.5", "--rounds", "16", "--out", tmp_path)
    assert (tmp_path / "bounds-convolutional.csv").stat().st_size > 100 and (tmp_path / "bounds-convolutional-loss.svg").exists()


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("tc") is None, reason="SKIPPED: needs root, ip and tc")
def test_diloco_over_a_slow_path() -> None:
    said = ran("bench/diloco.py", "--rate", "100mbit", "--outer-steps", "2", "--width", "256", "--rounds", "1")
    losses = {way: float(loss) for way, loss in re.findall(r"^(\S+) +loss ([\d.]+) ", said, re.MULTILINE)}
    assert list(losses) == ["gloo", "gloo-fp16", "trimwire"] and losses["trimwire"] == pytest.approx(losses["gloo"], rel=0.05), said
