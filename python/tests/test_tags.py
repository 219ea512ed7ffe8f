# SPDX-License-Identifier: Apache-2.0
"""Promises about which sums are taken for the same gradient."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import trimwire.torch._tags as tags  # noqa: E402

#: Lengths of a step's gradients, two of them alike.
LENGTHS = (300, 500, 500, 300, 700)


def step(known: tags.Tags, backward: bool = True) -> list[int]:
    """The tags of a step's sums, called from within a backward pass as DistributedDataParallel does, or after it."""
    got: list[int] = []

    def sums(_: Any = None) -> None:
        got.extend(known.next("all_reduce", torch.zeros(length)) for length in LENGTHS)

    weight = torch.ones(1, requires_grad=True)
    if backward:
        weight.register_hook(sums)
    weight.sum().backward()
    if not backward:
        sums()
    return got


def optimiser() -> torch.optim.Optimizer:
    weight = torch.ones(1, requires_grad=True)
    weight.grad = torch.zeros(1)
    return torch.optim.SGD([weight], lr=0.1)


@pytest.mark.parametrize("backward", [True, False])
def test_gradients_of_one_length_have_tags_of_their_own_and_the_same_in_every_step(backward: bool) -> None:
    known, steps = tags.Tags(), optimiser()
    first = step(known, backward)
    assert len(set(first)) == len(LENGTHS)
    for _ in range(3):
        steps.step()
        assert step(known, backward) == first


def test_accumulated_passes_belong_to_one_step() -> None:
    known, steps = tags.Tags(), optimiser()
    steps.step()
    first = step(known) + step(known)
    assert len(set(first)) == 2 * len(LENGTHS)
    steps.step()
    assert step(known) + step(known) == first


def test_without_an_optimiser_a_backward_pass_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tags, "_steps", 0)
    known = tags.Tags()
    assert step(known) == step(known)


def test_an_optimiser_that_steps_within_the_backward_pass_ends_nothing() -> None:
    known, steps = tags.Tags(), optimiser()
    got: list[int] = []

    def sum_and_step(_: Any) -> None:
        got.append(known.next("all_reduce", torch.zeros(500)))
        steps.step()

    steps.step()
    weights = [torch.ones(1, requires_grad=True) for _ in range(3)]
    for weight in weights:
        weight.register_hook(sum_and_step)
    sum(weights).sum().backward()
    assert len(set(got)) == 3


def test_tags_are_not_without_end() -> None:
    known = tags.Tags()
    for _ in range(10_000):
        known.next("all_reduce", torch.zeros(1))
    assert known.next("all_reduce", torch.zeros(1)) == known.next("reduce_scatter", torch.zeros(2)) == 4_096
