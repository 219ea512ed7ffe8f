# SPDX-License-Identifier: Apache-2.0
"""How much the next step sends, by how the last one fared: the same at all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _native
from ._group import Group, Work
from ._operation import DEFAULT_PLANES

_NUMBERS = ("bytes_expected", "bytes_received", "packets_received", "packets_trimmed", "packets_missing", "packets_repaired")


def busy(intervals: list[tuple[float, float]]) -> float:
    """Seconds that at least one of the intervals covers."""
    total, until = 0.0, float("-inf")
    for began, ended in sorted(intervals):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


class Adaptive:
    """An algorithm in a group's operations: `netsense`, `da1` to `da5`, `trim-feedback`, `progress` or `fixed`, with parameters as in `da5:k_min=0.1,alpha=1.5` (docs/explanation/planner.md).

    Between steps the ranks tell each other what they counted, in one small operation, and every rank's algorithm takes all of it: they stay in step, and their states are
    equal. A group sends at least one plane, whatever the ratio.
    """

    def __init__(self, algorithm: str, planes: int = DEFAULT_PLANES) -> None:
        self.algorithm = algorithm
        self._native = _native.Adaptive(algorithm, planes)
        self._most = planes
        #: When the step before was over, on the group's clock; 0 before there was one.
        self._ended = 0.0
        self._told: tuple[Work, Any] | None = None
        #: What was measured of the last step, and why the last one was refused that was.
        self.measured: dict[str, float] | None = None
        self.refused: str | None = None

    @property
    def planes(self) -> int:
        """Planes of the next step."""
        return self._native.planes

    @property
    def pace(self) -> float:
        """Share of the line's rate at which the next step's data leaves at most."""
        return self._native.pace

    @property
    def ratio(self) -> float:
        """The algorithm's ratio: what is sent over what f32 would take."""
        return self._native.ratio

    @property
    def rate_algorithm(self) -> str:
        """The rate algorithm beside it: an algorithm that paces by itself is not to be second-guessed by another."""
        return "fixed" if self.algorithm.startswith(("trim-feedback", "progress")) else "dctcp"

    def tell(self, group: Group, works: Sequence[Work]) -> None:
        """Begins to tell all ranks how these operations of a step fared, which are over. To be called at the same place of all ranks' operations."""
        import numpy as np

        each = [stats for stats in (work.stats() for work in works) if stats is not None]
        numbers = [self.planes, *(int(sum(stats[name] for stats in each)) for name in _NUMBERS)]
        numbers.append(int(busy([(stats["began"], stats["ended"]) for stats in each]) * 1e9))
        began = min((stats["began"] for stats in each), default=0.0)
        numbers.append(int(max(0.0, began - self._ended) * 1e9) if self._ended else 0)
        self._ended = max((stats["ended"] for stats in each), default=self._ended)
        own = np.array(numbers, dtype=np.uint64)
        everybody = np.zeros((group.world, own.size), dtype=np.uint64)
        self._told = group.all_gather(own.view(np.uint8), everybody.reshape(-1).view(np.uint8)), everybody

    def hear(self) -> None:
        """Waits for what ranks told, and takes it."""
        if self._told is None:
            return
        (work, everybody), self._told = self._told, None
        work.wait()
        planes = everybody[:, 0].tolist()
        for rank, theirs in enumerate(planes):
            if theirs != planes[0]:
                raise RuntimeError(f"adaptive: rank {rank} sent {theirs} planes, rank 0 {planes[0]}: all ranks have to begin with the same state (load_state_dict)")
        measured, refused = self._native.step([[int(number) for number in row] for row in everybody[:, 1:]])
        self.measured, self.refused = (self.measured, refused) if measured is None else (measured, self.refused)

    def stats(self) -> dict[str, float]:
        """The algorithm's ratio, planes, pace, and steps that it took and refused."""
        taken, refused = self._native.steps
        return {"adaptive_ratio": self.ratio, "adaptive_planes": self.planes, "adaptive_pace": self.pace, "adaptive_steps": taken, "adaptive_refused": refused}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: the same on all ranks."""
        self.hear()
        return {"algorithm": self.algorithm, "planes": self._most, "state": self._native.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what a checkpoint kept, of the same algorithm; on all ranks."""
        self.hear()
        try:
            saved = state["state"]
        except (KeyError, TypeError):
            raise ValueError("adaptive: the state is no dict with 'algorithm', 'planes' and 'state', as state_dict() gives") from None
        self._native.restore(saved)
