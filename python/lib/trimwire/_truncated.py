# SPDX-License-Identifier: Apache-2.0
"""Frames that switches have trimmed without mending their lengths, which the kernel drops before any socket sees them."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path

_FILE = Path("/proc/net/netstat")
#: Between two looks, seconds.
_PAUSE = 5.0
_started = threading.Event()


def count(text: str) -> int | None:
    """InTruncatedPkts of IpExt in what /proc/net/netstat says; None where the kernel does not tell."""
    rows = [line.split() for line in text.splitlines() if line.startswith("IpExt:")]
    if len(rows) != 2 or "InTruncatedPkts" not in rows[0]:
        return None
    return int(rows[1][rows[0].index("InTruncatedPkts")])


def _read() -> int | None:
    try:
        return count(_FILE.read_text())
    except OSError:
        return None


def warn_when_there_are_some() -> None:
    """Warns, once a process, when the kernel has dropped such frames. For groups that receive by ordinary sockets."""
    first = _read()
    if first is None or _started.is_set():
        return
    _started.set()
    threading.Thread(target=_look, args=(first,), name="trimwire-truncated", daemon=True).start()


def _look(first: int) -> None:
    while True:
        now = _read()
        if now is not None and now > first:
            warnings.warn(
                f"this host's kernel has dropped {now - first} packets that are shorter than their IP header says (InTruncatedPkts): switches trim and leave lengths as they were. "
                "trimwire then sends again what was trimmed. receive='raw' (TRIMWIRE_RECEIVE=raw) takes such packets; it needs CAP_NET_RAW. `trimwire-agent doctor` tells more",
                RuntimeWarning,
                stacklevel=1,
            )
            return
        threading.Event().wait(_PAUSE)
