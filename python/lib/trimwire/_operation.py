# SPDX-License-Identifier: Apache-2.0
"""Plain types of groups and their operations: below `_group` and `cuda`, which both use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: Planes that are sent unless the caller says otherwise: two bytes a coordinate. PyTorch's gradients have a default of their own
#: (`trimwire.torch.Options`).
DEFAULT_PLANES = 9
#: Those of gradients in PyTorch; kernels are held against the host for these, and warmed for these.
GRADIENT_PLANES = 8
#: Bytes of an IP packet, as `Group.connect` takes them.
MTU_LEAST, MTU_MOST = 576, 9_216


@dataclass(frozen=True)
class GroupOptions:
    """What `Group.connect` says, as the native group reads it."""

    seed: int
    rate_bps: int | None
    give_up_s: float
    operation_timeout_s: float
    rendezvous_timeout_s: float | None
    loss: float
    seal_key: bytes | None
    job: int
    record: str | None
    rate_algorithm: str
    trim_delay_s: float | None
    mtu: int | None


@dataclass(frozen=True)
class OperationOptions:
    """What a call of an operation says, as the native group reads it."""

    exact: bool = False
    average: bool = False
    planes: int = DEFAULT_PLANES
    layer_class: int = 0
    tag: int = 0
    consistent: bool = False
    full: bool = False
    algorithm: str = "auto"
    deadline_s: float | None = None
    pace: float = 1.0


class Epoch(NamedTuple):
    """The ranks of a group from now on: see `Group.shrink`."""

    #: 0 is the beginning.
    number: int
    #: This rank among them, counted from 0.
    rank: int
    #: How many there are.
    world: int
    #: Their numbers in the beginning, which errors name.
    members: tuple[int, ...]
    #: Those of `members` that were let in.
    arrivals: tuple[int, ...]
