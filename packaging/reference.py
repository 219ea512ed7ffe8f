#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference pages, made from the programs and from the sources that read what the pages describe.

    packaging/reference.py              write docs/reference/generated/ (make reference)
    packaging/reference.py --check      fail where a page differs, or where a source reads an unknown variable

The programs come from TRIMWIRE_BIN_DIR, or from target/debug.
"""

import difflib
import json
import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs/reference/generated"
PROGRAMS = ("trimwire", "trimwire-agent", "trimwire-controller", "trimwire-switch")
# Its page is compared where it was built: a newcomer's tests leave it out.
LAB = "trimwire-lab"
SCHEMAS = {
    "fabric-file": ("The fabric file", "controller/fabric.schema.json", "`trimwire-controller` reads it"),
}
METRICS = (
    ("trimwire-agent", "--metrics", "agent-programs/testdata/metrics.txt"),
    ("trimwire-controller", "run --metrics", "controller/tests/golden/metrics.txt"),
    ("trimwire-switch", "--metrics-addr", "switch/testdata/metrics.txt"),
)
SCENARIO = ROOT / "lab/src/sim/scenario"

# Variables that no option of a program stands for: (who reads it, what it means). A variable that a source reads and that
# neither this table nor a program's help names is an error.
VARIABLES = {
    "CARGO_TARGET_DIR": ("Mininet scripts", "Folder of cargo's builds, where the programs are looked for."),
    "LOCAL_RANK": ("the Python package", "This rank's number on its host, as torchrun sets it: its GPU, and the port of its metrics."),
    "LOCAL_WORLD_SIZE": ("`trimwire.torch`", "Ranks on this host, as torchrun sets it."),
    "SWITCH": ("Mininet scripts", "Switch to run: `trimwire` (the default) or `bmv2`."),
    "TORCHELASTIC_RESTART_COUNT": ("`trimwire.torch`", "Restarts of the job, as torchrun counts them."),
    "TORCHELASTIC_USE_AGENT_STORE": ("`trimwire-agent`", "Whether torchrun's own store listens on MASTER_PORT."),
    "TRIMWIRE_BIN_DIR": ("Mininet scripts, tests", "Folder of the four programs."),
    "TRIMWIRE_DEBUG": ("`trimwire-agent`, `trimwire-controller`, the Python package when it is imported", "What to log to stderr, as `warn` or `trimwire_agent=debug`."),
    "TRIMWIRE_GRPC_PORT": ("Mininet scripts", "TCP port of the first switch's P4Runtime server."),
    "TRIMWIRE_LOCAL_SIZE": ("`trimwire.torch`", "Ranks on this host that share a GPU's link, instead of LOCAL_WORLD_SIZE."),
    "TRIMWIRE_MININET_DIR": ("Mininet scripts", "Folder of logs and reports of a run."),
    "TRIMWIRE_POLICY": ("Mininet scripts", "Policy of the switches, as in a fabric file."),
    "TRIMWIRE_SERVE_ARGS": ("`trimwire-serve@.service`", "Options of `trimwire-agent serve`."),
    "TRIMWIRE_SWITCH_ARGS": ("`trimwire-switch@.service`", "Options of `trimwire-switch`."),
    "TRIMWIRE_THRIFT_PORT": ("Mininet scripts", "TCP port of the first BMv2's Thrift server."),
    "SUDO_USER": ("`trimwire-controller`", "Who rolled out, for the history: the first of SUDO_USER, USER and LOGNAME."),
}
# Variables of tests, builds and benchmarks.
INTERNAL = {
    "AS_GLOO", "ASAN_OPTIONS", "TRIMWIRE_ALONE", "BACKEND", "CARGO", "PATH", "PYTHON", "RUSTC", "TORCH", "TORCH_DISTRIBUTED_DEBUG", "TRIMWIRE_CASES",
    "TRIMWIRE_DIGITS", "TRIMWIRE_DRIFT_PACKETS", "TRIMWIRE_FUZZ", "TRIMWIRE_FUZZ_CORPUS", "TRIMWIRE_FUZZ_RUNS", "TRIMWIRE_FUZZ_SEED",
    "TRIMWIRE_K", "TRIMWIRE_RECORD_BMV2", "TRIMWIRE_REPOSITORY", "TRIMWIRE_REQUIRE_CLIENTS", "TRIMWIRE_REQUIRE_NETNS",
    "TRIMWIRE_REQUIRE_PYTHON", "TRIMWIRE_STRANGERS", "TRIMWIRE_TEST_SEED", "TRIMWIRE_UPDATE_GOLDENS", "TRIMWIRE_VECTORS", "TRITON_INTERPRET", "OUT_DIR",
    "MAINPID", "OMP_NUM_THREADS", "TEMP_DIR", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_JOB_ID", "SLURM_GPUS_ON_NODE", "HOSTNAME",
    "PYTORCH_PRINT_REPRO_ON_FAILURE",
}  # fmt: skip
READS = (
    re.compile(r"\benv::var(?:_os)?\(\s*\"([A-Z][A-Z0-9_]+)\""),
    re.compile(r"\btry_from_env\(\s*\"([A-Z][A-Z0-9_]+)\""),
    re.compile(r"\benviron(?:\.get\(|\.setdefault\(|\[)\s*[\"']([A-Z][A-Z0-9_]+)[\"'](?!\]\s*=[^=])"),
    re.compile(r"\bgetenv\(\s*[\"']([A-Z][A-Z0-9_]+)"),
    re.compile(r"\$\{?(TRIMWIRE_[A-Z0-9_]+)"),
    # Names that are passed on to a function that reads them.
    re.compile(r"[\"'](TRIMWIRE_(?:GRPC_PORT|THRIFT_PORT|FUZZ_RUNS|FUZZ_SEED)|SUDO_USER)[\"']"),
)


class Help:
    """What a command says of itself."""

    def __init__(self, words: list[str], text: str) -> None:
        self.words, self.text = words, text
        self.commands = re.findall(r"^  ([a-z][\w-]*)(?:  |$)", self.section("Commands"), re.MULTILINE)
        # Lines are wrapped anywhere.
        blocks = re.split(r"^ {2,6}(?:-\w, +)?(--[\w-]+)", text, flags=re.MULTILINE)
        options = zip(blocks[1::2], blocks[2::2], strict=True)
        self.variables = [(name, option) for option, about in options for name in re.findall(r"\[env: (\w+)=", " ".join(about.split()))]

    def section(self, name: str) -> str:
        found = re.search(rf"^{name}:\n((?:.+\n|\n(?= ))*)", self.text, re.MULTILINE)
        return found[1] if found else ""

    @property
    def name(self) -> str:
        return " ".join(self.words)


def ask(folder: Path, words: list[str]) -> list[Help]:
    """The help of a command and of all below it."""
    # Without variables, which help would show, and without a terminal, whose width it would take.
    environment = {"PATH": os.environ.get("PATH", "")}
    said = subprocess.run(
        [folder / words[0], *words[1:], "--help"],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    if said.returncode:
        sys.exit(f"{' '.join(words)} --help: {said.stderr.strip()}")
    own = Help(words, "\n".join(line.rstrip() for line in said.stdout.strip().splitlines()) + "\n")
    below = [name for name in own.commands if name != "help"]
    return [own, *(each for name in below for each in ask(folder, [*words, name]))]


def options_of(text: str) -> list[tuple[tuple[str, str], str]]:
    """Options of a help: (signature, meaning) however it is wrapped, and the lines as they stand."""
    blocks: list[list[str]] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if re.match(r" {2,6}(?:-\w, +)?--\w", line):
            blocks.append([line])
            inside = True
        elif inside and (line.startswith(" " * 8) or not line.strip()):
            blocks[-1].append(line)
        else:
            inside = False
    found = []
    for block in blocks:
        while not block[-1].strip():
            block.pop()
        signature, _, about = block[0].strip().partition("  ")
        if signature.endswith(","):
            # `-h,  --help`, in a column of its own.
            signature = " ".join(block[0].split()[:2])
        found.append(((signature, " ".join(f"{about} {' '.join(block[1:])}".split())), "".join(block)))
    return found


def command_page(helps: list[Help]) -> str:
    counts = Counter(option for each in helps for option, _ in options_of(each.text))
    common = [option for option, count in counts.items() if count > 1]
    lines = [f"# `{helps[0].name}`", "", f"What `--help` prints of {helps[0].name} and its {len(helps) - 1} commands.", ""]
    for each in helps[1:]:
        lines.append(f"- [`{each.name}`](#{anchor(each.name)})")
    if common:
        lines += ["- [Common options](#common-options)"]
    for each in helps:
        # The page's own title has the first name.
        title = each.name if each is not helps[0] else "Options"
        text, shared = each.text, []
        for option, block in options_of(text):
            if option in common:
                text = text.replace(block, "", 1)
                shared.append(re.search(r"--[\w-]+", option[0])[0])
        # A heading below which nothing is left.
        text = re.sub(r"^[A-Z][\w ]*:\n\s*(?=^\S|\Z)", "", text, flags=re.MULTILINE)
        lines += ["", f"## {f'`{title}`' if title == each.name else title}", "", "```text", text.rstrip(), "```"]
        if shared:
            lines += ["", f"[Common options](#common-options): {', '.join(f'`{name}`' for name in shared)}."]
    if common:
        lines += ["", "## Common options", "", "Options of several commands.", "", "```text"]
        for signature, about in common:
            indent = "  " if re.match(r"-\w,", signature) else "      "
            lines += [indent + signature, *textwrap.wrap(about, 100, initial_indent=" " * 10, subsequent_indent=" " * 10, break_on_hyphens=False)]
        lines += ["```"]
    return "\n".join(lines) + "\n"


def anchor(name: str) -> str:
    return re.sub(r"[^\w-]", "", name.replace(" ", "-")).lower()


def python_options() -> list[tuple[str, str]]:
    """Options of `trimwire.torch`, each of which has a variable, with their comments."""
    text = (ROOT / "python/lib/trimwire/torch/_options.py").read_text(encoding="utf-8")
    bodies = (text[text.index(f"class {name}:") :] for name in ("Options", "Network"))
    found = [option for body in bodies for option in re.findall(r"((?:^    #: .*\n)+)^    (\w+): ", body[: body.index("\n    def ")], re.MULTILINE)]
    return [(f"TRIMWIRE_{name.upper()}", " ".join(re.findall(r"#: (.*)", comment))) for comment, name in found]


def table(titles: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def environment_page(helps: list[Help]) -> str:
    options: dict[str, dict[str, list[str]]] = {}
    for each in helps:
        for name, option in each.variables:
            options.setdefault(name, {}).setdefault(option, []).append(each.name)
    python = set(re.findall(r"[A-Z][A-Z_]+", "".join(path.read_text(encoding="utf-8") for path in (ROOT / "python/lib").rglob("*.py"))))
    rows = []
    for name in sorted(options):
        readers = [f"`{option}` of {programs(commands)}" for option, commands in options[name].items()]
        readers += ["the Python package"] * (name in python)
        rows.append([f"`{name}`", "; ".join(readers)])
    text = "# Environment variables\n\nAn option on the command line wins over its variable.\n\n## Variables of options\n\n"
    text += table(["variable", "read by"], rows)
    text += "\n## Variables of `trimwire.torch`\n\nEach stands for an option of `trimwire.torch.options`. A keyword in the program wins.\n\n"
    text += table(["variable", "meaning"], [[f"`{name}`", about] for name, about in python_options()])
    text += "\n## Other variables\n\n"
    text += table(["variable", "read by", "meaning"], [[f"`{name}`", *VARIABLES[name]] for name in sorted(VARIABLES)])
    return text


def programs(commands: list[str]) -> str:
    """Commands in words; where there are many, their program."""
    if len(commands) > 3:
        return f"`{commands[0].split()[0]}` ({len(commands)} commands)"
    return ", ".join(f"`{command}`" for command in commands)


def unknown_variables(helps: list[Help]) -> list[str]:
    known = {name for each in helps for name, _ in each.variables} | set(VARIABLES) | INTERNAL | {name for name, _ in python_options()}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.py", "*.sh", "*.service", "Makefile", ".ci/run"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found = []
    for name in listed.stdout.split():
        path = ROOT / name
        if not path.is_file() or path == Path(__file__).resolve():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for variable in sorted({variable for pattern in READS for variable in pattern.findall(text)} - known):
            if not variable.startswith(("CARGO_", "TRIMWIRE_SOURCES_")) and not re.search(rf"^(?:export )?{variable}[:+?]?=", text, re.MULTILINE):
                found.append(f"{name} reads {variable}, of which packaging/reference.py knows nothing")
    return found


def metrics_page() -> str:
    text = "# Metrics\n\nPrometheus metrics in base units. Counters end in `_total`.\n"
    for program, option, source in METRICS:
        rows: list[list[str]] = []
        about = kind = name = ""
        for line in (ROOT / source).read_text(encoding="utf-8").splitlines():
            if line.startswith("# HELP "):
                name, _, about = line[7:].partition(" ")
            elif line.startswith("# TYPE "):
                kind = line.rpartition(" ")[2]
                shown = name + {"counter": "_total", "info": "_info"}.get(kind, "")
                rows.append([f"`{shown}`", kind, "", about.rstrip(".")])
            elif not line.startswith("#"):
                labels = re.findall(r"(\w+)=\"", line)
                rows[-1][2] = ", ".join(f"`{label}`" for label in labels if label != "le")
        text += f"\n## `{program}`\n\n`{program} {option}` serves these at `/metrics`.\n\n" + table(["metric", "type", "labels", "meaning"], rows)
    source = (ROOT / "python/lib/trimwire/_metrics.py").read_text(encoding="utf-8")
    rows = [[f"`{name}`", "counter", about.rstrip(".")] for name, about in re.findall(r"\(\"(trimwire_\w+)\", \"([^\"]+)\"\)", source)]
    rows += [[f"`trimwire_operation_p{percent}_seconds`", "gauge", f"{percent}th percentile of the latest 1,024 operations that may be trimmed"] for percent in (50, 99)]
    text += "\n## Python\n\nThe option `metrics` of `trimwire.torch` (`TRIMWIRE_METRICS`) serves these for all groups of a process.\n"
    text += "The largest group's peers come under the agent's names.\n\n" + table(["metric", "type", "meaning"], rows)
    return text


def exit_page(helps: list[Help]) -> str:
    rows = []
    for each in helps:
        if found := re.search(r"Exit codes: ((?:.+\n?)+)", each.text):
            said = " ".join(found[1].split()).rstrip(".")
            if len(each.words) == 1 or said != rows[-1][1]:
                rows.append([f"`{each.name}`", said])
    return "# Exit codes\n\nAll programs: 0 success, 1 the work or a check failed, 2 usage, 3 bad input. A command that is not listed has its program's.\n\n" + table(["command", "codes"], rows)


class Schema:
    """A JSON Schema as tables: one of each object."""

    def __init__(self, schema: dict) -> None:
        self.schema, self.text, self.todo, self.done = schema, "", [], set()

    def page(self, title: str, about: str) -> str:
        said = self.schema.get("description", "")
        self.object("Keys of the file", self.schema)
        while self.todo:
            name = self.todo.pop(0)
            self.object(f"`{name}`", self.schema["$defs"][name])
        return f"# {title}\n\n{said}\n{about[0].upper()}{about[1:]}.\n{self.text}"

    def object(self, title: str, node: dict) -> None:
        required = node.get("required", [])
        rows = [[f"`{key}`", self.kind(value), self.default(key, value, required), self.about(value)] for key, value in node["properties"].items()]
        about = node.get("description", "") if node is not self.schema else ""
        self.text += f"\n## {title}\n\n" + (f"{about}\n\n" if about else "") + table(["key", "value", "default", "meaning"], rows)

    def resolve(self, node: dict) -> dict:
        return {**self.schema["$defs"][node["$ref"].rpartition("/")[2]], **node} if "$ref" in node else node

    def about(self, node: dict) -> str:
        return self.resolve(node).get("description", "")

    def default(self, key: str, node: dict, required: list[str]) -> str:
        value = self.resolve(node).get("default")
        if value is None:
            return "required" if key in required else ""
        return f"`{value if isinstance(value, str) else json.dumps(value)}`"

    def kind(self, node: dict) -> str:
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            target = self.schema["$defs"][name]
            if "properties" not in target:
                return self.kind(target) if "enum" in target else name.replace("_", " ")
            if name not in self.done:
                self.done.add(name)
                self.todo.append(name)
            return f"[{name}](#{name.lower()})"
        if "enum" in node:
            return ", ".join(f"`{json.dumps(value) if isinstance(value, bool) else value}`" for value in node["enum"])
        if "const" in node:
            return f"`{node['const']}`"
        if node.get("type") == "array":
            return "list of " + self.kind(node["items"]) if isinstance(node.get("items"), dict) else "list"
        if isinstance(node.get("additionalProperties"), dict):
            return "map of names to " + self.kind(node["additionalProperties"])
        for choice in ("oneOf", "anyOf"):
            if choice in node:
                return " or ".join(self.kind(each) for each in node[choice])
        kinds = node.get("type", "value")
        text = " or ".join(kinds) if isinstance(kinds, list) else kinds
        least, most = node.get("minimum"), node.get("maximum")
        if least is not None:
            text += f", {least} to {most}" if most is not None else f" from {least}"
        return text


def scenario_page() -> str:
    """From the structs into which a scenario is read."""
    text = "".join((SCENARIO / name).read_text(encoding="utf-8") for name in ("file.rs", "words.rs", "figure.rs", "../workload.rs"))
    structs = dict(re.findall(r"(?:pub|pub\(super\)) struct (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL))
    enums = dict(re.findall(r"(?:pub|pub\(super\)) enum (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL))
    defaults = dict(re.findall(r"^(?:pub\(super\) )?fn (\w+)\(\) -> \w+ \{\n    ([^\n;]+)\n\}", text, re.MULTILINE))
    page = "# The scenario file\n\n`trimwire-lab sim SCENARIO.yaml` reads it. Unknown keys are refused.\n"
    todo, done = ["File"], {"File"}
    simple = {"Duration": "time", "Rate": "rate", "Bytes": "size", "String": "text", "bool": "`true`, `false`", "f64": "number", "f32": "number", "TuneWords": "map of keys to lists"}

    def kind(rust: str) -> str:
        if found := re.fullmatch(r"(Option|Vec)<(.+)>", rust):
            return ("list of " if found[1] == "Vec" else "") + kind(found[2])
        if rust in structs:
            if rust not in done:
                done.add(rust)
                todo.append(rust)
            return f"[{words(rust)}](#{anchor(words(rust))})"
        if rust in enums:
            # Of an untagged one, the values that its variants have.
            names = re.findall(r"^    (\w+)(?:\((.+)\))?,", enums[rust], re.MULTILINE)
            return ", ".join(kind(inner) if inner else f"`{kebab(name)}`" for name, inner in names)
        return simple.get(rust, "whole number")

    while todo:
        struct = todo.pop(0)
        rows = []
        for comment, attributes, name, rust in re.findall(r"((?:^    ///.*\n)*)((?:^    #\[.*\n)*)^    (?:pub(?:\(super\))? )?(\w+): (.+),$", structs[struct], re.MULTILINE):
            if "serde(skip)" in attributes:
                continue
            about = " ".join(re.findall(r"/// (.*)", comment))
            if not about:
                sys.exit(f"{SCENARIO}: {struct}.{name} has no comment, which would be its line in the reference")
            named = re.search(r'default = "(?:\w+::)*(\w+)"', attributes)
            default = defaults.get(named[1], "") if named else ""
            default = "" if default.startswith("vec!") else default.replace("_", "")
            if "serde(default)" in attributes and rust in ("bool", "f64"):
                default = "false" if rust == "bool" else "0"
            elif "serde(default)" in attributes and rust in enums:
                default = kebab(re.search(r"#\[default\]\n    (\w+)", enums[rust])[1])
            optional = attributes or rust.startswith("Option<")
            rows.append([f"`{name}`", kind(rust), f"`{default}`" if default else "" if optional else "required", about])
        title = "Keys of the file" if struct == "File" else words(struct)
        page += f"\n## {title}\n\n" + table(["key", "value", "default", "meaning"], rows)
    return page


def words(struct: str) -> str:
    """`LeafSpineWords` as it is called in a heading."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", re.sub(r"Words?$", "", struct)).lower()


def kebab(variant: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", variant).lower()


def pages() -> tuple[dict[str, str], list[str]]:
    folder = Path(os.environ.get("TRIMWIRE_BIN_DIR") or Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "debug")
    missing = [name for name in PROGRAMS if not (folder / name).exists()]
    if missing:
        sys.exit(f"{folder} has no {', '.join(missing)}: cargo build, or TRIMWIRE_BIN_DIR")
    found, helps = {}, []
    lab = [LAB] if (folder / LAB).exists() else []
    if not lab:
        print(f"SKIPPED: the page of {LAB}, and that of exit codes, where it has a line ({folder} has no such program)", file=sys.stderr)
    for program in [*PROGRAMS, *lab]:
        asked = ask(folder, [program])
        found[program] = command_page(asked)
        helps += asked
    found["environment"] = environment_page(helps)
    found["metrics"] = metrics_page()
    if lab:
        found["exit-codes"] = exit_page(helps)
    for name, (title, source, about) in SCHEMAS.items():
        found[name] = Schema(json.loads((ROOT / source).read_text(encoding="utf-8"))).page(title, about)
    found["scenario-file"] = scenario_page()
    note = "\n<!-- Generated by `make reference`; changes here are lost. -->\n"
    return {f"{name}.md": text + note for name, text in found.items()}, unknown_variables(helps)


def main() -> int:
    found, complaints = pages()
    check = "--check" in sys.argv[1:]
    there = {path.name for path in PAGES.glob("*.md")} - {f"{LAB}.md", "exit-codes.md"}
    for name in sorted(there - set(found)):
        if check:
            complaints.append(f"docs/reference/generated/{name} is made by nothing")
        else:
            (PAGES / name).unlink()
    for name, text in found.items():
        path = PAGES / name
        committed = path.read_text(encoding="utf-8") if path.exists() else ""
        if check and committed != text:
            shown = list(difflib.unified_diff(committed.splitlines(), text.splitlines(), str(path.relative_to(ROOT)), "what the sources give", lineterm="", n=1))
            complaints += [*shown[:20], f"{path.relative_to(ROOT)} differs; run make reference"]
        elif not check and committed != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
