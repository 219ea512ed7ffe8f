# SPDX-License-Identifier: Apache-2.0
"""How ranks learn each other's addresses: by the launcher's store."""

from __future__ import annotations

import datetime
import ipaddress
import json
import logging
import os
import secrets
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from .. import _native
from .._group import Group, default_address
from ._device import codec_of
from ._options import Network, Options

_AGREED = ("version", "planes", "gradients", "consistent", "adaptive", "channels")

_log = logging.getLogger("trimwire")

#: So long rank 0 waits until the others have read that all are there, seconds.
_HEARING = 2.0


def connect(store: dist.Store, rank: int, world: int, *, timeout: datetime.timedelta, options: Options | None = None, apart: bool = False) -> Group:
    """A group of all ranks that share `store`.

    Rank 0 draws the seed of the rotations. Where some code tensors with kernels on GPUs, all send directly.

    Args:
        store: a torch.distributed.Store; a PrefixStore for each group.
        rank: this rank of the group.
        world: how many there are.
        timeout: the others have to be there after so long.
        options: how the group works; those of `trimwire.torch.options` by default.
        apart: the transcript gets the seed in its name, so that groups have files of their own.

    Raises:
        RuntimeError: a rank cannot start, as it has said, or they differ in what they have to agree on, or some of them listen where others cannot reach them.
    """
    from .. import __version__, _adaptive, _metrics
    from ._options import current, warn_of_misspelt

    chosen = current() if options is None else options
    network = chosen.network
    try:
        warn_of_misspelt()
        codec, cores = codec_of(chosen.codec), _cores(network)
        # As many as its own processors allow: the others' may be fewer.
        channels = network.channels or (_native.default_channels([("127.0.0.1:1", cores)]) if cores and codec != "triton" else 1)
        group = Group(network.address or default_address(os.environ.get("MASTER_ADDR")), port=network.port, paths=network.paths, receive=network.receive, checksums=network.checksums, channels=channels)
        if network.metrics is not None:
            _metrics.serve(network.metrics)
        own: dict[str, Any] = {
            "address": group.address,
            "version": __version__,
            "planes": chosen.planes,
            "gradients": chosen.gradients,
            "consistent": chosen.consistent,
            "adaptive": chosen.adaptive,
            "codec": codec,
            "channels": network.channels or "by processors",
            "cores": cores,
            "mtu": group.mtu,
        }
    except Exception as error:
        decline(store, rank, world, timeout, error)
        raise
    if rank == 0:
        own["seed"] = secrets.randbits(63)
    others = _exchange(store, rank, world, own, timeout)
    for other, said in enumerate(others):
        if "error" in said:
            raise RuntimeError(f"rank {other} of the group cannot start: {said['error']}")
    for other, said in enumerate(others):
        for what in _AGREED:
            if said[what] != others[0][what]:
                raise RuntimeError(f"rank {other} has {what} {said[what]}, rank 0 {others[0][what]}: they have to be the same")
        if chosen.consistent and said["codec"] != others[0]["codec"]:
            raise RuntimeError(
                f"rank {other} codes with {said['codec']}, rank 0 with {others[0]['codec']}: consistent replicas need all ranks to code alike, on GPUs or on hosts (codec='host'), or consistent=False"
            )
    _refuse_unreachable([said["address"] for said in others])
    seed: int = others[0]["seed"]
    record = network.record
    if record is not None and apart:
        record = f"{record}-{seed:016x}"
    gpus = [other for other, said in enumerate(others) if said["codec"] == "triton"]
    if gpus:
        group.send_directly()
    if network.channels is None:
        told = not gpus and all(said["cores"] for said in others)
        group.keep_channels(_native.default_channels([(said["address"], said["cores"]) for said in others]) if told else 1)
    rate_algorithm = "dctcp" if chosen.adaptive is None else _adaptive.Adaptive(chosen.adaptive, chosen.planes).rate_algorithm
    # Packets fit the smallest interface of all.
    group.agreed_mtu = min((said["mtu"] for said in others if said["mtu"] is not None), default=None)
    return group.connect(
        rank,
        [said["address"] for said in others],
        seed=seed,
        record=record,
        mtu=group.agreed_mtu,
        seal_key=chosen._secret,
        rate_bps=network.rate_bps,
        trim_delay=network.trim_delay,
        give_up=chosen.give_up,
        operation_timeout=chosen.operation_timeout or max(float(timeout.total_seconds()), 0.001),
        # All are here: their sockets are open, and what is sent to them waits there.
        rendezvous_timeout=network.rendezvous_timeout or None,
        rate_algorithm=rate_algorithm,
    )


def announce(group: Group, options: Options, *, lossy: bool) -> None:
    """Says at rank 0, to the logger 'trimwire', what runs, and at the group's end what became of it. A program without logging gets it on stderr; one that wants neither raises the logger's level.

    Args:
        group: whose ranks are connected.
        options: how it works.
        lossy: its sums may be trimmed, as those of a hook may, whatever `options.gradients` says.
    """
    if group.rank != 0:
        return
    if not _log.hasHandlers():
        _log.addHandler(logging.StreamHandler())
    if _log.level == logging.NOTSET:
        _log.setLevel(logging.INFO)
    sums = "exact"
    if lossy:
        planes = options.planes if options.adaptive is None else f"up to {options.planes} ({options.adaptive})"
        sums = f"of {planes} planes from {options.smallest:,} elements on, replicas {'equal' if options.consistent else 'not kept equal'}"
    mtu = "1500" if group.agreed_mtu is None else group.agreed_mtu
    _log.info("trimwire: %d ranks, sums %s; rank 0 listens on %s, packets fit an MTU of %s%s", group.world, sums, group.address, mtu, "" if options.seal_key is None else ", sealed")

    def farewell(stats: dict[str, float]) -> None:
        if packets := int(stats["packets_received"]):
            trimmed, missing = (100 * stats[name] / packets for name in ("packets_trimmed", "packets_missing"))
            _log.info(
                "trimwire: rank 0 is done: %d operations, %.1f MB sent; of %d packets for it %.2f %% were trimmed and %.3f %% missed, and %d were sent again",
                stats["operations"], stats["bytes_sent"] / 1e6, packets, trimmed, missing, stats["packets_repaired"],
            )

    group.farewell = farewell


def _cores(network: Network) -> str | None:
    """This process' processors, where it may have as many channels as they allow. Ports behind one that was given may be anybody's; what is recorded is to be repeated with other processors, too."""
    told = network.channels is not None or network.port != 0 or network.record is not None
    return None if told else _native.own_cores()


def decline(store: dist.Store, rank: int, world: int, timeout: datetime.timedelta, error: Exception) -> None:
    """Tells the others that this rank does not come, for which they would wait."""
    _exchange(store, rank, world, {"error": f"{type(error).__name__}: {error}"}, timeout)


def _refuse_unreachable(addresses: list[str]) -> None:
    """Of ranks that listen on loopback and ranks that do not, neither can reach the other. Without this they would ask each other until the group's timeout.

    Raises:
        RuntimeError: there are both; the text names a rank of each.
    """
    looped = [ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_loopback for address in addresses]
    if all(looped) or not any(looped):
        return
    rank, other = looped.index(True), looped.index(False)
    raise RuntimeError(
        f"rank {rank} listens on {addresses[rank]}, which rank {other} on {addresses[other]} cannot reach; TRIMWIRE_SOCKET_IFNAME or TRIMWIRE_ADDRESS choose another address "
        "(where MASTER_ADDR is a host's name, look whether that host's /etc/hosts leads it to 127.0.1.1)"
    )


def _exchange(store: dist.Store, rank: int, world: int, own: dict[str, Any], timeout: datetime.timedelta) -> list[dict[str, Any]]:
    """What every rank says, by rank.

    A launcher may keep its store when it starts ranks again, and with it what ranks said that are gone. So rank 0 makes a list of what is there, every rank looks whether it is in it as it is
    now, and the list counts once all of them have found themselves.

    Raises:
        RuntimeError: a rank has not come in time.
    """
    end = time.monotonic() + float(timeout.total_seconds())
    mine = {"nonce": secrets.token_hex(8), **own}
    store.set(f"trimwire/rank/{rank}", json.dumps(mine))
    while True:
        if rank == 0:
            keys = [f"trimwire/rank/{other}" for other in range(world)]
            _until(lambda: store.check(keys), end, lambda: _absent(store, keys))
            said = [store.get(key) for key in keys]
            number = secrets.token_hex(8)
            store.set("trimwire/list", json.dumps({"number": number, "ranks": [json.loads(one) for one in said]}))
            found = [f"trimwire/found/{number}/{other}" for other in range(1, world)]
            _until(lambda: not found or store.check(found) or [store.get(key) for key in keys] != said, end, lambda: _absent(store, found, 1))
            if found and not store.check(found):
                continue
            store.set(f"trimwire/begin/{number}", b"1")
            # The store goes with rank 0's process, which may be about to refuse the job: the others hear why, first.
            heard = [f"trimwire/heard/{number}/{other}" for other in range(1, world)]
            late = min(end, time.monotonic() + _HEARING)
            while heard and not store.check(heard) and time.monotonic() < late:
                time.sleep(0.005)
            return [json.loads(one) for one in said]
        _until(lambda: store.check(["trimwire/list"]), end, lambda: "rank 0")
        whole = store.get("trimwire/list")
        listed = json.loads(whole)
        number = listed["number"]
        if len(listed["ranks"]) == world and listed["ranks"][rank] == mine:
            store.set(f"trimwire/found/{number}/{rank}", b"1")
            begin = [f"trimwire/begin/{number}"]
            _until(lambda: store.check(begin) or store.get("trimwire/list") != whole, end, lambda: "another rank")
            if store.check(begin):
                store.set(f"trimwire/heard/{number}/{rank}", b"1")
                ranks: list[dict[str, Any]] = listed["ranks"]
                return ranks
        else:
            _until(lambda: store.get("trimwire/list") != whole, end, lambda: "rank 0")


def _absent(store: dist.Store, keys: list[str], first: int = 0) -> str:
    absent = [str(nth) for nth, key in enumerate(keys, first) if not store.check([key])]
    return f"rank{'s' if len(absent) > 1 else ''} {', '.join(absent)}"


def _until(is_so: Callable[[], bool], end: float, who: Callable[[], str]) -> None:
    """Looks again and again: who waits inside a store keeps this process' other threads out of it."""
    pause = 0.002
    while not is_so():
        if time.monotonic() > end:
            raise RuntimeError(f"{who()} of the group did not come in time: all ranks have to make it, within its timeout")
        time.sleep(pause)
        pause = min(1.5 * pause, 0.2)
