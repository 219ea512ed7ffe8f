# SPDX-License-Identifier: Apache-2.0
"""Do the P4Infos of the targets agree? One controller writes the same entries to all of them.

Compared are the tables that a controller writes, and what belongs to them: names, identifiers, keys with their widths and
match kinds, actions with their parameters. Sizes may differ, they are the hardware's. Standard library only.
Exit status: 0 they agree, 1 they do not.
"""

import re
import sys
from pathlib import Path

BUILD = Path("p4/build")
REFERENCE = "bmv2"
# What one kind of target has and another does not need: where the traffic manager has shapers, they are the cap. What is on
# BMv2 alone so far: whose DSCP is believed, a hash seed per switch, marks on trimmable packets, frames for another port.
ONLY_ON_BMV2 = {
    "Ingress.trim_cap.cap", "Ingress.trust", "Ingress.hash_seed", "Ingress.mark_trimmable", "Ingress.own_mac",
}

TOKEN = re.compile(r'\s+|#[^\n]*|"(?:\\.|[^"\\])*"|[{}:\[\],;<>]|[^\s{}:\[\],;<>"#]+')


def parse(text):
    """Protobuf text format as a dictionary of lists: every field may be repeated."""
    tokens = [token for token in TOKEN.findall(text) if not token.isspace() and not token.startswith("#")]
    message, rest = parse_fields(tokens, 0)
    if rest != len(tokens):
        raise ValueError(f"unexpected {tokens[rest]!r}")
    return message


def parse_fields(tokens, at):
    message = {}
    while at < len(tokens) and tokens[at] != "}":
        name = tokens[at]
        at += 1
        if tokens[at] == ":":
            at += 1
        if tokens[at] == "{":
            value, at = parse_fields(tokens, at + 1)
            if at == len(tokens):
                raise ValueError(f"{name} is not closed")
            at += 1
        else:
            value = tokens[at].strip('"')
            at += 1
        message.setdefault(name, []).append(value)
    return message, at


def preamble(entity, field):
    return entity["preamble"][0][field][0]


def one(message, field, default=""):
    return message.get(field, [default])[0]


def describe(p4info):
    """By table name, everything about the table that a controller depends on."""
    actions = {preamble(action, "id"): action for action in p4info.get("actions", [])}
    profiles = {preamble(profile, "id"): profile for profile in p4info.get("action_profiles", [])}
    tables = {}
    for table in p4info.get("tables", []):
        name = preamble(table, "name")
        facts = {"id": preamble(table, "id")}
        for field in table.get("match_fields", []):
            facts[f"key {one(field, 'id')}"] = (
                f"{one(field, 'name')}, {one(field, 'bitwidth')} bits, {one(field, 'match_type')}")
        for reference in table.get("action_refs", []):
            action = actions[one(reference, "id")]
            parameters = ", ".join(
                f"{one(parameter, 'name')}: {one(parameter, 'bitwidth')}" for parameter in action.get("params", []))
            facts[f"action {preamble(action, 'name')}"] = f"{preamble(action, 'id')} ({parameters})"
        if "implementation_id" in table:
            profile = profiles[one(table, "implementation_id")]
            selector = "selector" if one(profile, "with_selector") == "true" else "profile"
            # Not its identifier: Tofino's back end numbers what its architecture declares by itself.
            facts["implementation"] = f"{selector} {preamble(profile, 'name')}"
        tables[name] = facts
    return tables


def differences(reference, other, only_in_reference):
    """One line for everything on which two described P4Infos disagree."""
    for name in sorted(other.keys() - reference.keys()):
        yield f"table {name} is not in {REFERENCE}'s"
    for name in sorted(reference):
        if name not in other:
            if name not in only_in_reference:
                yield f"table {name} is missing"
            continue
        if name in only_in_reference:
            yield f"table {name} is not meant for this target"
        for fact in sorted(reference[name].keys() | other[name].keys()):
            expected, found = reference[name].get(fact, "none"), other[name].get(fact, "none")
            if expected != found:
                yield f"table {name}: {fact}: {found}; {REFERENCE} has {expected}"


def main():
    files = {path.parent.name: path for path in sorted(BUILD.glob("*/trimwire.p4info.txtpb"))}
    described = {target: describe(parse(path.read_text(encoding="utf-8"))) for target, path in files.items()}
    if REFERENCE not in described:
        print(f"p4: there is no P4Info of {REFERENCE} in {BUILD}")
        return 1
    problems = [f"p4: {files[target]}: {line}" for target, tables in described.items() if target != REFERENCE
                for line in differences(described[REFERENCE], tables, ONLY_ON_BMV2)]
    for line in problems:
        print(line)
    if not problems:
        print(f"p4: the P4Infos of {', '.join(described)} agree on {len(described[REFERENCE].keys() - ONLY_ON_BMV2)} tables")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
