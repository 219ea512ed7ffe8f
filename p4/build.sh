#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# build: compile the P4 programs and rewrite p4/build (needs p4c-bm2-ss, and p4c-barefoot for the Tofinos, or `--without` it:
# then their artifacts stay as they are, and every check says that they are older than the sources).
# check: are the committed artifacts those of the committed sources? Hashes always, a recompilation where p4c is. Do the
# P4Infos of all targets agree? Can these checks fail at all (tests/test_*.py)?
set -eu
# p4c writes the paths it is given into the JSON: always the same ones, relative to the repository.
cd "$(dirname "$0")/.."
if [ "${1-}" = check ]; then
    python3 p4/tests/vectors.py --check
    python3 -m unittest discover -q -s p4/tests
    python3 p4/p4info.py
fi
exec python3 p4/artifacts.py "$@"
