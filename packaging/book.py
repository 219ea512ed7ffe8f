#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the book of docs/ has every page, and whether what its pages point to is in it."""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


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


def problems(docs: Path) -> list[str]:
    pages = {page.relative_to(docs) for page in docs.rglob("*.md")} - {Path("SUMMARY.md")}
    listed = {Path(target) for target in LINK.findall((docs / "SUMMARY.md").read_text(encoding="utf-8"))}
    found = [f"SUMMARY.md does not list {page}" for page in sorted(pages - listed)]
    found += [f"SUMMARY.md lists {page}, which is not there" for page in sorted(listed - pages)]
    for page in sorted(pages & listed):
        for target in LINK.findall(prose(docs / page)):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            there = (docs / page).parent / path if path else docs / page
            if not there.resolve().is_relative_to(docs.resolve()):
                found.append(f"{page}: {target} is not in the book; name it without a link")
            elif not there.is_file():
                found.append(f"{page}: {target} is not there")
            elif anchor and there.suffix == ".md" and anchor not in anchors(there):
                found.append(f"{page}: {path or page} has no heading #{anchor}")
    return found


if __name__ == "__main__":
    complaints = problems(DOCS)
    for complaint in complaints:
        print(f"docs/{complaint}", file=sys.stderr)
    sys.exit(bool(complaints))
