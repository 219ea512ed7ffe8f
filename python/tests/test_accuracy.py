# SPDX-License-Identifier: Apache-2.0
"""The promise that half of the packets cut to their signs costs no accuracy: five seeds of a small network on real digits, against exact training."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

HERE = Path(__file__).resolve()
#: Where tests run outside of the source tree, the experiments are beside them and the data is named.
sys.path.insert(0, str(HERE.parents[1] / "experiments"))
training = pytest.importorskip("training", reason="the experiments are not beside the tests")

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
