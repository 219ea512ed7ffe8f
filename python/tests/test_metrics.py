# SPDX-License-Identifier: Apache-2.0
"""Promises about what is told of the network: totals, percentiles, TensorBoard's scalars, the profiler's ranges."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import ranks  # noqa: E402
from ranks import run  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import trimwire  # noqa: E402
import trimwire.torch  # noqa: E402
from trimwire.torch import _work  # noqa: E402


class Writer:
    def __init__(self) -> None:
        self.written: dict[str, list[tuple[int | None, float]]] = {}

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        self.written.setdefault(tag, []).append((global_step, scalar_value))


def measured(rank: int, world: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    dist.init_process_group("trimwire", timeout=datetime.timedelta(seconds=60), pg_options=trimwire.torch.Options(gradients="lossy"))
    gloo = dist.new_group(backend="gloo")
    hooked = DistributedDataParallel(nn.Linear(300, 300), process_group=gloo)
    hook = ranks.hooked(hooked)
    model = DistributedDataParallel(nn.Linear(300, 300))
    writer = Writer()
    scalars = trimwire.torch.Scalars(writer)
    for step in range(3):
        for each in (hooked, model):
            each(torch.ones(4, 300)).sum().backward()
        scalars.write(step)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for each in (hooked, model):
            each(torch.ones(4, 300)).sum().backward()
        dist.all_reduce(torch.ones(100_000))
    ranges = {event.name: event.cpu_time_total for event in profiler.events() if event.name.startswith("trimwire::")}
    got = {
        "all": trimwire.stats(),
        "hook": hook.stats(),
        "backend": dist.group.WORLD.stats(),
        "written": writer.written,
        "ranges": ranges,
    }
    dist.barrier()
    hook.close()
    got["without the hook"] = trimwire.stats()
    dist.destroy_process_group()
    return got


def test_totals_scalars_and_ranges_are_there() -> None:
    for got in run(measured, 2):
        everything, hook, backend = got["all"], got["hook"], got["backend"]
        # A bucket a step of three, and one in the profile; with each its bias, exactly.
        assert hook["operations"] == 8
        for name in ("operations", "bytes_sent", "packets_sent", "packets_received"):
            assert everything[name] == hook[name] + backend[name], name
            assert got["without the hook"][name] < everything[name]
        for stats in (everything, hook, backend):
            assert 0.0 < stats["p50_seconds"] <= stats["p99_seconds"] < 60.0
        written = got["written"]
        for name in ("trimmed_share", "missing_share", "repaired_share", "sent_mb", "all_reduce_p50_ms", "all_reduce_p99_ms"):
            assert [step for step, _ in written[f"trimwire/{name}"]] == [0, 1, 2], name
        # Two models' 90,300 coordinates at a byte: half of each to the other rank, and the sum of the other half. What is on its way when a step ends is the next one's;
        # parameters, four bytes each, were broadcast before.
        sent = sum(sent for _, sent in written["trimwire/sent_mb"])
        assert 2 * 2 * 0.0903 < sent < 3 * 2 * 0.0903 * 1.3 + 2 * 0.3612 * 1.3
        assert all(share == 0.0 for _, share in written["trimwire/trimmed_share"])
        assert {"trimwire::bucket 0", "trimwire::collective", "trimwire::wait"} <= set(got["ranges"])
        assert min(got["ranges"].values()) > 0.0


class Later:
    """A part that is over, well or not, a moment after somebody listens."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def then(self, callback: Callable[[], object]) -> None:
        threading.Timer(0.05, callback).start()

    def error(self) -> str | None:
        return self.text

    def culprit(self) -> int | None:
        return None

    def cancel(self) -> None: ...


@pytest.mark.parametrize("error", [None, "the network is down"])
def test_who_waits_goes_on_after_the_profilers_range_has_ended(monkeypatch: pytest.MonkeyPatch, error: str | None) -> None:
    # The other way round a profiler was read while another thread wrote to it: `bad_array_new_length`, or a crash.
    ended = threading.Event()

    def late(_: Any, future: Any) -> Any:
        def end(over: Any) -> Any:
            time.sleep(0.2)
            ended.set()
            return over.value()

        return future.then(end)

    monkeypatch.setattr(_work, "until_done", late)
    reports = _work.Reports(dist.HashStore(), 0, [0], "0")
    work = _work.TrimwireWork("all_reduce", 1, reports, [Later(error)], [torch.ones(1)], None, lambda: 60.0)
    work.begin()
    called = threading.Event()
    work.then(lambda: called.set() if ended.is_set() else None)
    assert not work.is_completed()
    if error is None:
        assert work.wait()
    else:
        with pytest.raises(trimwire.torch.CollectiveError, match=error):
            work.wait()
    assert ended.is_set()
    assert called.wait(10)
    assert work.is_completed()
    assert work.is_success() is (error is None)


def test_percentiles_are_the_nearest_ranks() -> None:
    from trimwire._group import _percentiles

    assert _percentiles([]) == {}
    assert _percentiles([3.0]) == {"p50_seconds": 3.0, "p99_seconds": 3.0}
    assert _percentiles([float(n) for n in range(200, 0, -1)]) == {"p50_seconds": 100.0, "p99_seconds": 198.0}


def test_shares_are_since_the_last_time() -> None:
    class Source:
        totals: dict[str, float] = {"packets_trimmed": 10, "packets_received": 40, "packets_missing": 0, "packets_sent": 40, "packets_repaired": 4, "nmse": 0.25}

        def stats(self) -> dict[str, float]:
            return dict(self.totals)

    source, writer = Source(), Writer()
    scalars = trimwire.torch.Scalars(writer, source, prefix="net")
    assert scalars.write(1) == {"trimmed_share": 0.25, "missing_share": 0.0, "repaired_share": 0.1, "nmse": 0.25}
    source.totals |= {"packets_trimmed": 11, "packets_received": 44}
    assert scalars.write(2) == {"trimmed_share": 0.25, "missing_share": 0.0, "nmse": 0.25}
    assert writer.written["net/trimmed_share"] == [(1, 0.25), (2, 0.25)]
