# SPDX-License-Identifier: Apache-2.0
"""Turns off what interfaces would do for the kernel, so that a frame that arrives is the frame that was sent.

    python3 offloads.py IFACE...

in the interfaces' namespace. Does what `ethtool -K IFACE tx off rx off tso off gso off gro off` does, without ethtool:
a checksum left to the interface would stay unfinished (BMv2 passes frames on as they are), and a segment of many frames is
longer than what switches take.
"""
from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
import sys

SIOCETHTOOL = 0x8946
# linux/ethtool.h: ETHTOOL_SRXCSUM, STXCSUM, STSO, SGSO, SGRO.
COMMANDS = (0x15, 0x17, 0x1F, 0x24, 0x2C)


def turn_off(interface: str) -> None:
    """All of them, of one interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in COMMANDS:
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            # struct ifreq: a name of 16 bytes, a pointer, and room for the longest of the union.
            request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, SIOCETHTOOL, request)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        turn_off(name)
