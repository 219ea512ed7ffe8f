# SPDX-License-Identifier: Apache-2.0
"""Mininet with switches that trim.

    sudo mn --custom mininet/trimwire_mininet.py --topo dumbbell
    sudo SWITCH=bmv2 mn --custom mininet/trimwire_mininet.py --topo leafspine,leaves=2,spines=2,hosts=2,bw=10
    sudo mn --custom mininet/trimwire_mininet.py --topo dumbbell --switch bmv2 --controller none --test allreduce

docs/how-to/mininet.md goes through it step by step. `mn` takes from here what it finds under the names that it knows.
"""
import os
import signal
import sys

# `mn` runs this file with exec, without __file__.
sys.path.insert(0, os.path.dirname(os.path.abspath((lambda: 0).__code__.co_filename)))

from mininet.node import NullController as _NullController  # noqa: E402

from trimwire_net import all_reduce as _all_reduce  # noqa: E402
from trimwire_net import shell as _shell  # noqa: E402
from trimwire_net import switches as _switches  # noqa: E402
from trimwire_net import topologies as _topologies  # noqa: E402

for _signal in (signal.SIGTERM, signal.SIGHUP):
    # An orderly end, which takes switches and interfaces along.
    signal.signal(_signal, lambda number, _: sys.exit(128 + number))

topos = _topologies.TOPOLOGIES
switches = {**_switches.SWITCHES, "default": _switches.chosen()}
tests = {"allreduce": _all_reduce.test}

# `mn` makes every name of this file one of its own, which is how these three get in.
CLI = _shell.Shell
# Without --controller it would look for an OpenFlow controller, which these switches have no use
# for.
findController = lambda: _NullController  # noqa: E731
# After an error or Ctrl-C `mn` would kill by name whatever looks like Mininet's on this machine,
# and empty /tmp of logs. `sudo mn -c` without --custom still does.
cleanup = _switches.clean_up
