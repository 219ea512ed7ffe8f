#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The wheel, as users get it: built, installed into a fresh environment, its types checked, its tests run.
#   python/test.sh            without PyTorch (needs a Python from 3.10 on and PyPI)
#   python/test.sh torch      with PyTorch, some gigabytes (TORCH says which: torch==2.5.1); where that
#                             cannot be had the rest is run, and a line says so
#   python/test.sh gpu        with PyTorch, the tests of kernels and collectives alone, on a GPU
# Skipped loudly where that cannot be had; TRIMWIRE_REQUIRE_PYTHON=1 makes a skip a failure.
# PYTHON names another interpreter than python3.
set -euo pipefail
case "${1:-}" in
  "" | torch | gpu) ;;
  -h | --help) sed -n '3,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "$0: unknown word '$1'; valid are torch, gpu, --help" >&2; exit 2 ;;
esac
cd "$(dirname "$0")"
. ../packaging/timed.sh

skip() {
  echo "SKIPPED: Python package ($1)"
  [ -z "${TRIMWIRE_REQUIRE_PYTHON:-}" ] || exit 1
  exit 0
}

if [ "${1:-}" = gpu ]; then
  nvidia-smi -L >/dev/null 2>&1 || skip "no GPU: nvidia-smi -L lists none"
fi

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || skip "no Python from 3.10 on; PYTHON= names one"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Debian's Python has venv in a package of its own.
if ! "$python" -m venv "$work/build" >"$work/log" 2>&1; then
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv; } >"$work/log" 2>&1 || true
  fi
  rm -rf "$work/build"
  "$python" -m venv "$work/build" >"$work/log" 2>&1 || skip "no venv: $(tail -1 "$work/log")"
fi
"$work/build/bin/pip" install -q --disable-pip-version-check 'maturin>=1.9,<2' >"$work/log" 2>&1 || skip "PyPI cannot be reached: $(tail -1 "$work/log")"
timed "python, wheel" "$work/build/bin/maturin" build --profile dev --locked --quiet --interpreter "$work/build/bin/python" --out "$work/wheel"

"$python" -m venv "$work/use"
"$work/use/bin/pip" install -q --disable-pip-version-check "$(echo "$work"/wheel/*.whl)[test]"
torch=
if [ -n "${1:-}" ]; then
  if timed "python, PyTorch's installation" "$work/use/bin/pip" install -q --disable-pip-version-check "${TORCH:-torch}" >"$work/log" 2>&1; then
    grep ^TIME: "$work/log" >&2
    torch=yes
    # The examples' frameworks: their tests are skipped, and say so, where these cannot be had.
    "$work/use/bin/pip" install -q --disable-pip-version-check accelerate lightning transformers pyyaml >"$work/log" 2>&1 ||
      echo "SKIPPED: the frameworks of examples/training cannot be installed ($(tail -1 "$work/log"))"
  elif [ "$1" = gpu ] || [ -n "${TRIMWIRE_REQUIRE_PYTHON:-}" ]; then
    cat "$work/log" >&2
    exit 1
  else
    echo "SKIPPED: everything with PyTorch (${TORCH:-torch} cannot be installed: $(tail -1 "$work/log"))"
  fi
fi
# From elsewhere: what is imported is what was installed.
timed "python, types" "$work/use/bin/python" -m mypy --config-file pyproject.toml -p trimwire
cp -r tests ../lab/experiments "$work"
export TRIMWIRE_DIGITS="$PWD/../cli/data/digits.csv.gz" TRIMWIRE_VECTORS="$PWD/../host-encoder/tests/vectors.json"
export TRIMWIRE_REPOSITORY="$PWD/.."
# Where the programs are that were built for other tests: some of these run them.
[ -z "${TRIMWIRE_BIN_DIR:-}" ] || export PATH="$TRIMWIRE_BIN_DIR:$PATH"
cd "$work"
if [ "${1:-}" = gpu ]; then
  # Most of the time goes into compiling kernels.
  "$work/use/bin/python" -m pytest -q -rs -n auto --maxprocesses 8 "$work"/tests/test_cuda*.py
  exit
fi
timed "python, tests" "$work/use/bin/python" -m pytest -q -rs "$work/tests"
# Kernels for GPUs, on the processor: in processes of their own, as Triton is told once. They are all work and no waiting.
if [ -n "$torch" ]; then
  TRITON_INTERPRET=1 timed "python, kernels on processors" "$work/use/bin/python" -m pytest -q -rs -n auto --maxprocesses 8 "$work"/tests/test_cuda*.py
fi
