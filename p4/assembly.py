# SPDX-License-Identifier: Apache-2.0
"""Is all of the program in the assembly that p4c's Tofino back end wrote (.bfa), and does it fit the chip?

A compiler that ends with 0 may have lost something: p4lang/p4c#5752 dropped every branch of a parser's `select` but the first.
Looked for are every table and action of the P4Info, every counter and meter, and every branch of every parser state. A
program with more stages than the chip has is compiled without a word, too; the assembler is the first to refuse it.
Standard library only.
"""

import re
import sys
from pathlib import Path

import p4info

# Match-action stages of a pipe, by the name that the assembly gives the chip.
STAGES = {"Tofino": 12, "Tofino2": 20}

SECTION = re.compile(r"^(\w+)(?: (\d+))?(?: (ingress|egress|ghost))?:", re.MULTILINE)
TABLE_NAME = re.compile(r"^ +p4: \{ name: ([\w.$-]+)", re.MULTILINE)
ACTION_NAME = re.compile(r"^ +([\w.$-]+)\(-?\d+, -?\d+\):$", re.MULTILINE)


def sections(text):
    """(kind, gress, lines) of everything that starts in the first column."""
    starts = list(SECTION.finditer(text))
    for start, following in zip(starts, [*starts[1:], None]):
        yield start[1], start[3], text[start.start():following.start() if following else len(text)]


def blocks(text, indent):
    """(first line, text) of every block that is indented by `indent`."""
    starts = [match.start() for match in re.finditer(rf"^ {{{indent}}}(?=[^\s#-])", text, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(text)]):
        block = text[start:end]
        yield block.splitlines()[0].strip(), block


def tables_and_actions(text):
    """By P4 name of a table or an attached array, the actions that the assembly has for it.

    A table's actions stand in its own block or in those of what is attached to it, which are called TABLE$something.
    """
    names, actions = {}, {}
    for kind, _gress, section in sections(text):
        if kind == "stage":
            for first, block in blocks(section, 2):
                label = first.rstrip(":").split()[1] if " " in first else first.rstrip(":")
                for name in TABLE_NAME.findall(block):
                    names.setdefault(name, set()).add(label.split("$")[0])
                actions.setdefault(label.split("$")[0], set()).update(ACTION_NAME.findall(block))
    return {name: set().union(*(actions[label] for label in labels)) for name, labels in names.items()}


def lost_tables(text, tables, arrays):
    """Yields what of `tables` (p4info.describe) and `arrays` (names of counters and meters) is not in the assembly."""
    found = tables_and_actions(text)
    for table, facts in sorted(tables.items()):
        if table not in found:
            yield f"table {table} is not in the assembly"
            continue
        for action in sorted(fact.removeprefix("action ") for fact in facts if fact.startswith("action ")):
            if action not in found[table]:
                yield f"action {action} of table {table} is not in the assembly"
    for array in sorted(arrays):
        if array not in found:
            yield f"{array} is not in the assembly"


def p4_parsers(source):
    """By gress, what the source's parser states do: {state: (select's labels without default, headers extracted)}."""
    source = re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.DOTALL)
    parsers = {}
    for parser in re.finditer(r"^parser \w*(Ingress|Egress)Parser\(.*?^\}", source, re.DOTALL | re.MULTILINE):
        states = parsers.setdefault(parser[1].lower(), {})
        for state in re.finditer(r"\bstate (\w+) \{(.*?)^    \}", parser[0], re.DOTALL | re.MULTILINE):
            select = re.search(r"\bselect\(.*?\) \{(.*?)\}", state[2], re.DOTALL)
            labels = re.findall(r"^\s*(.+?): \w+;", select[1], re.MULTILINE) if select else []
            headers = re.findall(r"\.extract\(([\w.]+)\)", state[2])
            states[state[1]] = ([label for label in labels if label not in ("default", "_")], headers)
    return parsers


def assembled_parser(section):
    """The parser states of one gress: (names of the source's states in it, does it match, number of rows)."""
    for first, state in blocks(section[section.index("  states:"):], 4):
        names = {name for name in first.rstrip(":").split(".") if not name.startswith("$")}
        rows = [line for line, _row in blocks(state, 6) if not line.startswith(("match:", "option:"))]
        yield names, re.search(r"^      match: \[", state, re.MULTILINE) is not None, len(rows)


def lost_branches(text, source):
    """Yields every parser state of the source of which the assembly lacks a branch or a header."""
    assembled = {gress: section for kind, gress, section in sections(text) if kind == "parser"}
    for gress, states in p4_parsers(source).items():
        if gress not in assembled:
            yield f"the {gress} parser is not in the assembly"
            continue
        found = list(assembled_parser(assembled[gress]))
        for state, (labels, headers) in states.items():
            rows = sum(count for names, matches, count in found if state in names and matches)
            if rows < len(labels):
                yield (f"{gress} parser, state {state}: the source has {len(labels)} branches besides the default, the assembly "
                       f"{rows} rows that match")
            for header in headers:
                # The comments name every field that the parser puts into a container, and every header it makes valid.
                if header != "intrinsic" and f"::{header}." not in assembled[gress]:
                    yield f"{gress} parser, state {state}: {header} is not extracted"


def stages_too_many(text):
    """Yields every gress that takes more stages than the chip has."""
    chip = re.search(r"^  target: (\w+)", text, re.MULTILINE)
    if chip is None or chip[1] not in STAGES:
        yield f"the assembly is for {chip[1] if chip else 'no chip'}, not for one of {', '.join(STAGES)}"
        return
    for gress in ("ingress", "egress"):
        taken = max((int(start[2]) + 1 for start in SECTION.finditer(text) if (start[1], start[3]) == ("stage", gress)), default=0)
        if taken > STAGES[chip[1]]:
            yield f"{gress} takes {taken} stages, {chip[1]} has {STAGES[chip[1]]}"


def lost(folder, p4info_file, sources):
    """What is in the P4Info and in the sources but not in the .bfa that the compiler left in `folder`, line by line; and what of it the
    chip has no room for."""
    files = sorted(folder.rglob("*.bfa"))
    if len(files) != 1:
        return [f"the compiler left {len(files)} assembly files, not one"]
    text = files[0].read_text(encoding="utf-8")
    info = p4info.parse(p4info_file.read_text(encoding="utf-8"))
    arrays = [p4info.preamble(array, "name") for kind in ("counters", "meters") for array in info.get(kind, [])]
    source = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    return [*lost_tables(text, p4info.describe(info), arrays), *lost_branches(text, source), *stages_too_many(text)]


def main(arguments):
    if len(arguments) < 3:
        print("usage: p4/assembly.py FOLDER_WITH_BFA P4INFO SOURCE...", file=sys.stderr)
        return 2
    problems = lost(Path(arguments[0]), Path(arguments[1]), [Path(argument) for argument in arguments[2:]])
    for line in problems:
        print(f"p4: {line}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
