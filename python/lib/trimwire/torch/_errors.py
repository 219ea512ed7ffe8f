# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, as torch.distributed's users expect it."""

from __future__ import annotations

import torch.distributed as dist

from .._native import TransportError


class CollectiveError(dist.DistBackendError, TransportError):
    """An operation failed: a `torch.distributed.DistError`, and a `trimwire.TransportError`."""

    def __init__(self, text: str, *, rank: int | None = None, sequence: int | None = None, timed_out: bool = False) -> None:
        super().__init__(text)
        #: The rank of the job (not of the group) that is to blame; None where none is.
        self.rank = rank
        #: The operation's number in its group.
        self.sequence = sequence
        #: Whether it took longer than it was allowed.
        self.timed_out = timed_out
