"""Tensors that are not in the host's memory."""

from __future__ import annotations

import warnings
from typing import Any

_said: set[str] = set()


def on_host(tensor: Any) -> bool:
    """Whether a tensor is in the host's memory; of those that are not it is said, once a device, what becomes of them."""
    if tensor.device.type == "cpu":
        return True
    device = str(tensor.device)
    if device not in _said:
        _said.add(device)
        warnings.warn(
            f"trimwire: tensors of {device} are copied to the host, and encoded and decoded there: collectives do not use trimwire.cuda yet",
            RuntimeWarning,
            stacklevel=3,
        )
    return False
