"""What ends a run with an explanation."""
from __future__ import annotations

import time
from typing import Callable, Optional, TypeVar

T = TypeVar("T")


class Problem(SystemExit):
    """Printed on stderr, exit code 1. Not an Exception: at one of those `mn` shows its own kind of message."""

    def __init__(self, text: str) -> None:
        super().__init__(f"trimwire-mininet: {text}")


def poll(what: str, seconds: float, look: Callable[[], Optional[T]]) -> T:
    """Looks until a condition gives something."""
    end = time.monotonic() + seconds
    while True:
        seen = look()
        if seen is not None:
            return seen
        if time.monotonic() >= end:
            raise Problem(f"{what}: not within {seconds:g} s")
        time.sleep(0.01)
