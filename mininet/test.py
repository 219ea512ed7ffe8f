#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents congest a port in Mininet; what was cut, forwarded, dropped and decoded is asserted. Needs root.

    sudo mininet/test.py [--switch trimwire|bmv2] [--topology dumbbell|leafspine|both] [--bw MBIT]
    sudo mininet/test.py --page                        # what docs/how-to/mininet.md says to type (needs iperf3)
    sudo mininet/test.py --matrix [--loads 2 3 8]      # n hosts into one link, beside TCP (needs iperf3); minutes

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

from trimwire_net.waiting import own_session  # noqa: E402

INSIDE = "TRIMWIRE_MININET_INSIDE"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--switch", choices=("trimwire", "bmv2"), help="default: the environment's SWITCH, else trimwire")
    parser.add_argument("--topology", choices=("dumbbell", "leafspine", "both"), default="both")
    parser.add_argument("--bw", type=float, help="rate of links in Mbit/s (default: 20; with bmv2 12, in the leaf-spine 8)")
    parser.add_argument("--page", action="store_true", help="what docs/how-to/mininet.md says to type, instead of the short test")
    parser.add_argument("--matrix", action="store_true", help="n:1 beside TCP, in each topology, instead of the short test")
    parser.add_argument("--loads", type=int, nargs="+", choices=(2, 3, 8), help="n of n:1 in the matrix (default: all)")
    options = parser.parse_args()
    if options.matrix and options.bw is not None or options.loads and not options.matrix:
        parser.error("--bw is the short test's, --loads the matrix's")
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
    # Emulation in real time: a switch that waits for a compiler's turn on the processor is no switch of any rate.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    # BMv2 looks in /sys whether its interfaces are up, and this one has those of the namespace that it was mounted in.
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
    from trimwire_net import cross_traffic, matrix, page, run_folder, scenarios
    from trimwire_net.switches import chosen

    start = time.monotonic()
    switch = options.switch or chosen().target
    if (options.matrix or options.page) and cross_traffic.iperf3() is None:
        print("SKIPPED: TCP beside gradients in Mininet (iperf3 is not on PATH: apt-get install iperf3)", file=sys.stderr)
        return 0
    topologies = ("dumbbell", "leafspine") if options.topology == "both" else (options.topology,)
    try:
        if options.matrix:
            promises = matrix.run(switch, topologies, tuple(options.loads or matrix.LOADS))
        elif options.page:
            promises = page.run()
        else:
            promises = scenarios.run(switch, options.topology, options.bw)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    broken = [promise for promise, holds in promises if not holds]
    print(f"{len(promises) - len(broken)} of {len(promises)} promises hold ({switch}, "
          f"{time.monotonic() - start:.1f} s)")
    if broken:
        run_folder.keep()
    for promise in broken:
        print(f"BROKEN: {promise}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
