# SPDX-License-Identifier: Apache-2.0
"""Promises of profiles, on a model so small that they take seconds."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

#: Where tests run outside of the source tree, the experiments are beside them.
HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1] / "experiments"), str(HERE.parents[2] / "lab/experiments")]
profiles = pytest.importorskip("profiles", reason="the experiments are not beside the tests")

from layers import gradient_of, layers_of, order_of, set_gradient  # noqa: E402
from profiles import Profile, profile, reached  # noqa: E402
from traces import trace  # noqa: E402


# Threads that wait for each other gain nothing on so little.
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        # Defined from back to front.
        self.back = nn.Linear(64, 2)
        self.front = nn.Linear(20, 64)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.back(torch.relu(self.front(x * self.scale)))


def batches(count: int = 20) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 32, 20, generator=generator)
    return [(x, (x[:, :10].sum(1) > 0).long()) for x in inputs]


QUICK: dict[str, Any] = {"rounds": 40, "look_every": 2, "workers": 2, "seeds": 2, "rates": (0.1, 0.9), "parts": 2, "progress": False}


@pytest.fixture(scope="module")
def found() -> Profile:
    return profile(Net(), batches(), **QUICK)


def test_exact_training_reaches_the_target_and_small_cuts_are_tolerated_more_than_losing_nearly_everything(
    found: Profile,
) -> None:
    assert all(math.isfinite(rounds) and rounds <= 30 for rounds in found.exact)
    assert set(found.runs) == {
        "trimmed to 1 plane", "lost", "layers 1/2 lost", "layers 2/2 lost", "smallest fifth zeroed", "middle fifth zeroed", "largest fifth zeroed",
    }  # fmt: skip
    assert found.tolerance("smallest fifth zeroed") == 0.9
    def slow(name: str) -> float:
        return sum(min(rounds, 41) for rounds in found.runs[name][0.9])
    assert slow("largest fifth zeroed") > slow("smallest fifth zeroed")


def test_layers_are_in_the_order_of_the_forward_pass(found: Profile) -> None:
    assert found.layers == [("Net", 1, 0), ("front", 64 * 21, 0), ("back", 2 * 65, 1)]


def test_a_module_that_is_not_called_comes_behind_what_uses_it() -> None:
    class Attentive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.unused = nn.Linear(8, 2), nn.ModuleList([nn.Linear(8, 8)])
            self.attention, self.table = nn.MultiheadAttention(8, 2), nn.Embedding(4, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.attention(x + self.table.weight, x, x)[0])

    model = Attentive()
    names = [layer.name for layer in layers_of(model, order_of(model, lambda: model(torch.zeros(4, 8))))]
    assert names == ["unused.0", "table", "attention", "attention.out_proj", "last"]


def test_curves_end_where_the_target_is_reached(found: Profile) -> None:
    assert all(len(curve) == 20 for curve in found.curves["exact"][0.0])
    for name, by_rate in found.runs.items():
        for rate, rounds in by_rate.items():
            for curve, end in zip(found.curves[name][rate], rounds, strict=True):
                assert curve[-1][0] == min(end, 40)
                assert reached(curve, found.target) == end


def test_tables_plots_and_files_hold_all_of_it(found: Profile, tmp_path: Path) -> None:
    found.save(tmp_path)
    table = (tmp_path / "table.txt").read_text()
    svg = ElementTree.parse(tmp_path / "rounds.svg").getroot()
    words = " ".join(text for text in svg.itertext())
    for name in found.runs:
        assert name in table and name in words
    assert "never" in table or all(math.isfinite(one) for by_rate in found.runs.values() for rounds in by_rate.values() for one in rounds)


def test_plan_thresholds_takes_the_layers_file(found: Profile, tmp_path: Path) -> None:
    command = shutil.which("trimwire-lab")
    if command is None:
        pytest.skip("SKIPPED: no trimwire-lab on PATH")
    path = tmp_path / "layers.yaml"
    path.write_text(found.model_file())
    done = subprocess.run([command, "plan", "thresholds", str(path), "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_a_layers_sensitivity_is_what_losing_all_of_it_adds() -> None:
    exact = {rate: [20.0] for rate in (0.1, 0.5)}
    made = Profile(
        model="m", target=1.0, rounds=100, look_every=2, slack=0.0, rates=[0.1, 0.5], exact=[20.0],
        runs={"layers 1/2 lost": exact, "layers 2/2 lost": {0.1: [24.0], 0.5: [40.0]}},
        layers=[("a", 10, 0), ("b", 30, 0), ("c", 5, 1)], parts=2, low_energy=0.25,
    )  # fmt: skip
    # Twice the rounds for half: three times as many for all; 0.2 and 1.0 added at 0.1 and 0.5 lie on one line.
    assert made.sensitivities() == pytest.approx([0.1 * 0.25, 0.1 * 0.75, 2.0])
    assert made.tolerance("layers 1/2 lost") == 0.5 and made.tolerance("layers 2/2 lost") == 0.0
    text = made.model_file(load=0.9)
    assert 'name: "c", parameters: 5, sensitivity: 2' in text and "energy: 25.0%" in text and "load: 0.9" in text


def test_an_interrupted_profile_goes_on_and_gives_the_same(found: Profile, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    looks = 0

    def interrupted(model: nn.Module) -> float:
        nonlocal looks
        looks += 1
        if looks == 300:
            raise KeyboardInterrupt
        with torch.no_grad():
            return -sum(nn.functional.cross_entropy(model(x), y).item() for x, y in held_out) / len(held_out)

    everything = batches()
    held_out = everything[-4:]
    with pytest.raises(KeyboardInterrupt):
        profile(Net(), everything[:-4], quality=interrupted, state=state, **QUICK)
    kept = len(json.loads(state.read_text())["runs"])
    assert kept >= 4
    before = looks
    again = profile(Net(), everything[:-4], quality=interrupted, state=state, **QUICK)
    assert again.runs == found.runs and again.exact == found.exact
    # Only what was left, not everything: the first runs are the longest.
    assert looks - before < before + 300
    finished = looks
    profile(Net(), everything[:-4], quality=interrupted, state=state, **QUICK)
    assert looks == finished
    with pytest.raises(ValueError, match="rounds 40 instead of 50"):
        profile(Net(), everything[:-4], quality=interrupted, state=state, **{**QUICK, "rounds": 50})
    state.write_text("{")
    with pytest.raises(ValueError, match="no state of a profile"):
        profile(Net(), everything[:-4], quality=interrupted, state=state, **QUICK)


def test_the_target_is_reached_by_the_mean_of_looks_and_by_none_alone() -> None:
    curve = [(5, 0.0), (10, 3.0), (15, 0.0), (20, 1.0), (25, 1.0), (30, 1.0)]
    assert reached(curve, 1.0) == 15 and reached(curve[2:], 1.0) == 30 and reached(curve, 2.0) == math.inf


def test_a_gradient_is_put_back_as_it_was() -> None:
    model, other = Net(), Net()
    x, y = batches(1)[0]
    nn.functional.cross_entropy(model(x), y).backward()
    order = order_of(model, lambda: model(x))
    set_gradient(layers_of(other, order), gradient_of(layers_of(model, order)))
    for mine, its in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine.grad, its.grad)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rates": (0.0, 0.5)}, "rates"),
        ({"what": ("trims",)}, "what: 'trims'"),
        ({"workers": 0}, "workers: 0"),
        ({"rounds": 5}, "rounds: 5"),
    ],
)
def test_errors_name_the_argument(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        profile(Net(), batches(), **{**QUICK, **arguments})
    with pytest.raises(ValueError, match="loader"):
        profile(Net(), batches(1), **QUICK)


class Slow(torch.autograd.Function):
    """Backward takes a while."""

    @staticmethod
    def forward(context: Any, x: Any, seconds: float) -> Any:
        context.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        time.sleep(context.seconds)
        return gradient, None


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Any) -> Any:
        return self.last(Slow.apply(self.first(x), 0.02))


def test_a_trace_has_the_order_sizes_and_times_of_the_backward_pass(tmp_path: Path) -> None:
    model = Layers()
    traced = trace(model, lambda: model(torch.ones(4, 8)).sum(), steps=3, warmup=1)
    elements = {tensor.name: tensor.elements for tensor in traced.tensors}
    assert elements == {name: parameter.numel() for name, parameter in model.named_parameters()}
    names = [tensor.name for tensor in traced.tensors]
    assert {*names[:2]} == {"last.weight", "last.bias"} and {*names[2:]} == {"first.weight", "first.bias"}
    # What slept is before the first layer's gradients, and before none of the last's.
    assert traced.tensors[2].compute_us >= 20_000 > max(tensor.compute_us for tensor in traced.tensors[:2])
    assert all(tensor.compute_us >= 0 for tensor in traced.tensors) and traced.forward_ms > 0
    assert all(parameter.grad is None for parameter in model.parameters())
    command = shutil.which("trimwire-lab")
    if command is None:
        pytest.skip("SKIPPED: no trimwire-lab on PATH")
    (path := tmp_path / "model.yaml").write_text(traced.yaml())
    cluster = Path(os.environ["TRIMWIRE_REPOSITORY"]) / "examples/plans/pcie-25g.yaml"
    done = subprocess.run([command, "plan", str(path), str(cluster), "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    planned = [choice["tensor"] for choice in json.loads(done.stdout)["strategy"]]
    assert sorted(planned) == sorted(elements)


def test_what_cannot_be_traced_is_said_by_name() -> None:
    model = Layers()
    model.unused = nn.Linear(3, 3)
    with pytest.raises(ValueError, match=r"no gradient of 'unused\.weight'"):
        trace(model, lambda: model(torch.ones(4, 8)).sum(), steps=1, warmup=0)
    with pytest.raises(ValueError, match="steps: 0"):
        trace(model, lambda: torch.zeros(()), steps=0)
