#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs a wheel into a fresh environment of every Python from 3.10 to 3.14 that is here, and
# tries it: codec, and two ranks over loopback.
#   packaging/wheel.sh FOLDER        a folder that holds one wheel
# Interpreters are python3.10 to python3.14 on PATH, or those that PYTHONS names, separated by
# colons. One that is not there is named; none is a failure.
set -euo pipefail
folder=${1:?usage: packaging/wheel.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
wheels=("$folder"/*.whl)
[ ${#wheels[@]} = 1 ] && [ -f "${wheels[0]}" ] || { echo "$folder: ${#wheels[@]} wheels, not one" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tried=0
IFS=: read -ra pythons <<<"${PYTHONS:-python3.10:python3.11:python3.12:python3.13:python3.14}"
for python in "${pythons[@]}"; do
  if ! version=$("$python" -c 'import platform; print(platform.python_version())' 2>/dev/null); then
    echo "SKIPPED: $python is not here"
    continue
  fi
  "$python" -m venv "$work/$version"
  "$work/$version/bin/pip" install --quiet --disable-pip-version-check "${wheels[0]}"
  # From elsewhere: what is imported is what was installed.
  (cd "$work" && "$work/$version/bin/python" "$here/wheel_test.py")
  tried=$((tried + 1))
done
[ "$tried" -gt 0 ] || { echo "no Python from 3.10 to 3.14" >&2; exit 1; }
