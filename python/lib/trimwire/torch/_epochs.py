# SPDX-License-Identifier: Apache-2.0
"""The default process group of torch.distributed, without the ranks that have died."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from .._group import Epoch
from . import _backend


def shrink(exclude: Sequence[int] = ()) -> Epoch:
    """Goes on without the ranks that have died; every rank that is left calls it, when an operation of the default group has failed.

    They agree on who is left (`trimwire.Group.shrink`, which says when that cannot be), and torch.distributed gets a new default group of these: `get_rank` and `get_world_size` count them from 0. Sockets and
    sessions stay; processes do, too. All other groups are destroyed, and what was made for the old ranks has to be made anew: DistributedDataParallel (`DistributedDataParallel(model.module)`), samplers, device
    meshes. Parameters are as each rank had them when the operation failed: take a step of which every rank is sure, or broadcast them.

    Process groups of the ranks that are left need the launcher's store (`new_group`); this does not.
    """
    try:
        before = _backend.of(None)
    except TypeError as error:
        raise RuntimeError(f"{error}; init_process_group('{_backend.BACKEND}') makes one that can shrink") from None
    epoch = before.native.shrink(exclude)
    before.hand_over()
    dist.destroy_process_group()
    with _backend.following(before):
        dist.init_process_group(
            _backend.BACKEND,
            store=dist.PrefixStore(f"trimwire/epoch/{epoch.number}", before.store),
            rank=epoch.rank,
            world_size=epoch.world,
            timeout=before.timeout,
        )
    return epoch
