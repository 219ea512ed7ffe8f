#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The documentation as one book with a search (mdBook), in target/book. `check` looks only whether
# the book has every page, whether links lead somewhere, and whether the pages keep the rules of
# language (CONTRIBUTING.md).
set -eu
cd "$(dirname "$0")/.."
if [ "${1-}" = check ]; then
    python3 packaging/book.py
    exec python3 packaging/language.py
fi
python3 packaging/book.py --stage target/book-source
if ! command -v mdbook >/dev/null; then
    echo 'SKIPPED: the book (mdbook is not installed; cargo install mdbook)'
    exit 0
fi
mdbook build target/book-source
