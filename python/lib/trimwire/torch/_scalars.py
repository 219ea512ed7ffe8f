# SPDX-License-Identifier: Apache-2.0
"""Figures of the network beside those of the training: scalars for TensorBoard, or whatever else has its `add_scalar`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .._group import stats as all_stats


class Writer(Protocol):
    """As torch.utils.tensorboard.SummaryWriter."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> Any:
        """Takes a figure of a step."""


class Source(Protocol):
    """A group, a hook or a process group."""

    def stats(self) -> dict[str, float]:
        """Totals."""


#: What is a share of what, since the last step that was written.
_SHARES = {
    "trimmed_share": ("packets_trimmed", "packets_received"),
    "missing_share": ("packets_missing", "packets_received"),
    "repaired_share": ("packets_repaired", "packets_sent"),
}


class Scalars:
    """Writes how packets fare: `scalars = Scalars(SummaryWriter())`, and `scalars.write(step)` whenever the loss is written.

    `trimmed_share`, `missing_share` (of the packets that were to come) and `repaired_share` (of those sent), `sent_mb` are since the last time; `all_reduce_p50_ms` and `_p99_ms`
    are of the latest 1,024 operations that may be trimmed. `nmse` is there where it is known: of a simulation that measures it. Of all groups of this process
    unless `source` is given.
    """

    def __init__(self, writer: Writer, source: Source | None = None, *, prefix: str = "trimwire") -> None:
        self._writer, self._prefix = writer, prefix
        self._read: Callable[[], dict[str, float]] = all_stats if source is None else source.stats
        self._last: dict[str, float] = {}

    def write(self, step: int) -> dict[str, float]:
        """Writes, and gives, the figures of this step."""
        totals = self._read()

        def since(name: str) -> float:
            return totals.get(name, 0.0) - self._last.get(name, 0.0)

        scalars = {}
        for name, (part, whole) in _SHARES.items():
            if since(whole) > 0.0:
                scalars[name] = since(part) / since(whole)
        if "bytes_sent" in totals:
            scalars["sent_mb"] = since("bytes_sent") / 1e6
        for percent in ("p50", "p99"):
            if f"{percent}_seconds" in totals:
                scalars[f"all_reduce_{percent}_ms"] = totals[f"{percent}_seconds"] * 1e3
        if "nmse" in totals:
            scalars["nmse"] = totals["nmse"]
        for name, value in scalars.items():
            self._writer.add_scalar(f"{self._prefix}/{name}", value, step)
        self._last = totals
        return scalars
