# SPDX-License-Identifier: Apache-2.0
"""The codec: what becomes of a tensor in packets, of which a network leaves a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from . import _native

Tensor = TypeVar("Tensor")
_ROW_LOG2 = 12


@dataclass(frozen=True)
class _Agreement:
    """What both ends agree on."""

    seed: int = 0
    message: int = 0
    rank: int = 0
    coordinates_per_packet: int | None = None
    row_log2: int = _ROW_LOG2


@dataclass(frozen=True)
class _Network:
    shares: list[tuple[int, float]]
    chance: int
    written: list[int] | None = None


@dataclass(frozen=True)
class Packets(Sequence[bytes]):
    """The packets of a tensor, in order, and what a receiver has to know to decode them.

    `shape` is the tensor's; `planes` are those that were sent of each packet.
    """

    packets: tuple[bytes, ...]
    shape: tuple[int, ...]
    codec: str
    planes: int | None
    agreement: _Agreement

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        return self.packets[index]

    def __len__(self) -> int:
        return len(self.packets)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.packets)


def _array(tensor: Any, name: str) -> Any:
    """The tensor itself if it can be read in place, else an array of it."""
    if isinstance(tensor, np.ndarray):
        # A read-only array, which older numpys do not export, is copied.
        return tensor if tensor.flags.writeable and tensor.flags.c_contiguous else np.array(tensor, order="C")
    if hasattr(tensor, "__dlpack__"):
        return tensor.detach() if getattr(tensor, "requires_grad", False) else tensor
    try:
        return np.array(tensor, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: not an array: {error}") from None


def encode(
    tensor: Any,
    *,
    planes: int | None = None,
    codec: str = "rht",
    seed: int = 0,
    message: int = 0,
    rank: int = 0,
    coordinates_per_packet: int | None = None,
) -> Packets:
    """Encodes a tensor (float32, float16 or bfloat16, of any shape) into packets.

    `planes` are sent of each packet (None: all), `seed` is the job's; `message` and `rank` make rotations independent.
    """
    tensor = _array(tensor, "tensor")
    agreement = _Agreement(seed, message, rank, coordinates_per_packet)
    packets = _native.encode(tensor, codec, planes, agreement)
    return Packets(tuple(packets), tuple(tensor.shape), codec, planes, agreement)


def trim(packet: bytes, planes: int) -> bytes:
    """The packet as a switch leaves it that trims it to its first `planes` planes."""
    return _native.trim(packet, planes)


def decode(
    packets: Packets,
    received: Iterable[bytes] | None = None,
    *,
    decoding: str = "unbiased",
    out: npt.NDArray[np.float32] | None = None,
) -> npt.NDArray[np.float32]:
    """Decodes what arrived of a tensor's packets: `received` holds any of them, in any order, truncated anywhere (None: all, whole).

    `decoding` is 'unbiased', 'mmse' (least error, biased) or 'paper'. Gives float32 of the tensor's shape.
    """
    if out is None:
        out = np.empty(packets.shape, dtype=np.float32)
    elif out.shape != packets.shape or out.dtype != np.float32:
        raise ValueError(f"out: {out.dtype} of shape {out.shape}; float32 of shape {packets.shape} is needed")
    arrived = list(packets if received is None else received)
    _native.decode_into(arrived, out, packets.codec, packets.planes, decoding, packets.agreement)
    return out


def shares_of(trim_rate: float, planes: int | Mapping[int, float], drop_rate: float) -> list[tuple[int, float]]:
    """How many planes (0: lost) what share of the packets keeps; all others arrive whole."""
    for name, rate in (("trim_rate", trim_rate), ("drop_rate", drop_rate)):
        if not 0.0 <= rate <= 1.0:
            raise ValueError(f"{name}: {rate}; a share is in [0, 1]")
    mix = dict(planes) if isinstance(planes, Mapping) else {planes: 1.0}
    total = sum(mix.values())
    for left, weight in mix.items():
        if not 1 <= left <= _native.PLANES:
            raise ValueError(f"planes: {left}; a packet that is trimmed keeps 1 to {_native.PLANES}")
        if weight < 0.0 or not total > 0.0:
            raise ValueError(f"planes: {mix}; planes and their weights, of which none is negative and not all are 0")
    return [(0, drop_rate), *((left, (1.0 - drop_rate) * trim_rate * weight / total) for left, weight in mix.items())]


def through_network(
    source: Any,
    out: npt.NDArray[np.float32],
    shares: list[tuple[int, float]],
    *,
    sent_planes: int | None,
    codec: str,
    decoding: str,
    seed: int,
    message: int,
    rank: int,
    receiver: int = 0,
    written: npt.NDArray[np.uint32] | None = None,
) -> tuple[int, int, int]:
    """As `simulate`, into `out`; receivers of one message have other packets trimmed. `written` says what is left of which (`_transcript.Fates`), instead of chance.

    Gives how many packets were whole, trimmed and missing.
    """
    agreement = _Agreement(seed, message, rank)
    chance = seed * 0x9E3779B97F4A7C15 + message * 0xD1B54A32D192ED03 + rank * 0x94D049BB133111EB + receiver * 0xBF58476D1CE4E5B9 + 1
    network = _Network(shares, chance % 2**64, None if written is None else written.tolist())
    return _native.simulate_into(source, out, codec, sent_planes, decoding, agreement, network)


def simulate(
    tensor: Tensor,
    *,
    trim_rate: float = 0.5,
    planes: int | Mapping[int, float] = 1,
    drop_rate: float = 0.0,
    sent_planes: int | None = None,
    codec: str = "rht",
    decoding: str = "unbiased",
    seed: int = 0,
    message: int = 0,
    rank: int = 0,
) -> Tensor:
    """What a receiver would have of `tensor` after a network that trims a share `trim_rate` of its packets to `planes` planes and loses a share `drop_rate`.

    `planes` may be several, with their weights: `{1: 0.2, 8: 0.8}`. The same arguments give the same result. Other `message`s (one a step and tensor) have other
    rotations and other packets trimmed. Gives a tensor of the same kind, shape and type.
    """
    source = _array(tensor, "tensor")
    out = np.empty(tuple(source.shape), dtype=np.float32)
    through_network(
        source,
        out,
        shares_of(trim_rate, planes, drop_rate),
        sent_planes=sent_planes,
        codec=codec,
        decoding=decoding,
        seed=seed,
        message=message,
        rank=rank,
    )
    if isinstance(tensor, np.ndarray):
        return out.astype(tensor.dtype, copy=False)  # type: ignore[return-value]
    if hasattr(tensor, "new_tensor"):
        import torch

        return cast(Tensor, torch.from_numpy(out).to(tensor.dtype))  # type: ignore[attr-defined]
    return out  # type: ignore[return-value]


def expected_nmse(shares: dict[int, float], *, codec: str = "rht", decoding: str = "unbiased") -> float | None:
    """The error to expect of a Gaussian tensor where `shares` of the packets keep so many planes (0: lost); None where no formula is known.

    Of rows of many packets. With three a row, as eight planes have them at an MTU of 1,500, lost packets cost 1.5 times as much, trimmed ones up to a tenth more.
    """
    return _native.expected_nmse(list(shares.items()), codec, decoding)


def nmse(got: npt.ArrayLike, exact: npt.ArrayLike) -> float:
    """Σ(got − exact)² / Σ exact², in double precision."""
    a, b = np.asarray(got, dtype=np.float64), np.asarray(exact, dtype=np.float64)
    return float(((a - b) ** 2).sum() / max((b**2).sum(), np.finfo(np.float64).tiny))
