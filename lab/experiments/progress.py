# SPDX-License-Identifier: Apache-2.0
"""What is done of long work: tqdm's bar where it is installed, else a line on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

_EVERY_S = 10.0


class Progress:
    """A context manager; `step` after each piece of work."""

    def __init__(self, total: int, what: str, *, show: bool = True) -> None:
        self._total, self._what, self._show, self._done = total, what, show, 0
        self._bar: Any = None
        self._told = time.monotonic()
        if show:
            try:
                import tqdm  # type: ignore[import-untyped, unused-ignore]
            except ImportError:
                pass
            else:
                self._bar = tqdm.tqdm(total=total, desc=what)

    def step(self, name: str) -> None:
        """A piece, of that name, is done."""
        self._done += 1
        if self._bar is not None:
            self._bar.set_postfix_str(name, refresh=False)
            self._bar.update()
        elif self._show:
            now, last = time.monotonic(), self._done == self._total
            if sys.stderr.isatty():
                print(f"\r\x1b[K{self._what}: {self._done}/{self._total}  {name}", end="\n" if last else "", file=sys.stderr, flush=True)
            elif last or now - self._told >= _EVERY_S:
                print(f"{self._what}: {self._done}/{self._total}  {name}", file=sys.stderr, flush=True)
                self._told = now

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()
