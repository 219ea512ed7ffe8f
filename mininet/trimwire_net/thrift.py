# SPDX-License-Identifier: Apache-2.0
"""One call of BMv2's Thrift service, which P4Runtime has no word for."""
from __future__ import annotations

import socket
import struct

# TBinaryProtocol, strict: version 1 with the kind of message in the lowest byte.
CALL = 0x80010001
REPLY = 0x80010002
I32 = 8
STOP = b"\0"


def set_all_egress_queue_depths(port: int, packets: int, timeout: float = 5.0) -> None:
    """What `set_queue_depth PACKETS` in simple_switch_CLI does: the most packets of each queue of each port.

    Raises OSError when nobody answers, ValueError when the answer is no plain yes.
    """
    method = b"simple_switch:set_all_egress_queue_depths"
    arguments = struct.pack(">bhi", I32, 1, packets) + STOP
    call = struct.pack(">Ii", CALL, len(method)) + method + struct.pack(">i", 0) + arguments
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        connection.sendall(call)
        answer = connection.makefile("rb")
        kind, length = struct.unpack(">Ii", answer.read(8))
        name = answer.read(length)
        answer.read(4)
        if kind != REPLY:
            raise ValueError(f"{name.decode(errors='replace')}: an answer of kind {kind:#x}, no reply")
        # The result: field 0, an i32, is 0.
        if answer.read(7) != struct.pack(">bhi", I32, 0, 0):
            raise ValueError(f"{name.decode(errors='replace')}: refused")
