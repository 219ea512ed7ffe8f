# SPDX-License-Identifier: Apache-2.0
"""One folder a run, for logs, pidfiles and the fabric file; and how a run ends with an explanation."""
from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

class Problem(SystemExit):
    """Printed on stderr, exit code 1. Not an Exception: for those `mn` shows its own kind of message."""

    def __init__(self, text: str) -> None:
        super().__init__(f"trimwire-mininet: {text}")


_folder: Path | None = None
_keep = False


def run_folder() -> Path:
    """`TRIMWIRE_MININET_DIR`, which stays; otherwise a temporary one, removed at the end unless something failed."""
    global _folder, _keep
    if _folder is None:
        chosen = os.environ.get("TRIMWIRE_MININET_DIR")
        if chosen:
            _keep = True
            _folder = Path(chosen).resolve()
            _folder.mkdir(parents=True, exist_ok=True)
        else:
            _folder = Path(tempfile.mkdtemp(prefix="trimwire-mininet-"))
        atexit.register(_remove)
    return _folder


def keep() -> Path:
    """The folder, which stays for somebody to look at."""
    global _keep
    _keep = True
    return run_folder()


def _remove() -> None:
    if _folder is None:
        return
    if _keep and any(_folder.iterdir()):
        print(f"trimwire-mininet: logs and the fabric file are in {_folder}", file=sys.stderr)
    else:
        shutil.rmtree(_folder, ignore_errors=True)
