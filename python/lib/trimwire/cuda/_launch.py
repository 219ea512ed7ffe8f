# SPDX-License-Identifier: Apache-2.0
"""What kernels are launched with: tables, programs, scratch."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton

from . import _header, _quantise
from ._rows import MASK_IN_HEADER, MOST_ROW_LOG2, Layout, table_of
from ._signs import flipped
from ._values import KINDS

#: Words of scratch that a program has for each packet, besides the row's values.
SCRATCH_A_PACKET = 8


def interpreted() -> bool:
    """Whether kernels run on the processor, in Triton's interpreter (TRITON_INTERPRET=1)."""
    return not isinstance(flipped, triton.runtime.JITFunction)


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


def constants_of(dtype: torch.dtype, coordinates_per_packet: int) -> dict[str, Any]:
    """What kernels are compiled for and launched with. A program holds the longest row there is, whatever rows there are."""
    row = 1 << MOST_ROW_LOG2
    packets = -(-row // coordinates_per_packet)
    return {
        "D": row,
        "LOG2": MOST_ROW_LOG2,
        "KP": 1 << (packets - 1).bit_length(),
        "KIND": KINDS[dtype],
        # Bodies that begin with a mask end at any byte.
        "WORDS": coordinates_per_packet <= 32 * MASK_IN_HEADER,
        # 64 coordinates of a row a thread, so that threads have 128 registers, and nothing of a row is spilled.
        "num_warps": 2,
        # Sums and products are rounded one by one: packets agree to the bit.
        "enable_fp_fusion": False,
    }


class Launch:
    """What the rows of a layout are launched with: one launch a stage."""

    def __init__(self, layout: Layout, device: torch.device, dtype: torch.dtype, processors: int) -> None:
        self.constants = constants_of(dtype, layout.coordinates_per_packet)
        # Several on a multiprocessor. In the interpreter, which has none, two go on from row to row.
        self._most = 8 * processors or 2
        self._table = torch.tensor(table_of(layout), dtype=torch.int64).to(device)
        #: Words of scratch.
        self.scratch = self._programs(len(layout.rows)) * self._words()

    def _programs(self, rows: int) -> int:
        return min(rows, self._most)

    def _words(self) -> int:
        row: int = self.constants["D"]
        packets: int = self.constants["KP"]
        return row + row // 16 + row // 32 + SCRATCH_A_PACKET * packets

    def of(self, rows: range | None) -> tuple[torch.Tensor, int, int]:
        """Table, rows and programs for some rows, which follow each other, or all."""
        table = self._table if rows is None else self._table[rows.start : rows.stop]
        return table, len(table), self._programs(len(table))
