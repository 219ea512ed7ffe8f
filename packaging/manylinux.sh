#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel that is handed out: for Python from 3.10 and glibc from 2.28 on (RHEL 8,
# Debian 10, Ubuntu 20.04). Needs Rust, python3 with venv, and PyPI for maturin and Zig.
#   packaging/manylinux.sh FOLDER
set -euo pipefail
out=$(realpath -m "${1:?usage: packaging/manylinux.sh FOLDER}")
cd "$(dirname "$0")/.."
wheel=manylinux_2_28 licences=python/lib/trimwire/LICENCES.txt venv=${CARGO_TARGET_DIR:-$PWD/target}/wheel-venv
rm -f "$out"/*.whl
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9,<2' ziglang auditwheel
# The wheel alone has the licences of what is linked into it.
trap 'rm -f "$licences"' EXIT
python3 packaging/licences.py trimwire-python >"$licences"
# Zig's linker knows the symbols of older C libraries; maturin looks for it in the first Python of
# PATH.
PATH=$venv/bin:$PATH maturin build --manifest-path python/Cargo.toml --release --locked --zig \
  --compatibility "$wheel" --out "$out"
"$venv/bin/auditwheel" show "$out"/*.whl | tee /dev/stderr | grep -q "\"${wheel}_"
