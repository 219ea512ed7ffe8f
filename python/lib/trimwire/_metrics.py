# SPDX-License-Identifier: Apache-2.0
"""Counters of this process' groups for Prometheus."""

from __future__ import annotations

import http.server
import os
import threading

from ._group import live, stats

_COUNTERS = {
    "operations": ("trimwire_operations_total", "Operations that have ended."),
    "failed": ("trimwire_operations_failed_total", "Operations that have failed."),
    "packets_received": ("trimwire_packets_received_total", "Packets that were to come."),
    "packets_trimmed": ("trimwire_packets_trimmed_total", "Packets that came trimmed."),
    "packets_missing": ("trimwire_packets_missing_total", "Packets that did not come."),
    "packets_sent": ("trimwire_packets_sent_total", "Packets sent, without repairs."),
    "packets_repaired": ("trimwire_packets_repaired_total", "Packets sent again."),
    "bytes_sent": ("trimwire_bytes_sent_total", "Payload bytes sent."),
    "seconds": ("trimwire_operation_seconds_total", "Seconds that operations took."),
}
_serving: dict[str, http.server.ThreadingHTTPServer] = {}
_lock = threading.Lock()


def text() -> str:
    """Prometheus' text format, version 0.0.4."""
    totals = stats()
    lines = []
    for name, (metric, help_) in _COUNTERS.items():
        lines += [f"# HELP {metric} {help_}", f"# TYPE {metric} counter", f"{metric} {totals.get(name, 0)}"]
    for percent in (50, 99):
        if f"p{percent}_seconds" in totals:
            lines += [f"# TYPE trimwire_operation_p{percent}_seconds gauge", f"trimwire_operation_p{percent}_seconds {totals[f'p{percent}_seconds']}"]
    return "\n".join(lines + _peers()) + "\n"


def _peers() -> list[str]:
    """Of the largest group, under the names of `trimwire-agent`'s own endpoint: `trimwire-agent top HOST:PORT` reads them."""
    groups = [group for group in live() if group.world > 1]
    if not groups:
        return []
    group = max(groups, key=lambda group: group.world)
    lines = ["# TYPE trimwire_agent_rank info", f'trimwire_agent_rank_info{{rank="{group.rank}",world="{group.world}"}} 1']
    for peer, counters in group.peers().items():
        for name, value in counters.items():
            suffix = "" if name in ("rate_bits_per_second", "rtt_seconds") else "_total"
            lines.append(f'trimwire_agent_peer_{name}{suffix}{{peer="{peer}"}} {value}')
    return lines


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.split("?")[0] not in ("/metrics", "/"):
            self.send_error(404, "there is /metrics")
            return
        body = text().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A scrape is not worth a line."""


def serve(address: str) -> int:
    """Tells at HOST:PORT what `trimwire.stats()` has; once a process, however many groups there are. Gives the port.

    Processes of one host have successive ports, by torchrun's LOCAL_RANK.

    Raises:
        ValueError: that is no HOST:PORT.
        OSError: it cannot be listened to; the text names the variable and the address.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"metrics: {address!r}; valid is HOST:PORT, such as 127.0.0.1:9465")
    with _lock:
        if address not in _serving:
            there = int(port) and int(port) + int(os.environ.get("LOCAL_RANK") or 0)
            try:
                server = http.server.ThreadingHTTPServer((host or "127.0.0.1", there), _Handler)
            except OSError as error:
                raise OSError(error.errno, f"metrics (TRIMWIRE_METRICS={address}): cannot listen on {host or '127.0.0.1'}:{there}: {error.strerror}; give another port") from None
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, name="trimwire-metrics", daemon=True).start()
            _serving[address] = server
        return int(_serving[address].server_address[1])
