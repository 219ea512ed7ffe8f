#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Congests ports in Mininet with the three programs (those of TRIMWIRE_BIN_DIR, or builds of now);
# with simple_switch_grpc, where that is on PATH, too. Says what it skipped, and why, where there is
# no root, no namespace or no Mininet.
set -euo pipefail
cd "$(dirname "$0")/.."
. packaging/timed.sh
skip() {
  echo "SKIPPED: Mininet tests ($1)" >&2
  exit 0
}
for file in mininet/*.py mininet/trimwire_net/*.py; do
  python3 -c 'import ast, sys; ast.parse(open(sys.argv[1], encoding="utf-8").read(), sys.argv[1])' "$file"
done
[ "$(id -u)" = 0 ] || skip "not root"
for tool in unshare ip tc; do
  command -v "$tool" >/dev/null || skip "$tool is not installed (util-linux, iproute2)"
done
unshare --net --pid --fork --kill-child --mount-proc true 2>/dev/null || skip "no network and process namespaces here"
unshare --net sh -c 'ip link add near type veth peer name far &&
  tc qdisc add dev near root tbf rate 20mbit burst 3000 limit 2000000' 2>/dev/null || skip "no veth interfaces, or no tbf, in this kernel"
# Debian's package belongs to Debian's Python, which need not be the first on PATH.
python=
for candidate in python3 /usr/bin/python3; do
  "$candidate" -c 'import mininet.net' 2>/dev/null && python="$candidate" && break
done
[ -n "$python" ] || skip "Mininet is not installed: apt-get install --no-install-recommends mininet"

CARGO="${CARGO:-cargo}"
if [ -z "${TRIMWIRE_BIN_DIR:-}" ]; then
  $CARGO build --release --locked -p trimwire-switch -p trimwire-controller -p trimwire-agent-programs
  TRIMWIRE_BIN_DIR="$(cd "${CARGO_TARGET_DIR:-target}/release" && pwd)"
  export TRIMWIRE_BIN_DIR
fi
# Switches in software that get no processor time break promises that are not theirs to break: on a
# machine with more than two runnable processes a core a failed test gets a second go.
words=() limit=90
[ "${1:-}" = matrix ] && words=(--matrix) limit=600
congest() {
  timeout --foreground "$limit" "$python" mininet/test.py --switch "$1" "${words[@]}" && return
  read -r load _ </proc/loadavg
  [ "${load%.*}" -ge $((2 * $(nproc))) ] || return 1
  echo "AGAIN: Mininet with $1, because this machine is busy (load average $load)" >&2
  timeout --foreground "$limit" "$python" mininet/test.py --switch "$1" "${words[@]}"
}
timed "mininet, trimwire-switch" congest trimwire
[ "${1:-}" = matrix ] || timed "mininet, the page" timeout --foreground 90 "$python" mininet/test.py --page
if command -v simple_switch_grpc >/dev/null; then
  timed "mininet, BMv2" congest bmv2
else
  echo "SKIPPED: Mininet with BMv2 (simple_switch_grpc is not on PATH)" >&2
fi
