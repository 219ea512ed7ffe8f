#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The documentation as one book with a search (mdBook), in target/book. `check` looks only whether the book has every page.
set -eu
cd "$(dirname "$0")/../docs"
listed=$(grep -o '([a-z0-9-]*\.md)' SUMMARY.md | tr -d '()' | sort)
there=$(ls ./*.md | sed 's,^\./,,' | grep -v '^SUMMARY\.md$' | sort)
if [ "$listed" != "$there" ]; then
    echo 'docs/SUMMARY.md does not list just the pages of docs/:' >&2
    printf '%s\n' "$listed" "$there" | sort | uniq -u | sed 's/^/  /' >&2
    exit 1
fi
if [ "${1-}" = check ]; then
    exit 0
fi
if ! command -v mdbook >/dev/null; then
    echo 'SKIPPED: the book (mdbook is not installed; cargo install mdbook)'
    exit 0
fi
mdbook build
