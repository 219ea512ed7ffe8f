#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the book has every page, and whether the pages' links lead somewhere; `--stage DIR` puts the book's sources together.

    docs/SUMMARY.md ─► pages of docs/, README.md, p4/README.md, … ─► DIR/, at the paths that they have in the repository ─► mdbook build DIR
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = ROOT / "docs" / "SUMMARY.md"
# `make reference` writes these pages. They are in the book, listed or not.
GENERATED = ROOT / "docs" / "reference" / "generated"
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
# Pages as the sources name them, in comments, messages and tests.
NAMED = re.compile(r"(?<![\w/.])docs/[\w/-]+\.md")
SOURCES = (".rs", ".py", ".sh", ".toml", ".yaml", ".yml", ".json", ".p4")
NOT_SOURCES = {".git", "target", "node_modules", ".venv", "venv"}


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The names that mdBook gives a page's headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        name = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))
        found.add(name if name not in found else f"{name}-{sum(other.startswith(name) for other in found)}")
    return found


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def generated() -> list[Path]:
    return sorted(GENERATED.glob("*.md"))


def listed() -> list[Path]:
    """Pages that SUMMARY.md lists, in order."""
    targets = LINK.findall(SUMMARY.read_text(encoding="utf-8"))
    return [Path(os.path.normpath(SUMMARY.parent / target)) for target in targets]


def problems() -> list[str]:
    pages = listed()
    there = {page for page in SUMMARY.parent.rglob("*.md") if page != SUMMARY and GENERATED not in page.parents}
    found = [f"docs/SUMMARY.md does not list {name_of(page)}" for page in sorted(there - set(pages))]
    found += [f"docs/SUMMARY.md lists {name_of(page)}, which is not there" for page in pages if not page.is_file()]
    book = {*pages, *generated()}
    for page in sorted(page for page in book if page.is_file()):
        for target in LINK.findall(prose(page)):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            to = Path(os.path.normpath(page.parent / path)) if path else page
            if GENERATED in to.parents and not generated():
                continue
            if not to.exists():
                found.append(f"{name_of(page)}: {target} is not there")
            elif to.suffix == ".md" and to not in book or page.parent != ROOT and to.is_dir():
                found.append(f"{name_of(page)}: {target} is not in the book; name it without a link")
            elif anchor and to.suffix == ".md" and anchor not in anchors(to):
                found.append(f"{name_of(page)}: {name_of(to)} has no heading #{anchor}")
    return found


def misnamed() -> list[str]:
    """Sources that name a page which is not there."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(set(folders) - NOT_SOURCES)
        for file in sorted(files):
            if not file.endswith(SOURCES) and file != "Makefile":
                continue
            path = Path(folder, file)
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").split("\n"), 1):
                for page in NAMED.findall(line):
                    if not (ROOT / page).is_file() and not page.startswith("docs/reference/generated/"):
                        found.append(f"{name_of(path)}:{number}: {page} is not there")
    return found


def stage(folder: Path) -> None:
    """Copies the book's sources, each to where it is in the repository, so that links between them hold."""
    shutil.rmtree(folder, ignore_errors=True)
    figures = [path for path in (SUMMARY.parent / "figures").iterdir() if path.suffix in (".svg", ".csv")]
    for path in {*listed(), *generated(), *figures, ROOT / "LICENSE"}:
        (folder / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / path.relative_to(ROOT))
    summary = SUMMARY.read_text(encoding="utf-8")
    if unlisted := [page for page in generated() if page not in listed()]:
        lines = [f"- [{page.read_text(encoding='utf-8').split(chr(10))[0].lstrip('# ')}]({page.relative_to(SUMMARY.parent)})" for page in unlisted]
        summary += "\n# Reference, generated\n\n" + "\n".join(lines) + "\n"
    summary = LINK.sub(lambda link: f"]({os.path.normpath(os.path.join('docs', link[1]))})", summary)
    (folder / "SUMMARY.md").write_text(summary, encoding="utf-8")
    shutil.copyfile(SUMMARY.parent / "book.toml", folder / "book.toml")


def main() -> int:
    complaints = problems() + misnamed()
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if not complaints and sys.argv[1:2] == ["--stage"]:
        stage(Path(sys.argv[2]))
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
