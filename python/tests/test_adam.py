# SPDX-License-Identifier: Apache-2.0
"""Promises to Adam, which divides a gradient by its own size: what got no gradient stays where it is, whatever the network trims of what lies beside it."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from ranks import hooked, run  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from trimwire.torch import Simulation  # noqa: E402

STEPS = 100
#: Of an embedding's rows every other is of a word that no text has; of eight experts four get no token.
WORDS, EXPERTS = torch.arange(0, 4096, 2), torch.arange(0, 8, 2)
#: Shares of packets that are trimmed to one plane of nine, both ways.
RATES = {"nothing trimmed": 0.0, "5 %": 0.05, "30 %": 0.3}


class Model(nn.Module):
    """Whose gradient, of what is used, is what it is given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(4096, 64)
        self.experts = nn.Parameter(torch.randn(8, 2048))

    def forward(self, words: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return (self.embedding(WORDS) * words).sum() + (self.experts[EXPERTS] * tokens).sum()


def parts(weights: Iterable[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """What is used of a model's weights, and what is not."""
    numbers = [(weight.detach(), EXPERTS if len(weight) == 8 else WORDS) for weight in weights]
    return torch.cat([weight[some].flatten() for weight, some in numbers]), torch.cat([weight[some + 1].flatten() for weight, some in numbers])


def trained(rank: int, simulation: Simulation | None) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The parts of the weights behind Adam's steps and AdamW's. They share gradients, which depend on no weight."""
    model = DistributedDataParallel(Model())
    if simulation is not None:
        hooked(model, simulate=simulation)
    weights = list(model.parameters())
    twins = [nn.Parameter(weight.detach().clone()) for weight in weights]
    optimisers = [torch.optim.Adam(weights, lr=1e-3), torch.optim.AdamW(twins, lr=1e-3)]
    random = torch.Generator().manual_seed(rank)
    for _ in range(STEPS):
        words, tokens = (0.01 * torch.randn(shape, generator=random) for shape in ((len(WORDS), 64), (len(EXPERTS), 2048)))
        model.zero_grad()
        model(words, tokens).backward()
        for twin, weight in zip(twins, weights, strict=True):
            twin.grad = weight.grad
        for optimiser in optimisers:
            optimiser.step()
    return [parts(weights), parts(twins)]


def moves(rank: int, world: int) -> dict[str, Any]:
    """Whether what is not used is where it is in exact training, and how far the rest has moved, as a multiple."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    start, unmoved = parts(Model().parameters())
    exact = trained(rank, None)
    got: dict[str, Any] = {"exact Adam": (torch.equal(exact[0][1], unmoved), 1.0)}
    for name, rate in RATES.items():
        for optimiser, (used, unused), (used_exactly, unused_exactly) in zip(("Adam", "AdamW"), trained(rank, Simulation(trim_rate=rate)), exact, strict=True):
            ratio = float((used - start).norm() / (used_exactly - start).norm())
            got[f"{optimiser}, {name}"] = (torch.equal(unused, unused_exactly), ratio)
    dist.barrier()
    dist.destroy_process_group()
    return got


@pytest.fixture(scope="module")
def moved() -> list[dict[str, Any]]:
    return run(moves, 2)


@pytest.mark.parametrize("name", ["exact Adam", *(f"{optimiser}, {name}" for optimiser in ("Adam", "AdamW") for name in RATES)])
def test_what_got_no_gradient_is_where_exact_training_has_it_and_the_rest_moves_as_far(moved: list[dict[str, Any]], name: str) -> None:
    for result in moved:
        unmoved, ratio = result[name]
        assert unmoved and 1 / 1.1 < ratio < 1.1, ratio
