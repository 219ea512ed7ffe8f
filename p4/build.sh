#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# build: compile the P4 programs and rewrite p4/build (needs p4c-bm2-ss).
# check: are the committed artifacts those of the committed sources? Hashes always, a recompilation where p4c is.
set -eu
# p4c writes the paths it is given into the JSON: always the same ones, relative to the repository.
cd "$(dirname "$0")/.."
[ "${1-}" != check ] || python3 p4/tests/vectors.py --check
exec python3 p4/artifacts.py "$@"
