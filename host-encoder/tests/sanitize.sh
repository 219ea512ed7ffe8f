#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The codec under AddressSanitizer, on every instruction set of the machine: its unit tests, what may arrive, and the fuzz targets. Says that it skipped them where
# the toolchain has no runtime of the sanitizer.
set -euo pipefail
cd "$(dirname "$0")/../.."
libraries="$("${RUSTC:-rustc}" --print target-libdir)"
if ! compgen -G "$libraries/librustc*rt.asan.a" >/dev/null; then
  echo "SKIPPED: the codec under AddressSanitizer (no librustc*rt.asan.a in $libraries: this toolchain has no runtime of it)" >&2
  exit 0
fi
export RUSTC_WORKSPACE_WRAPPER="$PWD/host-encoder/tests/rustc-asan.sh"
# Leaks harm nobody's memory, and looking for them takes rights that containers do not give.
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
"${CARGO:-cargo}" test --locked -p trimwire-encoder --lib
"${CARGO:-cargo}" test --locked -p trimwire-encoder --test it -- arrivals:: edges:: fuzz:: packets::
