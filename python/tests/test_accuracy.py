# SPDX-License-Identifier: Apache-2.0
"""The promise that half of the packets cut to their signs costs no accuracy: five seeds of a small network on real digits, against exact training."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

HERE = Path(__file__).resolve()
#: Where tests run outside of the source tree, the experiments are beside them and the data is named.
sys.path[:0] = [str(HERE.parents[1] / "experiments"), str(HERE.parents[2] / "lab/experiments")]
import training  # noqa: E402

from trimwire.torch import Simulation  # noqa: E402

DIGITS = Path(os.environ.get("TRIMWIRE_DIGITS", HERE.parents[2] / "cli/data/digits.csv.gz"))
SEEDS = range(5)


def test_half_of_the_packets_cut_costs_no_accuracy_beyond_the_noise_of_seeds() -> None:
    if not DIGITS.exists():
        pytest.skip(f"SKIPPED: no digits at {DIGITS}; TRIMWIRE_DIGITS names them")
    torch.set_num_threads(1)
    task = training.perceptron(DIGITS)
    exact = np.array([training.train(task, seed, steps=100).final for seed in SEEDS])
    cut = [training.train(task, seed, Simulation(trim_rate=0.5, seed=seed), steps=100) for seed in SEEDS]
    finals = np.array([outcome.final for outcome in cut])
    # The same seeds have the same weights and batches: two standard errors of the difference, of which one held-out image is 0.28 %.
    noise = 2 * np.sqrt((exact.var(ddof=1) + finals.var(ddof=1)) / len(SEEDS))
    assert exact.mean() > 0.9
    assert finals.mean() > exact.mean() - max(noise, 0.0028), (exact, finals)
    # And it was cut: both ways, 0.22 of each gradient's energy.
    assert min(outcome.gradient_nmse for outcome in cut) > 0.2
    # What it is against: the sign and the whole packet's scale alone cost more than that, in the same network.
    biased = [training.train(task, seed, Simulation(trim_rate=0.5, codec="sign-magnitude", seed=seed), steps=100).final for seed in SEEDS]
    assert np.mean(biased) < finals.mean()


def test_a_training_that_was_made_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not DIGITS.exists():
        pytest.skip(f"SKIPPED: no digits at {DIGITS}; TRIMWIRE_DIGITS names them")
    monkeypatch.setattr(training, "KEPT", tmp_path)
    task = replace(training.perceptron(DIGITS), steps=20)
    first = training.kept(task, 0, Simulation(trim_rate=0.5))

    def made(*_: object, **__: object) -> None:
        raise RuntimeError("made")

    monkeypatch.setattr(training, "train", made)
    assert training.kept(task, 0, Simulation(trim_rate=0.5)).final == first.final
    others = [(task, 1, Simulation(trim_rate=0.5)), (task, 0, Simulation(trim_rate=0.4)), (task, 0), (replace(task, rate=0.2), 0, Simulation(trim_rate=0.5))]
    for arguments in others:
        with pytest.raises(RuntimeError, match="made"):
            training.kept(*arguments)
