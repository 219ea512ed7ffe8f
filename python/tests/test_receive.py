# SPDX-License-Identifier: Apache-2.0
"""How packets are received: what is asked for, refused, and warned of."""

from __future__ import annotations

import os
import urllib.request

import numpy as np
import pytest

import trimwire
from trimwire import _metrics, _truncated

NETSTAT = "TcpExt: SyncookiesSent\nTcpExt: 0\nIpExt: InNoRoutes InTruncatedPkts InMcastPkts\nIpExt: 3 {} 5\n"


def test_packets_shorter_than_they_say_are_counted_by_name_and_not_by_place() -> None:
    assert _truncated.count(NETSTAT.format(17)) == 17
    assert _truncated.count("IpExt: InNoRoutes\nIpExt: 3\n") is None
    assert _truncated.count("") is None


def test_who_would_lose_them_is_warned_of_it_and_told_what_helps(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([4, 4, 9])
    monkeypatch.setattr(_truncated, "_read", lambda: next(values))
    monkeypatch.setattr(_truncated, "_PAUSE", 0.0)
    with pytest.warns(RuntimeWarning, match="dropped 5 packets .*receive='raw'.*CAP_NET_RAW"):
        _truncated._look(4)


def test_what_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="receive: 'ear'; valid are 'socket', 'raw'"):
        trimwire.Group("127.0.0.1", receive="ear")
    with pytest.raises(ValueError, match="checksums: 'half'; valid are 'filled', 'zero'"):
        trimwire.Group("127.0.0.1", checksums="half")
    with pytest.raises(ValueError, match="metrics: 'nowhere'; valid is HOST:PORT"):
        _metrics.serve("nowhere")


def test_a_group_that_receives_raw_sums_and_its_counters_can_be_scraped() -> None:
    try:
        groups = [trimwire.Group("127.0.0.1", receive="raw", checksums="zero") for _ in range(2)]
    except trimwire.TransportError as error:
        assert os.geteuid() != 0 or "permitted" in str(error), error
        pytest.skip(f"SKIPPED: {error}")
    addresses = [group.address for group in groups]
    tensors = [np.full(50_000, rank + 1.0, dtype=np.float32) for rank in range(2)]
    works = [group.connect(rank, addresses).all_reduce(tensor) for rank, (group, tensor) in enumerate(zip(groups, tensors, strict=True))]
    for work, tensor in zip(works, tensors, strict=True):
        work.wait(30)
        assert trimwire.nmse(tensor, np.full(50_000, 3.0)) < 1e-8
    port = _metrics.serve("127.0.0.1:0")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        said = dict(line.rsplit(maxsplit=1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
    assert int(said["trimwire_operations_total"]) >= 2 and int(said["trimwire_bytes_sent_total"]) > 100_000
    # What `trimwire-agent top` reads.
    assert any(f'trimwire_agent_rank_info{{rank="{rank}",world="2"}}' in said for rank in range(2))
    counted = [int(value) for name, value in said.items() if name.startswith("trimwire_agent_peer_sent_payload_bytes_total")]
    assert len(counted) == 1 and counted[0] > 50_000
    for group in groups:
        group.close()
