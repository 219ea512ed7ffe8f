# SPDX-License-Identifier: Apache-2.0
"""Runs p4c's packet tests for v1model on trimwire-switch: p4c.py CHECKOUT. Standard library only.

Every program of the checkout that has an STF file is compiled with p4c-bm2-ss and run by `trimwire-switch stf`. One line a
program says `pass`, `FAIL` or `skip` and why, and the last one counts them. Skipped are programs for other architectures,
those that the compiler refuses, and those that the switch refuses to load.

Exit codes: 0 none failed, 1 some did, or do not pass that --expect names, 2 usage.
"""

import argparse
import concurrent.futures
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SAMPLES = ["testdata/p4_16_samples", "testdata/p4_16_samples/parser-inline", "testdata/p4_14_samples"]
V1MODEL = re.compile(r"^\s*#\s*include.*v1model\.p4", re.MULTILINE)
PASS, FAIL, SKIP = "pass", "FAIL", "skip"


def name(stf):
    """As --expect has it: the folder says in which language a program is written."""
    return f"{stf.parent.name}/{stf.stem}"


def is_p4_14(stf):
    return stf.parent.name == "p4_14_samples"


def said(done, *words):
    """The first line that a command said with one of these words, or its first one."""
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    telling = [line for line in lines if any(word in line for word in words)]
    return (telling or lines or [f"exit code {done.returncode}, without a word"])[0]


def run(command):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)


def test(stf, options, folder):
    """What became of one program, and why."""
    program = stf.with_suffix(".p4")
    if not program.is_file():
        return SKIP, f"there is no {program.name} beside it"
    if not is_p4_14(stf) and not V1MODEL.search(program.read_text(errors="replace")):
        return SKIP, "not for v1model"
    json = folder / f"{stf.parent.name}-{stf.stem}.json"
    standard = ["--std", "p4-14"] if is_p4_14(stf) else []
    done = run([*options.compiler, *standard, "-o", str(json), str(program)])
    if done.returncode != 0 or not json.is_file():
        return SKIP, "not compiled: " + said(done, "error", "Compiler Bug")
    done = run([options.switch, "stf", "--json", str(json), str(stf)])
    if done.returncode == 0:
        return PASS, ""
    if f"cannot load '{json}'" in done.stderr:
        return SKIP, "the switch refuses it: " + said(done, "cannot load").replace(f"{json}", program.name)
    return FAIL, said(done, ".stf:")


def parsed(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of github.com/p4lang/p4c")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="only these, such as p4_16_samples/arith1-bmv2")
    parser.add_argument("--compiler", type=shlex.split, default=["p4c-bm2-ss"], metavar="COMMAND",
                        help="the compiler and its options [p4c-bm2-ss]")
    parser.add_argument("--switch", default="trimwire-switch", metavar="FILE", help="[trimwire-switch]")
    parser.add_argument("--expect", type=Path, metavar="FILE", help="programs that have to pass, one a line")
    parser.add_argument("--list", action="store_true", help="list the programs for v1model and run none")
    options = parser.parse_intermixed_args(words)
    options.stfs = [stf for folder in SAMPLES for stf in sorted((options.checkout / folder).glob("*.stf"))]
    if not options.stfs:
        parser.error(f"{options.checkout} has no STF files in {', '.join(SAMPLES)}")
    known = {name(stf) for stf in options.stfs}
    for asked in options.programs:
        if asked not in known:
            parser.error(f"{options.checkout} has no program {asked} with an STF file")
    if options.programs:
        options.stfs = [stf for stf in options.stfs if name(stf) in options.programs]
    for needed in [] if options.list else [options.compiler[0] if options.compiler else "", options.switch]:
        if shutil.which(needed) is None:
            parser.error(f"there is no '{needed}'; --compiler and --switch name others")
    try:
        expected = options.expect.read_text().split() if options.expect else []
    except OSError as error:
        parser.error(f"--expect: {error}")
    options.expected = [program for program in expected if not options.programs or program in options.programs]
    return options


def main():
    options = parsed(sys.argv[1:])
    if options.list:
        for stf in options.stfs:
            program = stf.with_suffix(".p4")
            if program.is_file() and (is_p4_14(stf) or V1MODEL.search(program.read_text(errors="replace"))):
                print(name(stf))
        return 0
    results = {}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = pool.map(lambda stf: test(stf, options, Path(folder)), options.stfs)
        for stf, (result, why) in zip(options.stfs, outcomes):
            results[name(stf)] = result
            print(f"{result}  {name(stf)}{': ' if why else ''}{why}", flush=True)
    missed = [program for program in options.expected if results.get(program) != PASS]
    for program in missed:
        print(f"expected to pass: {program} ({results.get(program, 'not in this checkout')})")
    count = list(results.values()).count
    print(f"{count(PASS)} passed, {count(FAIL)} failed, {count(SKIP)} skipped")
    return 1 if missed or count(FAIL) else 0


if __name__ == "__main__":
    sys.exit(main())
