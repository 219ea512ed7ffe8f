#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The documentation as one book with a search (mdBook), in target/book. `check` looks only whether the book has every page, and
# whether links lead somewhere.
set -eu
cd "$(dirname "$0")/.."
python3 packaging/book.py
if [ "${1-}" = check ]; then
    exit 0
fi
if ! command -v mdbook >/dev/null; then
    echo 'SKIPPED: the book (mdbook is not installed; cargo install mdbook)'
    exit 0
fi
mdbook build docs
