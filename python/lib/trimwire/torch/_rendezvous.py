"""How ranks learn each other's addresses: by the launcher's store."""

from __future__ import annotations

import datetime
import json
import os
import secrets
from typing import Any

import torch.distributed as dist

from .._group import Group, default_address
from ._device import codec_of
from ._options import Options

_AGREED = ("version", "planes", "gradients", "consistent", "adaptive", "plan")


def connect(store: dist.Store, rank: int, world: int, *, timeout: datetime.timedelta, options: Options | None = None, apart: bool = False, plan: str | None = None, rate_law: str | None = None) -> Group:
    """A group of all ranks that share `store`.

    Rank 0 draws the seed of the rotations. Where some code tensors with kernels on GPUs, all send directly.

    Args:
        store: a torch.distributed.Store; a PrefixStore for each group.
        rank: this rank of the group.
        world: how many there are.
        timeout: the others have to be there after so long.
        options: how the group works; those of `trimwire.torch.options` by default.
        apart: the transcript gets the seed in its name, so that groups have files of their own.
        plan: a digest of the plan, which all ranks have to have.
        rate_law: the rate algorithm of the endpoint.

    Raises:
        RuntimeError: a rank cannot start, as it has said, or they differ in what they have to agree on.
    """
    from .. import __version__, _adaptive, _metrics
    from ._options import current

    chosen = current() if options is None else options
    try:
        store.set_timeout(timeout)
        group = Group(chosen.address or os.environ.get("TRIMWIRE_ADDRESS") or default_address(os.environ.get("MASTER_ADDR")), port=chosen.port, paths=chosen.paths)
        if chosen.metrics is not None:
            _metrics.serve(chosen.metrics)
        own: dict[str, Any] = {
            "address": group.address,
            "version": __version__,
            "planes": chosen.planes,
            "gradients": chosen.gradients,
            "consistent": chosen.consistent,
            "adaptive": chosen.adaptive,
            "plan": plan,
            "codec": codec_of(chosen.codec),
            "mtu": group.mtu,
        }
    except Exception as error:
        decline(store, rank, error)
        raise
    if rank == 0:
        own["seed"] = secrets.randbits(63)
    store.set(f"trimwire/{rank}", json.dumps(own))
    others = []
    for other in range(world):
        said = json.loads(store.get(f"trimwire/{other}"))
        if "error" in said:
            raise RuntimeError(f"rank {other} of the group cannot start: {said['error']}")
        others.append(said)
    for other, said in enumerate(others):
        for what in _AGREED:
            if said[what] != others[0][what]:
                raise RuntimeError(f"rank {other} has {what} {said[what]}, rank 0 {others[0][what]}: they have to be the same")
        if chosen.consistent and said["codec"] != others[0]["codec"]:
            raise RuntimeError(
                f"rank {other} codes with {said['codec']}, rank 0 with {others[0]['codec']}: consistent replicas need all ranks to code alike, on GPUs or on hosts (codec='host')"
            )
    seed: int = others[0]["seed"]
    record = chosen.record
    if record is not None and apart:
        record = f"{record}-{seed:016x}"
    if any(said["codec"] == "triton" for said in others):
        group.send_directly()
    if rate_law is None:
        rate_law = "dctcp" if chosen.adaptive is None else _adaptive.Adaptive(chosen.adaptive, chosen.planes).rate_law
    # Packets fit the smallest interface of all.
    group.agreed_mtu = min((said["mtu"] for said in others if said["mtu"] is not None), default=None)
    return group.connect(
        rank,
        [said["address"] for said in others],
        seed=seed,
        record=record,
        mtu=group.agreed_mtu,
        key=chosen.key,
        rate_bps=chosen.rate_bps,
        trim_delay=chosen.trim_delay,
        threads=chosen.threads,
        give_up=chosen.give_up,
        patience=chosen.patience or max(float(timeout.total_seconds()), 0.001),
        rate_law=rate_law,
    )


def decline(store: dist.Store, rank: int, error: Exception) -> None:
    """Tells the others that this rank does not come, for which they would wait."""
    store.set(f"trimwire/{rank}", json.dumps({"error": f"{type(error).__name__}: {error}"}))
