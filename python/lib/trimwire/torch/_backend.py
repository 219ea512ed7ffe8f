# SPDX-License-Identifier: Apache-2.0
"""The backend 'trimwire' of torch.distributed."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from .._group import Group
from ._operations import Operations
from ._options import Options, given
from ._rendezvous import announce, connect
from ._work import TrimwireWork

BACKEND = "trimwire"

_C10dBackend: Any = torch._C._distributed_c10d.Backend


def _can_be_subclassed() -> bool:
    """Whether this PyTorch takes a Backend in Python, as PyTorch 2.15 does."""

    class Probe(_C10dBackend):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(0, 1)

    try:
        Probe()
    except TypeError:
        return False
    return True


class TrimwireBackend(Operations, _C10dBackend):  # type: ignore[misc]
    """A rank of a group in which others serve other devices: 'cpu:gloo,cuda:trimwire'."""

    #: c10d brings batches of sends and receives together.
    supports_coalescing = True

    def __init__(self, rank: int, world: int) -> None:
        _C10dBackend.__init__(self, rank, world)

    def getBackendName(self) -> str:
        return BACKEND


class ProcessGroupTrimwire(Operations, dist.ProcessGroup):
    """A rank of a group for tensors of all devices."""

    def __init__(self, rank: int, world: int) -> None:
        dist.ProcessGroup.__init__(self, rank, world)
        self._name = ""

    def getBackendName(self) -> str:
        return BACKEND

    @property
    def group_name(self) -> str:
        """What torch.distributed calls this group; device meshes look it up."""
        # The class below keeps it only for groups that are made of backends. Who destroys a group asks once more, when it is forgotten there.
        self._name = str(dist.distributed_c10d._world.pg_names.get(self, self._name))
        return self._name

    pg_name = group_name

    def size(self) -> int:
        return self._world

    def rank(self) -> int:
        return self._own_rank

    def _get_backend(self, device: Any) -> Any:
        return self

    @property
    def _device_types(self) -> list[torch.device]:
        # While a group is made torch.distributed takes one without devices for what this is: no group of backends.
        if self not in dist.distributed_c10d._world.pg_names:
            return []
        return [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]

    # What PyTorch called them before.
    _allgather_base = Operations.all_gather_single
    allgather_into_tensor_coalesced = Operations.all_gather_single_coalesced
    _reduce_scatter_base = Operations.reduce_scatter_single
    reduce_scatter_tensor_coalesced = Operations.reduce_scatter_single_coalesced
    alltoall_base = Operations.all_to_all_single
    _start_coalescing = Operations.start_coalescing
    _end_coalescing = Operations.end_coalescing
    _set_default_timeout = Operations.set_timeout


def of(group: dist.ProcessGroup | None = None) -> Operations:
    """The backend of a group (the default one): `stats()`, `native`, `adaptive`.

    Raises:
        TypeError: the group is of another backend.
    """
    whole = dist.group.WORLD if group is None else group
    if isinstance(whole, Operations):
        return whole
    # C++ gives back the object that was registered; under TORCH_DISTRIBUTED_DEBUG=DETAIL it gives a wrapper.
    made = _made.get(str(getattr(whole, "group_name", "")))
    if made is None:
        raise TypeError(f"the process group {whole!r} has no backend 'trimwire'")
    return made


#: By the group's name, until it is shut down: C++ alone would not keep what is Python of them.
_made: dict[str, Operations] = {}

#: Whose connections the next group goes on with.
_before: Operations | None = None


@contextmanager
def following(before: Operations) -> Iterator[None]:
    """A group that is made meanwhile goes on with the connections of another one."""
    global _before
    _before = before
    try:
        yield
    finally:
        _before = None


def _others() -> set[str]:
    """Backends of other devices in the group that is being made. torch.distributed tells who makes a backend nothing of them."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    config = None if frame is None else frame.f_locals.get("backend_config")
    return set() if config is None else set(config.get_device_backend_map().values()) - {BACKEND}


def _kind() -> type:
    """
    Raises:
        RuntimeError: other devices are another backend's, which this PyTorch would leave out without a word.
    """
    others = _others()
    if not others:
        # C++ hides a Backend's works behind handles that never say that they are completed; those of a ProcessGroup it does not touch.
        return ProcessGroupTrimwire
    if not _can_be_subclassed():
        raise RuntimeError(f"PyTorch {torch.__version__} gives a backend in Python the whole group, and {', '.join(sorted(others))} nothing of it: 'trimwire' can be mixed with others from PyTorch 2.15 on; here make a second group with dist.new_group(backend=…)")
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        # Its wrapper around a Backend in Python crashes the process in DistributedDataParallel's constructor (seen with 2.15.0).
        raise RuntimeError(f"TORCH_DISTRIBUTED_DEBUG=DETAIL does not go with 'trimwire' beside {', '.join(sorted(others))} in one group: PyTorch {torch.__version__} crashes. INFO does, and so does 'trimwire' alone")
    return TrimwireBackend


def _create(about: Any, pg_options: object) -> Any:
    store, rank, world, timeout = about.store, about.group_rank, about.group_size, about.timeout
    before = _before
    # What comes after `before` works as it did.
    chosen: Options = given(pg_options) if before is None else before.chosen
    made: Any = _kind()(rank, world)
    patience = chosen.operation_timeout or _seconds(timeout)
    if before is None:
        native = connect(store, rank, world, timeout=timeout, options=chosen, apart=dist.is_initialized())
        if not dist.is_initialized():
            announce(native, chosen, lossy=chosen.gradients == "lossy")
        arguments = {"address": native.address.rsplit(":", 1)[0].strip("[]"), "receive": chosen.network.receive, "checksums": chosen.network.checksums, "mtu": native.agreed_mtu, "seal_key": chosen._secret, "rate_bps": chosen.network.rate_bps, "give_up": chosen.give_up}
    else:
        native = before.heritage()
        arguments = before._channels._arguments
    native.set_patience(patience)
    name = str(about.group_id)
    made._begin_group(native, store, rank, world, timeout, chosen, list(about.global_ranks_in_group) or list(range(world)), name, arguments, lambda: _made.pop(name, None))
    _made[name] = made
    return made


def _seconds(timeout: datetime.timedelta) -> float:
    return max(float(timeout.total_seconds()), 0.001)


def _register() -> None:
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])


_register()

__all__ = ["BACKEND", "Group", "ProcessGroupTrimwire", "TrimwireBackend", "TrimwireWork", "following", "of"]
