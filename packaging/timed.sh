#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Says on stderr how long a part of a longer work took, by the clock and of the processors.
#   packaging/timed.sh NAME COMMAND…    runs the command; its exit code is this script's
#   . packaging/timed.sh                defines `timed NAME COMMAND…` for a script's parts
timed() {
  local TIMEFORMAT="TIME: $1: %R s (processors: %U s + %S s of the system)"
  shift
  time "$@"
}
if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  timed "$@"
fi
