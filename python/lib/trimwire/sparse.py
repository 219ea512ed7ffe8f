# SPDX-License-Identifier: Apache-2.0
"""Sparse messages (docs/reference/wire-format.md, §13): the largest magnitudes of a tensor, each with its place, in packets of which a trim leaves the largest entries.

    packets = trimwire.sparse.encode(gradient, k=gradient.size // 100)
    residual = gradient - trimwire.sparse.decode(packets)          # what is not sent is kept for the next step
    there = trimwire.sparse.decode(packets, arrived)               # in any order, truncated anywhere

Collectives do not use them: what packets travel by, and what is added up, is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _native
from ._codec import PacketSequence, _array

DEFAULT_FRACTION_BITS = 4
DEFAULT_PACKET_BYTES = 1452

__all__ = ["DEFAULT_FRACTION_BITS", "DEFAULT_PACKET_BYTES", "SparsePackets", "decode", "encode"]


@dataclass(frozen=True)
class _Agreement:
    """What both ends agree on; `tensors`: coordinates and layer class of each."""

    tensors: tuple[tuple[int, int], ...]
    job: int = 0
    rank: int = 0
    message: int = 0


@dataclass(frozen=True)
class _Choice:
    fraction_bits: int = DEFAULT_FRACTION_BITS
    packet_bytes: int = DEFAULT_PACKET_BYTES
    important: bool = True
    strict: bool = False


@dataclass(frozen=True)
class SparsePackets(PacketSequence):
    """The packets of a tensor's largest entries, in order, and what a receiver has to know to decode them. `shape` is the tensor's."""

    agreement: _Agreement


def encode(
    tensor: Any,
    k: int,
    *,
    fraction_bits: int = DEFAULT_FRACTION_BITS,
    packet_bytes: int = DEFAULT_PACKET_BYTES,
    layer_class: int = 0,
    important: bool = True,
    strict: bool = False,
    job: int = 0,
    rank: int = 0,
    message: int = 0,
) -> SparsePackets:
    """Encodes the `k` coordinates of largest magnitude of a tensor (float32, float16 or bfloat16, of any shape; of equal magnitudes those that come first) into packets.

    Magnitudes are off by at most 2^−(fraction_bits + 1); 23 are exact. A message that would send NaN or an infinity decodes to NaN in all coordinates; `strict` raises ValueError instead.
    """
    tensor = _array(tensor, "tensor")
    shape = tuple(tensor.shape)
    agreement = _Agreement(((int(np.prod(shape, dtype=np.int64)), layer_class),), job, rank, message)
    packets = _native.sparse_encode(tensor, k, _Choice(fraction_bits, packet_bytes, important, strict), agreement)
    return SparsePackets(tuple(packets), shape, agreement)


def decode(
    packets: SparsePackets,
    received: Iterable[bytes] | None = None,
    *,
    out: npt.NDArray[np.float32] | None = None,
    accumulate: bool = False,
) -> npt.NDArray[np.float32]:
    """Decodes what arrived of a tensor's packets: `received` holds any of them, in any order, truncated anywhere (None: all, whole). Others' packets, and damaged ones, count as lost.

    Gives float32 of the tensor's shape; or writes it to `out`, or adds it there (`accumulate`).
    """
    if out is None:
        if accumulate:
            raise ValueError("out: None; what is accumulated has to be somewhere")
        out = np.empty(packets.shape, dtype=np.float32)
    elif out.shape != packets.shape or out.dtype != np.float32:
        raise ValueError(f"out: {out.dtype} of shape {out.shape}; float32 of shape {packets.shape} is needed")
    arrived = list(packets if received is None else received)
    _native.sparse_decode_into(arrived, out, accumulate, packets.agreement)
    return out
