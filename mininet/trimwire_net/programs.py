# SPDX-License-Identifier: Apache-2.0
"""Where the programs are."""
from __future__ import annotations

import os
import shutil
from pathlib import Path

from trimwire_net.run_folder import Problem

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = "cargo build --release -p trimwire-switch -p trimwire-controller -p trimwire-agent-programs"


def folders() -> list[Path]:
    """Where our programs are looked for: `TRIMWIRE_BIN_DIR` alone if it is set, otherwise where cargo puts them."""
    chosen = os.environ.get("TRIMWIRE_BIN_DIR")
    if chosen:
        return [Path(chosen).resolve()]
    target = Path(os.environ.get("CARGO_TARGET_DIR") or "target")
    target = target if target.is_absolute() else REPOSITORY / target
    return [target / "release", target / "debug"]


def ours(name: str) -> str:
    """The path of one of our programs."""
    for folder in folders():
        path = folder / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    looked = " or ".join(str(folder) for folder in folders())
    raise Problem(f"{name} is not in {looked}. Build it ({BUILD}), or name its folder: "
                  "sudo TRIMWIRE_BIN_DIR=/path mn …")


def bmv2() -> str:
    """The path of BMv2's P4Runtime switch."""
    path = shutil.which("simple_switch_grpc")
    if path is None:
        raise Problem("SWITCH=bmv2 needs simple_switch_grpc on PATH (p4lang's packages, or a build of "
                      "p4lang/behavioral-model); SWITCH=trimwire needs nothing but this repository")
    return path
