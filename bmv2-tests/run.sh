#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the three programs and sends traffic through them over real interfaces. Needs root and
# network namespaces; says what it skipped, and why, where it has not got them. Where
# simple_switch_grpc is on PATH, BMv2 is tested beside our switch.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/timed.sh
CARGO="${CARGO:-cargo}"
timed "bmv2-tests, programs" $CARGO build --release --locked -p trimwire-switch -p trimwire-controller -p trimwire-agent-programs
TRIMWIRE_BIN_DIR="${CARGO_TARGET_DIR:-target}/release"
TRIMWIRE_BIN_DIR="$(cd "$TRIMWIRE_BIN_DIR" && pwd)"
export TRIMWIRE_BIN_DIR
timed "bmv2-tests" $CARGO test --locked -p trimwire-bmv2-tests -- --nocapture --test-threads=1
