# SPDX-License-Identifier: Apache-2.0
"""Promises of transcripts: what a run records, others read, and simulated networks do the same once more."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trimwire
from trimwire._transcript import Transcript

#: Two shards of two rows.
LENGTH = 131_072
#: Coordinates of the packets of the transcripts that are written here, which divide rows evenly, and bytes of their planes of one bit.
PACKET, PLANE = 512, 64
#: Packets of a shard of nine planes in 1,500 bytes.
PACKETS = len(trimwire.encode(np.zeros(LENGTH // 2, dtype=np.float32), planes=9))
WHOLE, MISSING = -1, None


def recorded(tmp_path: Path, world: int = 2, channels: int = 1) -> None:
    """Two all-reduces that may be cut around an exact one, and a broadcast."""
    groups = [trimwire.Group("127.0.0.1", channels=channels) for _ in range(world)]

    def work(rank: int) -> None:
        group = groups[rank].connect(rank, [other.address for other in groups], seed=7, record=tmp_path / "run")
        for exact in (False, True, False):
            group.all_reduce(np.full(LENGTH, rank + 1.0, dtype=np.float32), exact=exact).wait(60)
        group.broadcast(np.zeros(1_000, dtype=np.float32)).wait(60)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    for group in groups:
        group.close()
        said = group.recorded()
        assert said is not None and said["lost"] == 0 and said["error"] is None
        assert said["records"] >= 4 + 4


def test_what_a_group_records_is_read_again(tmp_path: Path) -> None:
    recorded(tmp_path)
    said = Transcript(tmp_path / "run")
    # The exact one cannot be cut.
    assert said.world == 2 and said.operations == [0, 2]
    for nth in range(3):
        for rank in range(2):
            for fates in (said.to_owner(nth, 1 - rank, rank), said.from_owner(nth, 1 - rank, rank)):
                assert len(fates) == PACKETS and (fates == 0xFFFF_FFFF).all()


def test_what_several_channels_recorded_is_refused_with_what_helps(tmp_path: Path) -> None:
    recorded(tmp_path, channels=2)
    with pytest.raises(ValueError, match="run: ranks had several channels; .* recorded with channels=1"):
        Transcript(tmp_path / "run")


def test_the_agent_shows_what_a_group_records(tmp_path: Path) -> None:
    agent = shutil.which("trimwire-agent")
    if agent is None:
        pytest.skip("SKIPPED: no trimwire-agent on PATH")
    recorded(tmp_path)
    words = [agent, "transcript", "show", "--json", str(tmp_path / "run.0"), str(tmp_path / "run.1")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.dumps(json.loads(done.stdout))
    assert shown.count("all-reduce") == 3 and shown.count("broadcast") == 1


def test_a_file_that_cannot_be_made_or_read_is_named(tmp_path: Path) -> None:
    group = trimwire.Group("127.0.0.1")
    with pytest.raises(OSError, match="record: cannot record to .*nowhere/run.0"):
        group.connect(0, [group.address], record=tmp_path / "nowhere" / "run")
    # And may be tried again.
    group.connect(0, [group.address], record=tmp_path / "{rank}-run").close()
    assert (tmp_path / "0-run").exists()
    with pytest.raises(OSError, match="run.0"):
        Transcript(tmp_path / "run")
    with pytest.raises(ValueError, match="no all-reduce"):
        Transcript(tmp_path / "{rank}-run")
    (tmp_path / "run.0").write_bytes(b"something else, and long enough for a header")
    with pytest.raises(ValueError, match=r"run\.0: no transcript"):
        Transcript(tmp_path / "run")


def line(what: dict[str, Any]) -> bytes:
    """By docs/reference/transcript.md: each line is a gzip member of its own."""
    return gzip.compress(json.dumps(what).encode() + b"\n")


def message(sender: int, number: int, phase: int, shard: int, held: list[int | None]) -> dict[str, Any]:
    shape = {"codec": "rht", "planes": 9, "coordinates_per_packet": PACKET, "row_log2": 12, "tensors": [[LENGTH // 2, 0]]}
    times = {"started_ns": 5, "duration_ns": 6, "first_ns": None, "last_ns": None}
    identity = number << 11 | phase << 10 | shard
    return {"message": {"from": sender, "message": identity, "shape": shape, "delivered": True, **times, "duplicates": 0, "probes": 0, "asked": 0, "held": held}}


def written(path: Path, fates: dict[tuple[int, int, int], int | None], rank: int) -> None:
    """A transcript of rank `rank` of two: of (operation, phase, shard) what became of all packets of the other's message."""
    out = line({"trimwire": "transcript", "version": 2, "job": 0, "rank": rank, "world": 2, "seed": 7})
    for (number, phase, shard), fate in fates.items():
        out += line(message(1 - rank, number, phase, shard, [fate] * (LENGTH // 2 // PACKET)))
    for number in (0, 1):
        said = {"number": number, "name": "all-reduce", "coordinates": LENGTH, "planes": 9, "decoding": "unbiased", "exact": False, "consistent": False}
        out += line({"operation": {**said, "started_ns": 1, "duration_ns": 2, "repaired": 0, "digest": None, "failure": None}})
    path.with_name(f"{path.name}.{rank}").write_bytes(out)


#: What rank 0 had, and rank 1: of rank 1's part of shard 0 on the way there, of the sum of shard 1 on the way back.
#: In front of the planes of packets of 16 blocks stands the mask of zero blocks.
ONE_PLANE, EIGHT_PLANES = 2 + PLANE, 2 + 8 * PLANE
FATES = (
    {(0, 0, 0): ONE_PLANE, (0, 1, 1): WHOLE, (1, 0, 0): WHOLE, (1, 1, 1): MISSING},
    {(0, 0, 1): WHOLE, (0, 1, 0): WHOLE, (1, 0, 1): WHOLE, (1, 1, 0): EIGHT_PLANES},
)


def test_a_written_transcript_says_what_is_left_of_every_packet(tmp_path: Path) -> None:
    for rank in range(2):
        written(tmp_path / "run", FATES[rank], rank)
    said = Transcript(tmp_path / "run")
    assert said.operations == [0, 1]
    assert set(said.to_owner(0, 1, 0)) == {1 + (1 << 16)} and set(said.from_owner(1, 0, 1)) == {1 + (8 << 16)}
    assert set(said.from_owner(1, 1, 0)) == {0} and set(said.to_owner(0, 0, 1)) == {0xFFFF_FFFF}
    # After the last comes the first.
    assert set(said.to_owner(2, 1, 0)) == {1 + (1 << 16)}
    assert set(said.least(1, 1)) == {0}
    written(tmp_path / "run", {}, 1)
    with pytest.raises(ValueError, match="operation 0: shard 1 of rank 0, on its way to its owner, is not in the file of rank 1"):
        Transcript(tmp_path / "run").to_owner(0, 0, 1)
    (tmp_path / "run.1").write_bytes((tmp_path / "run.0").read_bytes())
    with pytest.raises(ValueError, match="the file of rank 1 is rank 0's of 2"):
        Transcript(tmp_path / "run")


def gradients(rank: int, world: int, path: str, steps: int) -> dict[str, Any]:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from ranks import hooked

    from trimwire.torch import Simulation

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))

    class Gradient(nn.Module):
        """Whose gradient is whatever it is given."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(LENGTH))

        def forward(self, gradient: torch.Tensor) -> torch.Tensor:
            return (self.weight * gradient).sum()

    model = DistributedDataParallel(Gradient())
    hook = hooked(model, simulate=Simulation(transcript=path, sent_planes=9, measure=True))
    got, stats = [], []
    for _ in range(steps):
        model.zero_grad()
        model(torch.randn(LENGTH, generator=torch.Generator().manual_seed(rank))).backward()
        got.append(model.module.weight.grad.numpy().copy())
        stats.append(hook.stats())
    refused = ""
    try:
        hooked(DistributedDataParallel(Gradient(), process_group=dist.new_group([rank], use_local_synchronization=True)), simulate=Simulation(transcript=path))
    except ValueError as error:
        refused = str(error)
    dist.barrier()
    dist.destroy_process_group()
    return {"got": got, "stats": stats, "refused": refused}


def test_a_simulated_network_does_what_the_recorded_one_did(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from ranks import run

    for rank in range(2):
        written(tmp_path / "run", FATES[rank], rank)
    results = run(gradients, 2, str(tmp_path / "run"), 3)
    own = [torch.randn(LENGTH, generator=torch.Generator().manual_seed(rank)).double().numpy() for rank in range(2)]
    exact, half = sum(own) / 2, LENGTH // 2
    sign = trimwire.expected_nmse({1: 1.0})
    assert sign is not None
    for rank, result in enumerate(results):
        first, second, again = result["got"]
        # The first all-reduce: rank 1's part of shard 0 came as signs, all else as it was sent.
        assert trimwire.nmse(first[:half], exact[:half]) == pytest.approx(sign / 2, rel=0.15)
        assert trimwire.nmse(first[half:], exact[half:]) < 1e-8
        # The second: rank 0 lacks the sum of shard 1, and rank 1 has eight planes of shard 0's.
        if rank == 0:
            assert not second[half:].any() and trimwire.nmse(second[:half], exact[:half]) < 1e-8
        else:
            assert 1e-7 < trimwire.nmse(second[:half], exact[:half]) < 1e-3
            assert trimwire.nmse(second[half:], exact[half:]) < 1e-8
        # And from the first once more, with other rotations.
        assert trimwire.nmse(again[:half], exact[:half]) == pytest.approx(sign / 2, rel=0.15) and (again != first).any()
        # What this rank sent to owners and got of them: two messages a step.
        sent_cut, got_missing, got_cut = (PACKETS if rank == 1 else 0), (PACKETS if rank == 0 else 0), (PACKETS if rank == 1 else 0)
        said = result["stats"]
        assert [one["packets"] for one in said] == [2 * PACKETS, 4 * PACKETS, 6 * PACKETS]
        assert [one["packets_trimmed"] for one in said] == [sent_cut, sent_cut + got_cut, 2 * sent_cut + got_cut]
        assert [one["packets_missing"] for one in said] == [0, got_missing, got_missing]
        assert "is of 2 ranks; the model's group has 1" in result["refused"]


def test_replayed_shares_are_the_recorded_ones_of_a_network_that_cuts(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    agent = shutil.which("trimwire-agent")
    if agent is None:
        pytest.skip("SKIPPED: no trimwire-agent on PATH")
    from ranks import free_port, run

    words = [agent, "perf", "all-reduce", "-b", str(4 * LENGTH), "-e", str(4 * LENGTH), "-n", "2", "-w", "0", "--planes", "9", "--json"]
    words += ["--set", "faults=truncate=0.2,drop=0.05", "--loss", "0.9", "--record", str(tmp_path / "run")]
    # The packets that the replay has; over loopback they would be larger.
    words += ["--mtu", "1500"]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    children = [
        subprocess.Popen(words, env={**os.environ, **shared, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)
    ]
    for child in children:
        _, errors = child.communicate(timeout=120)
        assert child.returncode == 0, errors
    said = Transcript(tmp_path / "run")
    steps = len(said.operations)
    recorded_counts = []
    for rank in range(2):
        fates = [
            fates
            for nth in range(steps)
            for fates in (said.to_owner(nth, rank, 1 - rank), said.from_owner(nth, 1 - rank, rank))
        ]
        everything = np.concatenate(fates)
        recorded_counts.append((len(everything), int((everything == 0).sum()), int(((everything != 0) & (everything != 0xFFFF_FFFF)).sum())))
    assert all(missing > 0 and cut > packets // 10 for packets, missing, cut in recorded_counts)
    for result, (packets, missing, cut) in zip(run(gradients, 2, str(tmp_path / "run"), steps), recorded_counts, strict=True):
        stats = result["stats"][-1]
        assert (stats["packets"], stats["packets_missing"], stats["packets_trimmed"]) == (packets, missing, cut)
