# SPDX-License-Identifier: Apache-2.0
"""What ends a run with an explanation."""
from __future__ import annotations


class Problem(SystemExit):
    """Printed on stderr, exit code 1. Not an Exception: at one of those `mn` shows its own kind of message."""

    def __init__(self, text: str) -> None:
        super().__init__(f"trimwire-mininet: {text}")
