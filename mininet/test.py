#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents congest a link in Mininet, beside TCP. Packets are trimmed, and sums are right. Needs root and iperf3.

    sudo mininet/test.py [--switch trimwire|bmv2] [--topology dumbbell|leafspine|both] [--bw MBIT]
    sudo mininet/test.py --page                        # what docs/how-to/mininet.md says to type
    sudo mininet/test.py --matrix [--loads 2 3 8]      # 2:1, 3:1 and 8:1 in each topology; minutes

Runs in network and process namespaces of its own: no interface or port of the machine is in the way, and nothing of it outlives
this process. Exit codes: 0 all promises hold, 1 one does not, 2 usage.
"""
from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from trimwire_net.processes import own_session  # noqa: E402

INSIDE = "TRIMWIRE_MININET_INSIDE"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--switch", choices=("trimwire", "bmv2"), help="default: the environment's SWITCH, else trimwire")
    parser.add_argument("--topology", choices=("dumbbell", "leafspine", "both"), default="both")
    parser.add_argument("--bw", type=float, help="rate of links in Mbit/s (default: 20; with bmv2 8)")
    parser.add_argument("--page", action="store_true", help="what docs/how-to/mininet.md says to type, instead of the short test")
    parser.add_argument("--matrix", action="store_true", help="all loads, instead of 2:1")
    parser.add_argument("--loads", type=int, nargs="+", choices=(2, 3, 8), help="n of n:1 in the matrix (default: all)")
    options = parser.parse_args()
    if options.loads and not options.matrix:
        parser.error("--loads is the matrix's")
    if options.bw is not None and not 1 <= options.bw <= 1000:
        parser.error(f"argument --bw: {options.bw:g}; valid are 1 to 1000")
    return options


def run_inside() -> int:
    """Runs this script anew in namespaces that the kernel clears away with it."""
    if os.geteuid() != 0:
        sys.exit("trimwire-mininet: Mininet needs root: sudo mininet/test.py")
    unshare = shutil.which("unshare")
    if unshare is None:
        sys.exit("trimwire-mininet: unshare (util-linux) is not on PATH")
    # Emulation in real time: a switch that waits for a compiler's turn on the processor is no
    # switch of any rate.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    # BMv2 looks in /sys whether its interfaces are up, and this one has those of the namespace that
    # it was mounted in.
    inside = ["sh", "-c", 'mount -t sysfs sysfs /sys 2>/dev/null; exec "$@"', "sh"]
    child = subprocess.Popen([unshare, "--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--", *inside,
                              sys.executable, *sys.argv], env={**os.environ, INSIDE: "1"}, start_new_session=True,
                             preexec_fn=own_session)
    # Passed on to the script inside, which clears up; unshare itself blocks both signals.
    signal.signal(signal.SIGINT, lambda *_: os.killpg(child.pid, signal.SIGINT))
    signal.signal(signal.SIGTERM, lambda *_: child.kill())
    code = child.wait()
    return code if code >= 0 else 128 - code


def main() -> int:
    """Runs the scenarios that were asked for."""
    options = arguments()
    if INSIDE not in os.environ:
        return run_inside()
    try:
        import mininet.net  # noqa: F401
    except ImportError:
        sys.exit(f"trimwire-mininet: {sys.executable} has no mininet: apt-get install --no-install-recommends mininet, "
                 "and run this with /usr/bin/python3")
    from trimwire_net import congestion, page, run_folder
    from trimwire_net.switches import chosen

    start = time.monotonic()
    switch = options.switch or chosen().target
    iperf3 = shutil.which("iperf3")
    if iperf3 is None:
        print("SKIPPED: congestion in Mininet (iperf3 is not on PATH: apt-get install iperf3)", file=sys.stderr)
        return 0
    topologies = ("dumbbell", "leafspine") if options.topology == "both" else (options.topology,)
    promises = congestion.Promises()
    loads = tuple(options.loads or congestion.LOADS) if options.matrix else (2,)
    try:
        if options.page:
            page.run(promises)
        else:
            congestion.run(promises, switch, topologies, loads, options.bw, iperf3)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    holds, took = promises.checked - len(promises.broken), time.monotonic() - start
    print(f"{holds} of {promises.checked} promises hold ({switch}, {took:.1f} s)")
    if promises.broken:
        run_folder.keep()
    for promise in promises.broken:
        print(f"BROKEN: {promise}", file=sys.stderr)
    return 1 if promises.broken else 0


if __name__ == "__main__":
    sys.exit(main())
