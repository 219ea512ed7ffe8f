# SPDX-License-Identifier: Apache-2.0
"""Mininet nodes, topologies and traffic for Trimwire.

    topologies ─► Mininet ─► switches (start) ─► bring_up: hosts, fabric file, `trimwire-controller apply`
                                                    │
    shell, mininet/test.py ◄── all_reduce, congestion (TCP, counters) ◄─┘

Standard library and Debian's mininet package only. Open vSwitch and OpenFlow controllers are not needed.
"""
