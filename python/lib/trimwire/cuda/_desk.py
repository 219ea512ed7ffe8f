# SPDX-License-Identifier: Apache-2.0
"""What one operation needs on a GPU and in pinned memory: codecs, sums, packets on their way. Used again by the next operation of the same shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from .. import _native
from ._codec import Decoder, Encoder

Kind = Literal["all_reduce", "reduce_scatter", "all_gather"]


def _pinned(like: torch.Tensor) -> torch.Tensor:
    return torch.zeros(like.shape, dtype=like.dtype, pin_memory=like.is_cuda)


@dataclass(frozen=True)
class Shape:
    """Operations that can use the same desk one after the other."""

    kind: Kind
    #: Elements of the tensor that all ranks share: what is summed, or what is gathered.
    length: int
    dtype: torch.dtype
    device: torch.device
    planes: int
    layer_class: int
    consistent: bool


@dataclass(frozen=True)
class Ranks:
    """What the codec has to know of a group."""

    rank: int
    world: int
    seed: int
    job: int
    #: Of an operation's planes.
    coordinates_per_packet: Callable[[int], int]
    #: Each has messages of its own.
    channels: int


def shards_of(shape: Shape, world: int) -> list[tuple[int, int]]:
    """Begin and end of each shard; rank k owns the k-th. Empty ones travel not at all."""
    if shape.kind == "all_reduce":
        return _native.direct_shards(shape.length, world)
    share, longer = divmod(shape.length, world)
    begins = [k * share + min(k, longer) for k in range(world + 1)]
    return list(zip(begins, begins[1:], strict=False))


@dataclass(frozen=True)
class Piece:
    """What one channel moves of a shard, in messages of one number."""

    owner: int
    #: Elements of the tensor that all ranks share.
    begin: int
    end: int
    #: And of the shard.
    offset: int

    def __len__(self) -> int:
        return self.end - self.begin


def pieces_of(shape: Shape, ranks: Ranks) -> dict[int, Piece]:
    """By number; empty ones travel not at all."""
    pieces = {}
    for owner, (begin, end) in enumerate(shards_of(shape, ranks.world)):
        for channel, (first, last) in enumerate(_native.channel_parts(owner, end - begin, ranks.channels)):
            if last > first:
                pieces[owner * ranks.channels + channel] = Piece(owner, begin + first, begin + last, first)
    return pieces


class Outgoing:
    """The packets of one message that this rank sends, and what is told of its rows."""

    def __init__(self, encoder: Encoder, base: int, memory: torch.Tensor) -> None:
        self.encoder, self.base, self._memory = encoder, base, memory
        self.figures = _pinned(encoder.figures)
        self._important_from: float | None = None

    def prepare(self, ranks: Ranks, message: int, important_from: float) -> None:
        """The numbers of the next message."""
        self.encoder.set_numbers(seed=ranks.seed, job=ranks.job, rank=ranks.rank, message=message)
        if important_from != self._important_from:
            self.encoder.important_from.fill_(important_from)
            self._important_from = important_from

    def send(self, rows: range) -> None:
        """Has these rows' packets copied to pinned memory, and what is told of them."""
        first, end = self.encoder.layout.bytes_of(rows)
        self._memory[self.base + first : self.base + end].copy_(self.encoder.packets[first:end], non_blocking=True)
        self.figures[rows.start : rows.stop].copy_(self.encoder.figures[rows.start : rows.stop], non_blocking=True)


class Incoming:
    """The packets of one message that this rank receives."""

    def __init__(self, decoder: Decoder, base: int, memory: torch.Tensor) -> None:
        self.decoder, self.base, self._memory = decoder, base, memory
        self._lengths = _pinned(decoder.lengths)

    def take(self, rows: range, ranks: Ranks, nth: int, of: Sequence[_native.Row]) -> None:
        """Has the packets of these rows copied to the GPU: contribution number `nth` of each of `of`."""
        layout = self.decoder.layout
        sender, message, offset = of[0].contributions[nth]
        first, end = layout.bytes_of(rows)
        if offset != self.base + first:
            raise RuntimeError(f"row {rows.start} of rank {sender} is at byte {offset} of the desk instead of {self.base + first}")
        self.decoder.packets[first:end].copy_(self._memory[offset : offset + end - first], non_blocking=True)
        lengths = b"".join(row.lengths(nth) or b"" for row in of)
        first, end = layout.packets_of(rows)
        self._lengths[first:end] = torch.frombuffer(bytearray(lengths), dtype=torch.int32)
        self.decoder.lengths[first:end].copy_(self._lengths[first:end], non_blocking=True)
        self.decoder.set_numbers(seed=ranks.seed, job=ranks.job, rank=sender, message=message)


class Desk:
    """Room for one operation of a shape at a time."""

    def __init__(self, shape: Shape, ranks: Ranks, scratch: torch.Tensor | None) -> None:
        self.shape, self.ranks, self.scratch = shape, ranks, scratch
        self.pieces = pieces_of(shape, ranks)
        rank = ranks.rank
        mine = [number for number, piece in self.pieces.items() if piece.owner == rank]
        sends_parts, sends_sums = shape.kind != "all_gather", shape.kind != "reduce_scatter"
        #: This rank's part of other ranks' pieces; and the sums of its own, in f32, which others get.
        parts = {number: self._encoder(number, shape.dtype) for number, piece in self.pieces.items() if sends_parts and piece.owner != rank}
        totals = {number: self._encoder(number, torch.float32) for number in mine if sends_sums and ranks.world > 1}
        self.sums = {number: self._empty(number) for number in mine}
        #: Others' parts of its own pieces, by piece and rank, to be added up in f32; sums, to be written, by piece.
        others = {(number, other): self._decoder(number, torch.float32, (False, True)) for number in mine for other in range(ranks.world) if sends_parts and other != rank}
        owned = {
            number: self._decoder(number, shape.dtype)
            for number, piece in self.pieces.items()
            if sends_sums and (piece.owner != rank or (shape.consistent and number in totals))
        }
        #: What the packets of its own sums say, for itself: they need not leave the GPU for that.
        self.keep = {number: self._decoder(number, shape.dtype) for number in totals if not shape.consistent}
        for number, keep in self.keep.items():
            keep.packets, keep.numbers = totals[number].packets, totals[number].numbers
            offsets = keep.layout.offsets
            keep.lengths.copy_(torch.tensor([b - a for a, b in zip(offsets, offsets[1:], strict=False)], dtype=torch.int32))

        codecs: list[Encoder | Decoder] = [*parts.values(), *totals.values(), *others.values(), *owned.values()]
        bases, end = [], 0
        for codec in codecs:
            bases.append(end)
            # Packets begin at words, as kernels read them.
            end += -(-codec.layout.bytes // 4) * 4
        on_gpu = shape.device.type == "cuda"
        memory = torch.zeros(max(end, 4), dtype=torch.uint8, pin_memory=on_gpu)
        at = iter(bases)
        self.parts = {number: Outgoing(codec, next(at), memory) for number, codec in parts.items()}
        self.totals = {number: Outgoing(codec, next(at), memory) for number, codec in totals.items()}
        self.others = {place: Incoming(codec, next(at), memory) for place, codec in others.items()}
        self.owned = {number: Incoming(codec, next(at), memory) for number, codec in owned.items()}
        places = [(number, other, incoming.base) for (number, other), incoming in self.others.items()]
        places += [(number, self.pieces[number].owner, incoming.base) for number, incoming in self.owned.items()]
        self.native = _native.Desk(memory, places)
        self.input: torch.Tensor | None = None
        self.output: torch.Tensor | None = None
        #: What the side stream waits for before it reads the input.
        self.ready: Any = None

    def _options(self) -> dict[str, Any]:
        return {
            "device": self.shape.device,
            "planes": self.shape.planes,
            "layer_classes": [self.shape.layer_class],
            "coordinates_per_packet": self.ranks.coordinates_per_packet(self.shape.planes),
            "scratch": self.scratch,
        }

    def _encoder(self, number: int, dtype: torch.dtype) -> Encoder:
        made = Encoder([len(self.pieces[number])], dtype=dtype, **self._options())
        made.compile()
        self.scratch = made.scratch
        return made

    def _decoder(self, number: int, dtype: torch.dtype, accumulating: Sequence[bool] = (False,)) -> Decoder:
        made = Decoder([len(self.pieces[number])], dtype=dtype, **self._options())
        made.compile(accumulating)
        self.scratch = made.scratch
        return made

    def _empty(self, number: int) -> torch.Tensor:
        return torch.empty(len(self.pieces[number]), dtype=torch.float32, device=self.shape.device)

    def begin(self, input: torch.Tensor, output: torch.Tensor, ready: Any) -> None:
        """The tensors of the next operation, flat; what has to be over before they are read."""
        self.input, self.output, self.ready = input, output, ready

    def end(self) -> None:
        """Lets go of them."""
        self.input = self.output = self.ready = None

    def own_part(self, number: int) -> torch.Tensor:
        """This rank's part of a piece."""
        assert self.input is not None
        # What is gathered is a shard by itself.
        return self._piece(self.input, number, alone=self.shape.kind == "all_gather")

    def result(self, number: int) -> torch.Tensor:
        """Where a piece's sum is written."""
        assert self.output is not None
        return self._piece(self.output, number, alone=self.shape.kind == "reduce_scatter")

    def _piece(self, tensor: torch.Tensor, number: int, *, alone: bool) -> torch.Tensor:
        piece = self.pieces[number]
        begin = piece.offset if alone else piece.begin
        return tensor[begin : begin + len(piece)]
