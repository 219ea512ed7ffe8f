# SPDX-License-Identifier: Apache-2.0
"""Promises about jobs that are set up wrongly: they end at once, or warn, and the text names what to mend."""

from __future__ import annotations

import datetime
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import ranks  # noqa: E402
from ranks import run  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import trimwire.torch  # noqa: E402
from trimwire import _metrics, _native  # noqa: E402
from trimwire.torch import Network, Options, TrimwireState, _options, _rendezvous  # noqa: E402

REPOSITORY = Path(os.environ.get("TRIMWIRE_REPOSITORY", Path(__file__).resolve().parents[2]))


class Listening:
    """A group that would listen on an address that this host need not have."""

    def __init__(self, address: str, **_: Any) -> None:
        self.address, self.channels, self.mtu, self.agreed_mtu = f"{address}:7000", 1, 1_500, None

    def keep_channels(self, channels: int) -> None:
        self.channels = channels

    def connect(self, rank: int, addresses: list[str], **_: Any) -> list[str]:
        return addresses


def meet(addresses: list[str], each: Callable[[int], dict[str, Any]] = lambda _: {}, **options: Any) -> list[Any]:
    """What ranks that listen there make of each other, by rank."""
    store, world = dist.HashStore(), len(addresses)
    results: list[Any] = [None] * world

    def one(rank: int) -> None:
        try:
            chosen = _options.changed(_options.changed(Options(), options), {"network": {"address": addresses[rank], **each(rank)}})
            results[rank] = _rendezvous.connect(store, rank, world, timeout=datetime.timedelta(seconds=30), options=chosen)
        except RuntimeError as error:
            results[rank] = str(error)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=40)
    return results


def test_a_rank_on_loopback_that_the_others_cannot_reach_is_named_at_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rendezvous, "Group", Listening)
    for addresses, rank, other in (
        (["127.0.0.1", "10.9.0.2"], 0, 1),
        (["10.9.0.1", "10.9.0.2", "127.0.1.1"], 2, 0),
        (["[::1]", "[fd00::2]"], 0, 1),
    ):
        (said,) = set(meet(addresses))
        assert f"rank {rank} listens on {addresses[rank]}:7000, which rank {other} on {addresses[other]}:7000 cannot reach; TRIMWIRE_SOCKET_IFNAME" in said
        assert "/etc/hosts" in said
    for addresses in (["127.0.0.1", "127.0.0.3"], ["10.9.0.1", "10.9.0.2"]):
        assert meet(addresses) == [[f"{address}:7000" for address in addresses]] * 2


@pytest.mark.parametrize(
    ("cores", "options", "channels"),
    [
        (["0-3", "4-7"], {}, 4),
        (["0-7", "0-7"], {}, 4),
        # Of one host: three and a half each.
        (["0-6", "0-6"], {}, 3),
        (["0-3,8-11/7", "0-15"], {}, 3),
        (["0-15", "0-15"], {"network": {"channels": 2}}, 2),
        (["0", "0-15"], {}, 1),
        (["0-15", "0-15"], {"codec": "triton"}, 1),
    ],
)
def test_ranks_have_as_many_channels_as_the_processors_of_all_allow(monkeypatch: pytest.MonkeyPatch, cores: list[str], options: dict[str, Any], channels: int) -> None:
    left = [*cores]
    monkeypatch.setattr(_native, "own_cores", lambda: left.pop())
    monkeypatch.setattr(_rendezvous, "codec_of", lambda given: given if given == "triton" else "host")
    groups = meet(["127.0.0.1", "127.0.0.1"], **options)
    try:
        assert [group.channels for group in groups] == [channels] * 2
        works = [group.all_reduce(np.ones(200_000, np.float32)) for group in groups]
        for work in works:
            work.wait()
    finally:
        for group in groups:
            group.close()


def test_ranks_that_were_told_and_ranks_that_were_not_name_each_other() -> None:
    def options(rank: int) -> dict[str, Any]:
        return {"channels": 2} if rank else {}

    (said,) = set(meet(["127.0.0.1", "127.0.0.1"], each=options))
    assert said == "rank 1 has channels 2, rank 0 by processors: they have to be the same"


def misspelt(environment: dict[str, str]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _options.warn_of_misspelt(environment)
    return [str(warning.message) for warning in caught]


def test_a_misspelt_variable_is_a_warning_that_names_the_right_one() -> None:
    for name, right in (("GRADIENT", "GRADIENTS"), ("GRADINETS", "GRADIENTS"), ("PLANE", "PLANES"), ("LOCALSIZE", "LOCAL_SIZE"), ("SOCKET_IFNAMES", "SOCKET_IFNAME"), ("SEALKEY", "SEAL_KEY")):
        assert misspelt({f"TRIMWIRE_{name}": "lossy"}) == [f"TRIMWIRE_{name} is no variable of trimwire: did you mean TRIMWIRE_{right}?"]
        # Once a host.
        assert misspelt({f"TRIMWIRE_{name}": "lossy", "LOCAL_RANK": "1"}) == []
    assert misspelt({"TRIMWIRE_GRADIENTS": "lossy", "TRIMWIRE_MTU": "1500", "TRIMWIRE_COLOUR_OF_MY_BIKE": "red", "GRADIENT": "lossy"}) == []


def test_a_group_that_starts_looks_for_misspelt_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rendezvous, "Group", Listening)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setenv("TRIMWIRE_GRADIENT", "lossy")
    # Of a group whose options the program gives, too.
    with pytest.warns(RuntimeWarning, match="did you mean TRIMWIRE_GRADIENTS"):
        meet(["127.0.0.1"])


def test_variables_of_the_other_programs_and_of_tests_are_not_taken_for_misspelt_ones() -> None:
    page, script = REPOSITORY / "docs/reference/generated/environment.md", REPOSITORY / "packaging/reference.py"
    if not page.exists():
        pytest.skip(f"SKIPPED: no {page}; TRIMWIRE_REPOSITORY names the repository")
    names = set(re.findall(r"TRIMWIRE_[A-Z0-9_]*[A-Z0-9]\b", page.read_text() + script.read_text()))
    others = {name: "" for name in names if name.removeprefix("TRIMWIRE_") not in _options._NAMES}
    assert "TRIMWIRE_BIN_DIR" in others and "TRIMWIRE_UPDATE_GOLDENS" in others
    assert misspelt(others) == []


def test_words_for_yes_and_no_are_those_that_the_error_lists() -> None:
    for text, value in (("1", True), ("true", True), ("True", True), ("0", False), ("false", False)):
        assert _options.from_environment({"TRIMWIRE_CONSISTENT": text}).consistent is value
    with pytest.raises(ValueError, match="TRIMWIRE_CONSISTENT=yes: valid are 0, 1, false and true"):
        _options.from_environment({"TRIMWIRE_CONSISTENT": "yes"})


@pytest.mark.parametrize("given", ["much", "575", "9217", "9000000"])
def test_an_mtu_that_no_packet_can_have_is_refused_by_the_variables_name(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("TRIMWIRE_MTU", given)
    with trimwire.Group("127.0.0.1") as group, pytest.raises(ValueError, match=f"TRIMWIRE_MTU: '{given}'; valid are 576 to 9216"):
        _ = group.mtu


def test_a_port_for_metrics_that_is_taken_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=rf"metrics \(TRIMWIRE_METRICS={address}\): cannot listen on {address}: Address already in use"):
            _metrics.serve(address)


def test_interfaces_that_there_are_not_are_named_with_the_variable_that_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMWIRE_SOCKET_IFNAME", "eth9x")
    with pytest.raises(ValueError, match="TRIMWIRE_SOCKET_IFNAME 'eth9x' selects none of the interfaces; there are: .*lo"):
        trimwire.Group()


def hooked(rank: int, world: int, size: int) -> list[str]:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    state = TrimwireState(local_size=size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state.connect()
    dist.barrier()
    state.close()
    dist.destroy_process_group()
    return [str(warning.message) for warning in caught if "trimwire" in str(warning.message)]


def test_a_hook_that_sends_nothing_because_all_ranks_share_a_host_says_so_once() -> None:
    first, second = run(hooked, 2, 2)
    assert second == [] and len(first) == 1
    assert "no gradient goes through trimwire. TRIMWIRE_LOCAL_SIZE=1" in first[0]
    assert run(hooked, 2, 1) == [[], []]


def test_ranks_between_which_no_udp_passes_name_each_other_soon_and_not_after_the_groups_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as firewall:
        firewall.bind(("127.0.0.1", 0))

        class Blocked(trimwire.Group):
            """What is sent to rank 1 comes to a socket that nobody reads."""

            @property
            def address(self) -> str:
                return f"127.0.0.1:{firewall.getsockname()[1]}"

        def listen(*arguments: Any, **options: Any) -> trimwire.Group:
            kind = Blocked if threading.current_thread().name == "rank 1" else trimwire.Group
            return kind(*arguments, **options)

        monkeypatch.setattr(_rendezvous, "Group", listen)
        store, said = dist.HashStore(), [""] * 2

        def one(rank: int) -> None:
            options = Options(give_up=1.0, network=Network(address="127.0.0.1", rendezvous_timeout=0.5))
            # The group's timeout is longer than anybody waits for this test.
            with _rendezvous.connect(store, rank, 2, timeout=datetime.timedelta(hours=1), options=options) as group:
                try:
                    group.all_reduce(np.ones(1_000, dtype=np.float32)).wait(120)
                except trimwire.TransportError as error:
                    said[rank] = str(error)

        threads = [threading.Thread(target=one, args=(rank,), name=f"rank {rank}") for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=180)
    for rank, text in enumerate(said):
        assert f"rank {1 - rank}" in text and "trimwire-agent doctor" in text, said


def test_seconds_to_meet_are_refused_where_they_are_none() -> None:
    assert Network(rendezvous_timeout=0).rendezvous_timeout == 0
    for value in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"rendezvous_timeout: .*valid are seconds from 0 on"):
            Network(rendezvous_timeout=value)


def debugged(level: str | None) -> str:
    """What a program that makes a group of one writes to stderr."""
    environment = {name: text for name, text in os.environ.items() if name != "TRIMWIRE_DEBUG"}
    if level is not None:
        environment["TRIMWIRE_DEBUG"] = level
    program = "import trimwire; group = trimwire.Group('127.0.0.1'); group.connect(0, [group.address]); group.close()"
    ended = subprocess.run([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE, text=True, check=True)
    return ended.stderr


def test_trimwire_debug_says_what_a_python_process_does_and_a_level_that_there_is_not_is_a_warning() -> None:
    assert "rank 0 of 1 listens on 127.0.0.1:" in debugged("info")
    for level in (None, "", "warn"):
        assert "rank 0 of 1" not in debugged(level)
    # Of one module alone.
    assert "rank 0 of 1" in debugged("trimwire_native=info") and "rank 0 of 1" not in debugged("trimwire_agent=info")
    said = debugged("trimwire=shout")
    assert "WARN" in said and "TRIMWIRE_DEBUG=trimwire=shout: " in said and "trimwire_agent=debug" in said


class Lines(logging.Handler):
    """What is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def lines(rank: int, world: int, backend: str, **options: Any) -> list[str]:
    """What a rank says between its start and its end."""
    heard = Lines()
    logging.getLogger("trimwire").addHandler(heard)
    trimwire.torch.options(**options)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60))
    if backend == "trimwire":
        dist.all_reduce(torch.ones(40_000))
        # Groups beside it say nothing.
        dist.new_group([0, 1])
    else:
        model = DistributedDataParallel(torch.nn.Linear(200, 200))
        hook = ranks.hooked(model)
        model(torch.ones(1, 200)).sum().backward()
        hook.close()
    dist.destroy_process_group()
    return heard.lines


def lines_of_lossy(rank: int, world: int) -> list[str]:
    return lines(rank, world, "trimwire", gradients="lossy", planes=9)


def lines_of_exact(rank: int, world: int) -> list[str]:
    return lines(rank, world, "trimwire")


def lines_of_hook(rank: int, world: int) -> list[str]:
    return lines(rank, world, "gloo", consistent=False)


@pytest.mark.parametrize(
    ("job", "sums"),
    [
        (lines_of_lossy, "of 9 planes from 16,384 elements on, replicas equal"),
        (lines_of_exact, "exact"),
        (lines_of_hook, "of 8 planes from 16,384 elements on, replicas not kept equal"),
    ],
)
def test_rank_0_says_in_a_line_what_runs_and_in_another_what_became_of_it(job: Callable[[int, int], list[str]], sums: str) -> None:
    (first, last), others = run(job, 2)
    assert others == []
    assert re.fullmatch(rf"trimwire: 2 ranks, sums {re.escape(sums)}; rank 0 listens on 127\.0\.0\.1:\d+, packets fit an MTU of \d+", first)
    assert re.fullmatch(r"trimwire: rank 0 is done: \d+ operations, \d+\.\d MB sent; of \d+ packets for it 0\.00 % were trimmed and 0\.000 % missed, and \d+ were sent again", last)
