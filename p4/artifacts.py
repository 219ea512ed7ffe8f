# SPDX-License-Identifier: Apache-2.0
"""Compiles the P4 programs and keeps a manifest.json per build folder, which says what was compiled from what, by what.

Run by build.sh from the root of the repository. Standard library and a C preprocessor only: the check has to work where p4c
does not. A program's sources are one text, as the preprocessor leaves it for the target: what a target does not read, comments
and white space make none of its artifacts old.

`build --without COMPILER` leaves what that compiler made as it is and writes down which text it has not seen
(`not_compiled`). Every check says so, until somebody compiles it.
Exit status: 0 fresh, 1 not, 2 usage.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import assembly

P4 = Path("p4")
SWITCH_PROGRAMS = Path("switch/tests/programs")


def switch_program(path):
    """One of the small programs that the switch's tests run on BMv2 and on the engine."""
    return {
        "compiler": "p4c-bm2-ss",
        "program": path,
        "sources": [SWITCH_PROGRAMS / "skeleton.p4", path],
        "outputs": {"json": f"{path.stem}.json", "p4info": f"{path.stem}.p4info.txtpb"},
    }


def tofino_program(generation, target, arch, folders):
    """The program of one generation of Tofino. What is committed is what a controller needs; the assembly, which only the
    hardware's owner can use, is looked through and thrown away."""
    return {
        "compiler": "p4c-barefoot",
        "options": ["--target", target, "--arch", arch, f"-D__TARGET_TOFINO__={generation}", "--p4runtime-force-std-externs"],
        "program": folders[-1] / "trimwire.p4",
        "sources": [P4 / "include", *folders],
        "outputs": {"p4info": "trimwire.p4info.txtpb"},
        "assembly": True,
    }


# By build folder, one entry per target: how to compile the program, and what it leaves in <folder>/<target>.
BUILDS = {
    P4 / "build": {
        "bmv2": {
            "compiler": "p4c-bm2-ss",
            "program": P4 / "bmv2" / "trimwire.p4",
            "sources": [P4 / "include", P4 / "bmv2"],
            "outputs": {"json": "trimwire.json", "p4info": "trimwire.p4info.txtpb"},
        },
        "tofino": tofino_program(1, "tofino", "tna", [P4 / "tofino"]),
        "tofino2": tofino_program(2, "tofino2", "t2na", [P4 / "tofino", P4 / "tofino2"]),
    },
    SWITCH_PROGRAMS / "build": {
        path.stem: switch_program(path)
        for path in sorted(SWITCH_PROGRAMS.glob("*.p4")) if path.name != "skeleton.p4"
    },
}


def compile_command(target, outputs, scratch):
    """The p4info goes to `outputs`; so does the JSON where the target has one. Anything else is for `scratch`."""
    json_file = target["outputs"].get("json")
    return [
        target["compiler"], *target.get("options", []), "--std", "p4-16",
        "--p4runtime-files", str(outputs / target["outputs"]["p4info"]),
        "-o", str(outputs / json_file if json_file else scratch),
        str(target["program"]),
    ]


def compiler_version(compiler):
    """The line of `--version` that names the release and the commit."""
    run = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    lines = [line.strip() for line in (run.stdout + run.stderr).splitlines()]
    return next((line for line in lines if line.startswith("Version")), " ".join(lines))


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hashes(paths):
    return {path.as_posix(): sha256(path) for path in sorted(paths)}


def preprocessed(target):
    """Hash of what the compiler reads of our files. The compiler's own are left out: they are where it is."""
    tree = Path(tempfile.mkdtemp())
    try:
        for source in sources(target):
            ours = re.sub(r"^#include <.*>", "", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
            (tree / source).parent.mkdir(parents=True, exist_ok=True)
            (tree / source).write_text(ours, encoding="utf-8")
        defines = [option for option in target.get("options", []) if option.startswith("-D")]
        command = ["cc", "-E", "-P", "-x", "c", *defines, str(target["program"])]
        text = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout
    finally:
        shutil.rmtree(tree)
    return hashlib.sha256("".join(text.split()).encode()).hexdigest()


def sources(target):
    return [path for source in target["sources"] for path in ([source] if source.is_file() else source.rglob("*.p4"))]


def run_compiler(target, outputs):
    """Compiles into the folder `outputs`; the compiler's own words go to stderr. Returns what went wrong, if anything."""
    outputs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        command = compile_command(target, outputs, Path(scratch))
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
            return [f"{target['compiler']} refuses it"]
        if target.get("assembly"):
            return assembly.lost(Path(scratch), outputs / target["outputs"]["p4info"], sources(target))
    return []


def read_manifest(build_folder):
    path = build_folder / "manifest.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def build(build_folder, targets, without=None):
    """Compiles every target whose compiler is there. Where one is not, and its sources have changed, the build fails, but not
    before the others have been compiled; unless it is the one that was to be done without."""
    recorded = read_manifest(build_folder)
    manifest = {}
    status = 0
    for name, target in targets.items():
        if shutil.which(target["compiler"]) is None:
            manifest[name] = recorded.get(name, {})
            if manifest[name].get("sources") == preprocessed(target):
                manifest[name].pop("not_compiled", None)
                print(f"SKIPPED: {target['program']} is as it was, and {target['compiler']} is not on PATH")
            elif target["compiler"] == without and manifest[name]:
                manifest[name]["not_compiled"] = preprocessed(target)
                print(f"NOT COMPILED: {target['program']}; its artifacts are those of earlier sources")
            else:
                print(f"p4: {target['compiler']} is not on PATH; it is needed to compile {target['program']}")
                status = 1
            continue
        folder = build_folder / name
        problems = run_compiler(target, folder)
        if problems:
            print("\n".join(f"p4: {target['program']}: {line}" for line in problems))
            return 1
        manifest[name] = {
            "compiler": f"{target['compiler']} {compiler_version(target['compiler'])}",
            "command": compile_command(target, folder, Path("SCRATCH")),
            "sources": preprocessed(target),
            "outputs": hashes(folder / file for file in target["outputs"].values()),
        }
        print(f"p4: compiled {target['program']} with {manifest[name]['compiler']}")
    (build_folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return status


def stale(recorded, actual, what, manifest):
    """One line for every file whose hash is not the recorded one."""
    for path in sorted(recorded.keys() | actual.keys()):
        if path not in actual:
            yield f"{path}: {what} is in {manifest} but not on disk"
        elif path not in recorded:
            yield f"{path}: {what} is not in {manifest}"
        elif recorded[path] != actual[path]:
            yield f"{path}: {what} differs from {manifest} ({actual[path][:12]}, recorded {recorded[path][:12]})"


def check_target(build_folder, name, target, manifest):
    """Yields what is wrong with the artifacts of one target."""
    recorded = manifest.get(name)
    path = build_folder / "manifest.json"
    if recorded is None:
        yield f"{path} has no target {name}"
        return
    folder = build_folder / name
    present = [path for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    compiler_is_here = shutil.which(target["compiler"]) is not None
    seen = recorded.get("not_compiled", recorded["sources"])
    if seen != recorded["sources"] and not compiler_is_here:
        print(f"NOT COMPILED: {target['program']}: {target['compiler']} has not seen the sources; its artifacts are those of "
              "earlier ones")
    if (recorded["sources"] if compiler_is_here else seen) != preprocessed(target):
        yield f"{target['program']}: it, or what it includes, differs from {path}"
    yield from stale(recorded["outputs"], hashes(present), "artifact", path)

    if not compiler_is_here:
        print(f"SKIPPED: recompilation of {target['program']}: {target['compiler']} is not on PATH (hashes were checked)")
        return
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        problems = run_compiler(target, fresh)
        if problems:
            yield from (f"{target['program']}: {line}" for line in problems)
            return
        differing = [file for file in target["outputs"].values()
                     if not (folder / file).is_file() or (fresh / file).read_bytes() != (folder / file).read_bytes()]
    compiler = f"{target['compiler']} {compiler_version(target['compiler'])}"
    if differing and compiler != recorded["compiler"]:
        # Another release may write another JSON for the same program. That is no fault of the committed one.
        print(f"SKIPPED: comparison of {', '.join(differing)}: committed by {recorded['compiler']}, here is {compiler}")
    else:
        for file in differing:
            yield f"{folder / file}: {compiler} compiles the sources to something else"


def check(build_folder, targets):
    path = build_folder / "manifest.json"
    try:
        manifest = read_manifest(build_folder)
    except (OSError, ValueError) as error:
        print(f"p4: {path}: {error}")
        return 1
    problems = [line for name, target in targets.items() for line in check_target(build_folder, name, target, manifest)]
    problems += [f"{path}: there is no program for target {name}" for name in manifest.keys() - targets.keys()]
    for line in problems:
        print(f"p4: {line}")
    if problems:
        print("p4: the committed artifacts are stale; `make p4` compiles them anew")
        return 1
    print(f"p4: the committed artifacts in {build_folder} are those of the sources")
    return 0


def main(arguments):
    commands = {"build": build, "check": check}
    options = {}
    if len(arguments) == 3 and arguments[:2] == ["build", "--without"]:
        options["without"] = arguments[2]
    elif len(arguments) != 1 or arguments[0] not in commands:
        print("usage: p4/build.sh build [--without COMPILER] | check", file=sys.stderr)
        return 2
    return max(commands[arguments[0]](folder, targets, **options) for folder, targets in BUILDS.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
