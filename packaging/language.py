#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the language of the documentation against the rules in CONTRIBUTING.md.

    packaging/language.py            a line for each page that breaks a rule, then totals; exit code 1 if one does
    packaging/language.py --table    a line for each page
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "docs/**/*.md", "p4/README.md", "switch/README.md", "bmv2-tests/README.md")
# Written by commands, or by others' rules.
LEFT_OUT = ("CHANGELOG.md", "docs/SUMMARY.md", "docs/figures/", "docs/reference/generated/")

LONG_SENTENCE = 30  # words
LONG_SHARE = 0.05  # of a page's sentences that may be longer, two at least
LIMITATIONS_WORDS = 1_200  # tables included
LINE = 100
TABLE_LINE = 200  # for all lines but those of tables, code and links

BANNED = {
    r"cuts?|cutting|uncut": "trim",
    r"laws?": "algorithm",
    r"heads": "trimmed packets, or headers",
    r"silence|silent(ly)?": "without ACKs, without an answer, or unnoticed",
    r"now|previously|formerly|no longer|used to be": "the state alone; git has the history",
    r"whoever|nobody|somebody|everybody": "the actor's name",
}
# Titles, and commands of other programs.
ALLOWED = ("When ML Training Cuts Through Congestion",)

FENCE = re.compile(r"^( *)```.*?^\1```[^\n]*$", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->|<!-- faults -->.*?<!-- faults -->", re.DOTALL)
LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
END = re.compile(r"(?<=[.!?])[)\"*_]*\s+(?=[\"(*_A-Z0-9À-ÿα-ω])")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|al|cf)\.\s")


@dataclass
class Page:
    path: Path
    words: int = 0
    table_words: int = 0
    sentences: list[str] = field(default_factory=list)
    over_200: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def long(self) -> list[str]:
        return [sentence for sentence in self.sentences if len(sentence.split()) > LONG_SENTENCE]

    @property
    def mean(self) -> float:
        return self.words / max(1, len(self.sentences))


def blank(match: re.Match[str]) -> str:
    """As many lines of nothing, so that line numbers stay."""
    return "\n" * match[0].count("\n")


def plain(text: str) -> str:
    """Text as it is read: links by their names, code as one word."""
    text = CODE.sub("Code", LINK.sub(r"\1", text))
    for title in ALLOWED:
        text = text.replace(title, "title")
    return ABBREVIATION.sub(r"\1 ", text.replace("**", "").replace("*", ""))


def is_table(line: str) -> bool:
    return line.lstrip().startswith("|")


def measure(path: Path) -> Page:
    page = Page(path)
    text = GENERATED.sub(blank, FENCE.sub(blank, path.read_text(encoding="utf-8")))
    text = re.sub(r"<!--.*?-->|</?details>|<summary>.*?</summary>", blank, text, flags=re.DOTALL)
    paragraphs: list[str] = [""]
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > TABLE_LINE and not is_table(line):
            page.over_200 += 1
        # Links and code are not broken.
        unbroken = CODE.sub("", LINK.sub("", line)).strip()
        if len(line) > LINE and not is_table(line) and len(unbroken) > LINE - 40 and not line.startswith("    "):
            page.complaints.append(f"{number}: {len(line)} characters in a line, {LINE} at most")
        said = plain(line)
        for banned, instead in BANNED.items():
            for found in re.finditer(rf"(?i)(?<![\w'-])({banned})(?![\w-])", said):
                page.complaints.append(f"{number}: “{found[0]}”: say {instead}")
        if is_table(line):
            page.table_words += len(re.findall(r"\w[\w'’.,·-]*", said))
            paragraphs.append("")
        elif line.startswith(("#", "    ", "---")) or not line.strip():
            paragraphs.append("")
        elif re.match(r" *([-*]|\d+\.) ", line):
            paragraphs.append(re.sub(r"^ *([-*]|\d+\.) ", "", line))
        else:
            paragraphs[-1] += " " + line.strip()
    for paragraph in paragraphs:
        for sentence in END.split(plain(paragraph).strip()):
            words = sentence.split()
            if not words:
                continue
            page.sentences.append(sentence)
            page.words += len(words)
            if re.match(r"(Who|What|Whoever|Whatever) ", sentence) and "?" not in sentence and len(words) > 4:
                page.complaints.append(f"a sentence without an actor: “{' '.join(words[:8])} …”")
    if len(page.long) > max(2, LONG_SHARE * len(page.sentences)):
        share = f"{len(page.long)} of {len(page.sentences)}"
        page.complaints.append(f"{share} sentences have more than {LONG_SENTENCE} words, {LONG_SHARE:.0%} at most:")
        page.complaints += [f"  {len(long.split())} words: “{' '.join(long.split()[:9])} …”" for long in page.long]
    if path.name == "LIMITATIONS.md" and page.words + page.table_words > LIMITATIONS_WORDS:
        page.complaints.append(f"{page.words + page.table_words} words, {LIMITATIONS_WORDS} at most")
    return page


def pages() -> list[Page]:
    found = sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})
    names = [(path, path.relative_to(ROOT).as_posix()) for path in found]
    return [measure(path) for path, name in names if not name.startswith(LEFT_OUT)]


def main() -> int:
    measured = pages()
    row = "{:44} {:>7} {:>7} {:>9} {:>6} {:>9} {:>9}"
    if "--table" in sys.argv[1:]:
        print(row.format("page", "words", "tables", "sentences", "mean", "over 30", "over 200"))
        for page in measured:
            name, sentences = page.path.relative_to(ROOT).as_posix(), len(page.sentences)
            share = f"{len(page.long) / max(1, sentences):.0%}"
            print(row.format(name, page.words, page.table_words, sentences, f"{page.mean:.1f}", share, page.over_200))
    sentences = sum(len(page.sentences) for page in measured)
    words, tables = sum(page.words for page in measured), sum(page.table_words for page in measured)
    long = sum(len(page.long) for page in measured)
    wide = sum(page.over_200 for page in measured)
    print(f"{len(measured)} pages: {words} words and {tables} in tables; {sentences} sentences, mean {words / sentences:.1f} words,"
          f" {long / sentences:.1%} over {LONG_SENTENCE}; {wide} lines over {TABLE_LINE} characters")
    for page in measured:
        for complaint in page.complaints:
            print(f"{page.path.relative_to(ROOT)}:{complaint}", file=sys.stderr)
    return int(any(page.complaints for page in measured))


if __name__ == "__main__":
    sys.exit(main())
