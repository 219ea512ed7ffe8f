# SPDX-License-Identifier: Apache-2.0
"""A network between the ranks of one process that cuts and loses packets: every pair of ranks has a wire with two ends, and each takes the one for the other."""

from __future__ import annotations

import random
import selectors
import socket
import threading
from types import TracebackType

#: DATA has a header of so many bytes; what is longer than control packets is DATA.
_HEADER, _CONTROL = 20, 300


class Network:
    """Wires between ranks that listen at `addresses` (127.0.0.1:PORT); `of(rank)` are the addresses that a rank is told.

    Of DATA a share `cut` is cut to `left` bytes and a share `lost` not sent on; control packets arrive.
    """

    def __init__(self, addresses: list[str], *, cut: float = 0.0, left: int = _HEADER, lost: float = 0.0, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._cut, self._left, self._lost = cut, left, lost
        self.were_cut = self.were_lost = 0
        ports = [int(address.rsplit(":", 1)[1]) for address in addresses]
        there = [("127.0.0.1", port) for port in ports]
        self._told = [list(addresses) for _ in addresses]
        self._selector = selectors.DefaultSelector()
        #: By address: a rank is known by its host and its ports, so each stand-in has a host of its own and the ports of whom it stands for.
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        for a in range(len(addresses)):
            for b in range(a):
                # Of `a` as `b` finds it, and the other way round.
                hosts = [f"127.{1 + a}.{1 + b}.{end}" for end in (1, 2)]
                for at, other, host, back in ((b, a, hosts[0], hosts[1]), (a, b, hosts[1], hosts[0])):
                    self._told[at][other] = f"{host}:{ports[other]}"
                    # What comes here is for `other`, who hears it from the other end.
                    self._selector.register(self._socket(host, ports[other]), selectors.EVENT_READ, (back, there[other]))
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _socket(self, host: str, port: int) -> socket.socket:
        if (host, port) not in self._sockets:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((host, port))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            self._sockets[host, port] = made
        return self._sockets[host, port]

    def of(self, rank: int) -> list[str]:
        """Where this rank finds itself and the others."""
        return self._told[rank]

    def _run(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(timeout=0.1):
                source: socket.socket = key.fileobj  # type: ignore[assignment]
                host, to = key.data
                payload, (_, port) = source.recvfrom(65_536)
                if len(payload) > _CONTROL:
                    chance = self._random.random()
                    if chance < self._lost:
                        self.were_lost += 1
                        continue
                    if chance < self._lost + self._cut:
                        self.were_cut += 1
                        payload = payload[: self._left]
                self._socket(host, port).sendto(payload, to)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over = True
        self._thread.join(timeout=5)
        for made in self._sockets.values():
            made.close()
