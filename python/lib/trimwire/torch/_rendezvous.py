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

_AGREED = ("version", "planes", "adaptive", "plan")


def connect(store: dist.Store, rank: int, world: int, *, timeout: datetime.timedelta, planes: int, record: str | None = None, apart: bool = False, adaptive: str | None = None, plan: str | None = None, codec: str = "auto", consistent: bool = False, **arguments: Any) -> Group:
    """A group of all ranks that share `store` (a torch.distributed.Store, or a PrefixStore for each group).

    Rank 0 draws the seed of the rotations, unless it is given. Ranks that would not understand each other, or have other laws (`adaptive`) or plans (`plan`, a digest), are told so. Where some code tensors with kernels on GPUs (`codec`), all send directly; `consistent` replicas
    need all of them to code alike. A transcript (`record`) that is to be kept `apart` from other groups' has
    the seed in its name.
    """
    from .. import __version__

    store.set_timeout(timeout)
    group = Group(os.environ.get("TRIMWIRE_ADDRESS") or default_address(os.environ.get("MASTER_ADDR")))
    own: dict[str, Any] = {"address": group.address, "version": __version__, "planes": planes, "adaptive": adaptive, "plan": plan, "codec": codec_of(codec), "mtu": group.mtu}
    if rank == 0:
        own["seed"] = arguments.get("seed", secrets.randbits(63))
    store.set(f"trimwire/{rank}", json.dumps(own))
    others = [json.loads(store.get(f"trimwire/{other}")) for other in range(world)]
    for other, said in enumerate(others):
        for what in _AGREED:
            if said[what] != others[0][what]:
                raise RuntimeError(f"rank {other} has {what} {said[what]}, rank 0 {others[0][what]}: they have to be the same")
        if consistent and said["codec"] != others[0]["codec"]:
            raise RuntimeError(
                f"rank {other} codes with {said['codec']}, rank 0 with {others[0]['codec']}: consistent replicas need all ranks to code alike, on GPUs or on hosts (codec='host')"
            )
    arguments["seed"] = others[0]["seed"]
    # Packets fit the smallest interface of all.
    arguments.setdefault("mtu", min((said["mtu"] for said in others if said["mtu"] is not None), default=None))
    if record is not None and apart:
        record = f"{record}-{arguments['seed']:016x}"
    if any(said["codec"] == "triton" for said in others):
        group.send_directly()
    return group.connect(rank, [said["address"] for said in others], record=record, **arguments)
