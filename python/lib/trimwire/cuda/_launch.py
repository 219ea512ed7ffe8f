# SPDX-License-Identifier: Apache-2.0
"""What kernels are launched with: rows by length, tables, scratch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton

from . import _header, _quantise
from ._rows import LEAST_HELD_LOG2, MOST_ROW_LOG2, Layout, Row, layout_of, table_of
from ._signs import flipped
from ._values import KINDS

#: Words of scratch that a program has for each packet, besides the row's values.
SCRATCH_A_PACKET = 8


def interpreted() -> bool:
    """Whether kernels run on the processor, in Triton's interpreter (TRITON_INTERPRET=1)."""
    return not isinstance(flipped, triton.runtime.JITFunction)


def warps_of(padded: int) -> int:
    """Warps of a program: 64 coordinates of a row a thread, so that threads have 128 registers, and nothing of a row is spilled."""
    return padded // 2048


@lru_cache(maxsize=8)
def tables(device: torch.device) -> dict[str, torch.Tensor]:
    """The tables that kernels look things up in, on a device."""
    _, offsets = _quantise.last_lines()
    inverses, stretches = _quantise.last_zone()

    def there(array: npt.NDArray[Any]) -> torch.Tensor:
        # The host waits for such a copy, so that a plan of any other stream may read it.
        return torch.from_numpy(array).to(device)

    return {
        "peaks": there(_quantise.peaks()),
        "lines": there(_quantise.lines()),
        "offsets": there(offsets),
        "inverses": there(inverses),
        "stretches": there(stretches),
        "centroids": there(_quantise.centroids()),
        "distortions": there(_quantise.distortions()),
        "checks": there(_header.check_table()),
        # A word for each thread.
        "zeros": there(np.zeros(1 << MOST_ROW_LOG2 - 6, dtype=np.int32)),
    }


@dataclass(frozen=True)
class Class:
    """Rows that one launch works on."""

    table: torch.Tensor
    #: Of the message, ascending: a line of the table each.
    rows: tuple[int, ...]
    programs: int
    constants: dict[str, Any]

    def of(self, rows: range | None) -> tuple[torch.Tensor, int, int]:
        """Table, rows and programs of a launch for those of `rows` that are of this class, or all."""
        if rows is None:
            return self.table, len(self.rows), self.programs
        first, end = bisect_left(self.rows, rows.start), bisect_left(self.rows, rows.stop)
        return self.table[first:end], end - first, min(self.programs, end - first)


#: So many rows of other lengths than a launch's own are worked on beside those that are longer, each as if it were as long.
_FEW = 16


def _split(layout: Layout) -> list[tuple[int, bool, list[Row]]]:
    """The launches of a layout, longest rows first: log2 of the coordinates that a program holds, whether all rows have so many, and the rows.

    Rows of 2^15, and of a length that is common, are by themselves, as a program is fastest that knows its row's length. All others share one launch, or
    two, in which a program holds the longest that there may be.
    """
    by_length: dict[int, list[Row]] = {}
    for row in layout.rows:
        by_length.setdefault(row.padded.bit_length() - 1, []).append(row)
    found, middle, short = list[tuple[int, bool, list[Row]]](), list[Row](), list[Row]()
    for log2, rows in sorted(by_length.items(), reverse=True):
        if log2 == MOST_ROW_LOG2 or (log2 >= LEAST_HELD_LOG2 and len(rows) > _FEW):
            found.append((log2, True, rows))
        else:
            (middle if log2 > LEAST_HELD_LOG2 else short).extend(rows)
    if middle and len(short) <= _FEW:
        middle, short = middle + short, []
    found += [(log2, False, rows) for log2, rows in ((MOST_ROW_LOG2 - 1, middle), (LEAST_HELD_LOG2, short)) if rows]
    return found


def constants_of(log2: int, whole: bool, dtype: torch.dtype, coordinates_per_packet: int) -> dict[str, Any]:
    """What kernels are compiled for and launched with, of one of the launches that `_split` gives."""
    packets = -(-(1 << log2) // coordinates_per_packet)
    return {
        "D": 1 << log2,
        "LOG2": log2,
        "K": packets,
        "KP": 1 << (packets - 1).bit_length(),
        "KIND": KINDS[dtype],
        "WHOLE": whole,
        "num_warps": warps_of(1 << log2),
        # Sums and products are rounded one by one: packets agree to the bit.
        "enable_fp_fusion": False,
    }


def classes_of(layout: Layout, device: torch.device, dtype: torch.dtype, processors: int) -> list[Class]:
    """The launches that a layout takes, longest rows first."""
    found = []
    for log2, whole, rows in _split(layout):
        constants = constants_of(log2, whole, dtype, layout.coordinates_per_packet)
        # Short rows leave room for several programs on a multiprocessor. In the interpreter, which has none, two go on from row to row.
        programs = min(len(rows), processors * max(1, 16 // constants["num_warps"]) or 2)
        rows = sorted(rows, key=lambda row: row.number)
        table = torch.tensor(table_of(layout, rows), dtype=torch.int64).to(device)
        found.append(Class(table, tuple(row.number for row in rows), programs, constants))
    return found


def launches_of_one(coordinates_per_packet: int) -> list[tuple[int, bool]]:
    """All launches that messages of one tensor may take, as operations of a group send them: log2 of the coordinates that a program holds, and whether all rows have so many."""
    lengths = (1 << MOST_ROW_LOG2, 1 << (MOST_ROW_LOG2 - 1), 1)
    layouts = (layout_of([length], coordinates_per_packet=coordinates_per_packet) for length in lengths)
    return sorted({(log2, whole) for layout in layouts for log2, whole, _ in _split(layout)}, reverse=True)


def scratch_of(classes: Sequence[Class]) -> int:
    """Words of f32 for the programs of any one of the launches: they follow each other."""
    needed = (one.programs * (one.constants["D"] + one.constants["D"] // 16 + SCRATCH_A_PACKET * one.constants["KP"]) for one in classes)
    return int(max(needed))
