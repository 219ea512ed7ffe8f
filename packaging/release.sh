#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a release: checks, tests, packages, wheel, SHA-256 sums in target/release-VERSION, a signed
# tag.
#   packaging/release.sh --check    only what can be checked at once (make lint does)
#   packaging/release.sh            ends before anything leaves this machine, and says how that is done
# The version is Cargo.toml's.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/timed.sh
case "${1:-}" in "" | --check) ;; *) sed -n '3,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;; esac

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
wrong=0
complain() {
  echo "$*" >&2
  wrong=1
}
# What contradicts the version.
! grep -E '^trimwire-[a-z0-9-]+ = \{ path = .*version = ' Cargo.toml | grep -vF "version = \"$version\"" ||
  complain "Cargo.toml: workspace.dependencies names another version than $version"
grep -qxF "version: $version" CITATION.cff || complain "CITATION.cff does not say version: $version"
grep -qE "^## \[?${version//./\\.}\b" CHANGELOG.md || complain "CHANGELOG.md has no section $version"
! grep -n 'image: registry\.example/trimwire-' examples/kubernetes/trimwire.yaml | grep -v ":$version\$" ||
  complain "examples/kubernetes/trimwire.yaml has images of another version than $version"
# What crates.io would refuse.
for manifest in */Cargo.toml; do
  grep -q '^publish = false' "$manifest" && continue
  for key in description keywords categories readme license repository rust-version; do
    grep -qE "^$key(\.workspace)? = " "$manifest" || complain "$manifest has no $key"
  done
done
[ "$wrong" = 0 ] || exit 1
[ -z "${1:-}" ] || exit 0

cargo=${CARGO:-cargo} target=${CARGO_TARGET_DIR:-$PWD/target}
out=$target/release-$version venv=$target/release-venv
git diff --quiet HEAD || { echo "something is uncommitted" >&2; exit 1; }
timed "compiled P4" make p4-check
timed "licences and advisories" make deny
timed "tests" make ci
timed "crates, as published" "$cargo" publish --workspace --dry-run --locked
timed "Debian packages" make deb
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet 'maturin>=1.9,<2' twine
timed wheel packaging/manylinux.sh "$out"
timed "wheel on every Python that is here" packaging/wheel.sh "$out"
"$venv/bin/maturin" sdist --manifest-path python/Cargo.toml --out "$out"
"$venv/bin/twine" check --strict "$out"/*.whl "$out"/*.tar.gz
cp "$target"/debian/*.deb "$out"
(cd "$out" && rm -f SHA256SUMS && sha256sum -- * >SHA256SUMS)
git tag --sign "v$version" --message "Trimwire $version"
echo "Then, by hand: git push origin v$version; $cargo publish --workspace; twine upload $out/*.whl" \
  "$out/*.tar.gz; a release with the packages and SHA256SUMS."
