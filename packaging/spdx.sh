#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fails where a source has no SPDX line of its licence.
set -eu
cd "$(dirname "$0")/.."
without=$(git grep --untracked -L 'SPDX-License-Identifier: Apache-2\.0' -- \
    '*.rs' '*.p4' '*.proto' '*.py' '*.pyi' '*.sh' '*Makefile' '*Dockerfile' .ci/run) || true
[ -z "$without" ] || { echo "no 'SPDX-License-Identifier: Apache-2.0' in:" "$without" >&2; exit 1; }
