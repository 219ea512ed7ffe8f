#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a release: checks, tests, packages and wheel, with their SHA-256 in target/release-VERSION.

    packaging/release.py --dry-run    say what would run, and check what can be checked at once (make lint does)
    packaging/release.py              run it; ends before anything leaves this machine, and says how that is done

The version is Cargo.toml's.
"""

import hashlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
CARGO = os.environ.get("CARGO", "cargo")
# Oldest C library that wheels ask for: RHEL 8, Debian 10, Ubuntu 20.04.
WHEEL = "manylinux_2_28"
LICENCES = "python/lib/trimwire/LICENCES.txt"


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def version() -> str:
    return re.search(r"^\[workspace\.package\]\nversion = \"([^\"]+)\"", read("Cargo.toml"), re.MULTILINE)[1]


def problems(number: str) -> list[str]:
    """What contradicts the version, or lacks for crates.io and PyPI."""
    found = []
    for name, told in re.findall(r"^(trimwire-[\w-]+) = \{ path = \"[^\"]+\", version = \"([^\"]+)\"", read("Cargo.toml"), re.MULTILINE):
        if told != number:
            found.append(f"Cargo.toml: workspace.dependencies has {name} {told}, and the version is {number}")
    if not re.search(rf"^version: {re.escape(number)}$", read("CITATION.cff"), re.MULTILINE):
        found.append(f"CITATION.cff does not say version: {number}")
    if not re.search(rf"^## \[?{re.escape(number)}\b", read("CHANGELOG.md"), re.MULTILINE):
        found.append(f"CHANGELOG.md has no section {number}")
    for image in re.findall(r"image: registry\.example/trimwire-\w+:(\S+)", read("examples/kubernetes/trimwire.yaml")):
        if image != number:
            found.append(f"examples/kubernetes/trimwire.yaml has an image of {image}, and the version is {number}")
    for manifest in sorted(ROOT.glob("*/Cargo.toml")):
        text = manifest.read_text(encoding="utf-8")
        if "publish = false" in text:
            continue
        for key in ("description", "keywords", "categories", "readme", "license", "repository", "rust-version"):
            if not re.search(rf"^{key}(\.workspace)? = ", text, re.MULTILINE):
                found.append(f"{manifest.relative_to(ROOT)} has no {key}")
    return found


def steps(number: str) -> list[tuple[str, list[str]]]:
    out = str(TARGET / f"release-{number}")
    venv = str(TARGET / "release-venv")
    return [
        ("Nothing is uncommitted", ["git", "diff", "--quiet", "HEAD"]),
        ("Sources and the compiled P4 agree", ["make", "p4-check"]),
        ("Licences, sources and advisories", ["make", "deny"]),
        ("All tests", ["make", "test"]),
        ("Crates build from what is published", [CARGO, "publish", "--workspace", "--dry-run", "--locked"]),
        ("Debian packages", ["make", "deb"]),
        ("A folder for the wheel's tools", [sys.executable, "-m", "venv", venv]),
        ("The wheel's tools", [f"{venv}/bin/pip", "install", "--quiet", "maturin>=1.9,<2", "ziglang", "auditwheel", "twine"]),
        ("Licences of what the wheel holds", ["sh", "-c", f"python3 packaging/licences.py trimwire-python >{LICENCES}"]),
        # With Zig's linker, which knows the symbols of older C libraries; maturin looks for it in the first Python of PATH.
        ("The wheel", ["sh", "-c", f"PATH={venv}/bin:$PATH maturin build --manifest-path python/Cargo.toml --release --locked --zig --compatibility {WHEEL} --out {out}"]),
        ("They are the wheel's alone", ["rm", LICENCES]),
        ("The wheel asks for no later C library", ["sh", "-c", f"{venv}/bin/auditwheel show {out}/*.whl | tee /dev/stderr | grep -q '\"{WHEEL}_'"]),
        ("The wheel on every Python that is here", ["packaging/wheel.sh", out]),
        ("The source package", [f"{venv}/bin/maturin", "sdist", "--manifest-path", "python/Cargo.toml", "--out", out]),
        ("What PyPI would refuse", [f"{venv}/bin/twine", "check", "--strict", out + "/*"]),
        ("Debian packages beside it", ["cp", str(TARGET / "debian") + "/*.deb", out]),
        ("The signed tag", ["git", "tag", "--sign", f"v{number}", "--message", f"Trimwire {number}"]),
    ]


def expanded(words: list[str]) -> list[str]:
    """With the files that a last `*` stands for."""
    return [match for word in words for match in (sorted(map(str, Path(word).parent.glob(Path(word).name))) if "*" in word else [word])]


def main() -> int:
    if sys.argv[1:] not in ([], ["--dry-run"]):
        sys.exit(__doc__)
    number = version()
    complaints = problems(number)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if complaints:
        return 1
    dry = bool(sys.argv[1:])
    for about, words in steps(number):
        print(f"{about}: {shlex.join(words)}", flush=True)
        if not dry and subprocess.run(expanded(words), cwd=ROOT, check=False).returncode:
            print(f"failed: {about}", file=sys.stderr)
            return 1
    if not dry:
        folder = TARGET / f"release-{number}"
        files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
        (folder / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")
    print(f"Then, by hand: git push origin v{number}; cargo publish --workspace; twine upload target/release-{number}/*.whl target/release-{number}/*.tar.gz; a release with the packages and SHA256SUMS.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
