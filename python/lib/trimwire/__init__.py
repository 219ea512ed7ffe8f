# SPDX-License-Identifier: Apache-2.0
"""Gradients in packets that congested switches trim instead of dropping.

- `encode`, `trim`, `decode`, `simulate`: the codec, on arrays of numpy and tensors of the host.
- `Group`: collectives over the network, between processes; `stats`: how packets fare.
- `trimwire.torch`: a backend of torch.distributed and a hook for DistributedDataParallel (needs PyTorch).
"""

from ._adaptive import Adaptive
from ._codec import Packets, decode, encode, expected_nmse, nmse, simulate, trim
from ._group import Epoch, Group, Work, default_address, stats
from ._native import PLANES, TransportError
from ._native import VERSION as __version__

__all__ = [
    "PLANES",
    "Adaptive",
    "Epoch",
    "Group",
    "Packets",
    "TransportError",
    "Work",
    "__version__",
    "decode",
    "default_address",
    "encode",
    "expected_nmse",
    "nmse",
    "simulate",
    "stats",
    "trim",
]
