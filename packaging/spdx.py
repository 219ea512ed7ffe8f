#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts the licence's SPDX line into sources that have none: packaging/spdx.py writes, packaging/spdx.py --check complains."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE = "SPDX-License-Identifier: Apache-2.0"
COMMENTS = {".rs": "//", ".p4": "//", ".proto": "//", ".py": "#", ".pyi": "#", ".sh": "#", "Makefile": "#", "Dockerfile": "#", ".ci/run": "#"}


def comment(name: str) -> str | None:
    path = Path(name)
    return COMMENTS.get(name) or COMMENTS.get(path.name) or COMMENTS.get(path.suffix)


def with_line(text: str, mark: str) -> str:
    """Behind the line that names the interpreter, where there is one."""
    first, rest = (text.split("\n", 1) + [""])[:2] if text.startswith("#!") and not text.startswith("#![") else ("", text)
    head = f"{first}\n" if first else ""
    # A comment of the file stands apart in the languages in which it would become part of it.
    gap = "\n" if mark == "//" and rest and not rest.startswith(("\n", "//!")) and rest.startswith("//") else ""
    return f"{head}{mark} {LINE}\n{gap}{rest}"


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    without = []
    for name in listed.stdout.splitlines():
        path, mark = ROOT / name, comment(name)
        if mark and path.is_file() and not path.is_symlink():
            text = path.read_text(encoding="utf-8")
            if LINE not in "\n".join(text.split("\n")[:4]):
                without.append(name)
                if "--check" not in sys.argv[1:]:
                    path.write_text(with_line(text, mark), encoding="utf-8")
    if "--check" in sys.argv[1:]:
        for name in without[:20]:
            print(f"{name} has no '{LINE}'; packaging/spdx.py writes it", file=sys.stderr)
        if len(without) > 20:
            print(f"and {len(without) - 20} more", file=sys.stderr)
        return bool(without)
    print(f"wrote {len(without)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
