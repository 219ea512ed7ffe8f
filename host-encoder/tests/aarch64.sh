#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The codec's tests on an emulated 64-bit ARM machine. Installs nothing: says what it skipped, and what is missing. It needs
#   a Rust standard library for the target: rustup target add aarch64-unknown-linux-gnu; or, in RUSTC, another compiler that has one,
#   such as Debian's rustc-web with libstd-rust-web-dev:arm64;
#   a C compiler and library for the target: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross;
#   an emulator: apt-get install qemu-user (or qemu-user-static).
# Nothing that is timed here says anything about a real machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=aarch64-unknown-linux-gnu
skip() {
  echo "SKIPPED: the codec on an emulated 64-bit ARM machine ($1)" >&2
  exit 0
}
libraries="$("${RUSTC:-rustc}" --print target-libdir --target "$target")"
compgen -G "$libraries/libstd-*.rlib" >/dev/null ||
  skip "no Rust standard library in $libraries: rustup target add $target, or set RUSTC to a compiler that has one"
compiler=aarch64-linux-gnu-gcc
command -v "$compiler" >/dev/null || skip "$compiler is not installed: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
emulator="$(command -v qemu-aarch64 || command -v qemu-aarch64-static)" ||
  skip "qemu-aarch64 is not installed: apt-get install qemu-user"

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER="$compiler"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$emulator -L /usr/aarch64-linux-gnu"
# A directory of its own: another compiler would build the host's tools anew.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/aarch64"
"${CARGO:-cargo}" test --locked -p trimwire-encoder --target "$target" --lib --tests
