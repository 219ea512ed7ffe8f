#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Licences of the crates that are linked into a program: packaging/licences.py trimwire-agent [trimwire-switch …]

For each crate it prints name, version, the SPDX expression and the home; then each licence and notice that these crates
carry, once. What only builds or tests need is left out. Exits with 1 where a crate says nothing of its licence.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXTS = ("licen", "copying", "notice", "copyright")


def metadata() -> dict:
    host = subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout
    triple = next(line.split()[1] for line in host.splitlines() if line.startswith("host: "))
    words = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version=1", "--locked", f"--filter-platform={triple}"]
    return json.loads(subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)


def linked(found: dict, roots: list[str]) -> list[dict]:
    """Crates below these packages that are part of the program: neither build scripts' nor tests', nor procedural macros."""
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    names = {package["name"]: key for key, package in packages.items() if key in found["workspace_members"]}
    unknown = [name for name in roots if name not in names]
    if unknown:
        sys.exit(f"{', '.join(unknown)}: no package of this workspace; there are {', '.join(sorted(names))}")
    todo, seen = [names[name] for name in roots], set()
    while todo:
        key = todo.pop()
        if key in seen:
            continue
        seen.add(key)
        for dependency in nodes[key]["deps"]:
            macro = any("proc-macro" in target["kind"] for target in packages[dependency["pkg"]]["targets"])
            if not macro and any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])
    crates = [packages[key] for key in seen if key not in found["workspace_members"]]
    return sorted(crates, key=lambda crate: (crate["name"], crate["version"]))


def texts(crate: dict) -> list[tuple[str, str]]:
    folder = Path(crate["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name.lower().startswith(TEXTS))
    return [(path.name, path.read_text(encoding="utf-8", errors="replace").strip()) for path in files]


def main() -> int:
    roots = sys.argv[1:]
    if not roots or roots[0].startswith("-"):
        sys.exit(__doc__)
    crates = linked(metadata(), roots)
    silent = [crate["name"] for crate in crates if not crate["license"] and not crate["license_file"]]
    if silent:
        print(f"no licence is told of {', '.join(silent)}", file=sys.stderr)
        return 1
    print(f"{', '.join(roots)} of Trimwire is licensed under Apache-2.0. {len(crates)} crates are linked into it:\n")
    for crate in crates:
        print(f"{crate['name']} {crate['version']}: {crate['license'] or crate['license_file']}; {crate['repository'] or crate['homepage'] or 'https://crates.io/crates/' + crate['name']}")
    by_text: dict[str, tuple[str, list[str]]] = {}
    for crate in crates:
        for name, text in texts(crate):
            key = hashlib.sha256(" ".join(text.split()).encode()).hexdigest()
            by_text.setdefault(key, (text, []))[1].append(f"{crate['name']} {crate['version']} ({name})")
    for text, places in by_text.values():
        print(f"\n{'-' * 78}\n{', '.join(places)}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
