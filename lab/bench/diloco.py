#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/training/diloco.py over a slow path between two namespaces: by Trimwire, Gloo, and Gloo with float16, in turns.

Needs root, iproute2, and a Python with PyTorch and the package (--python). Prints for each way the held-out loss, the time that outer steps waited, and bytes that
rank 0 has sent.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

from beside_gloo import Ranks

WAYS = ("gloo", "gloo-fp16", "trimwire")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/training/diloco.py"


def sent_by(name: str) -> int:
    """Bytes that a namespace has sent."""
    said = subprocess.run(["ip", "netns", "exec", name, "cat", "/sys/class/net/eth0/statistics/tx_bytes"], check=True, capture_output=True, text=True)
    return int(said.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter with PyTorch")
    parser.add_argument("--rate", default="100mbit", help="of each rank's link, in tc's words")
    parser.add_argument("--outer-steps", type=int, default=6)
    parser.add_argument("--width", type=int, default=2048, help="of the model: 4.3 million weights")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found = {way: [] for way in WAYS}
    with Ranks(2, arguments.rate, 1, 1500) as ranks:
        common = {"WORLD_SIZE": "2", "MASTER_ADDR": ranks.address(0), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "TRIMWIRE_SOCKET_IFNAME": "eth0"}
        for nth in range(arguments.rounds * len(WAYS)):
            way = WAYS[nth % len(WAYS)]
            environment = {**os.environ, **common, "MASTER_PORT": str(29_700 + nth), "BACKEND": way}
            before = sent_by(ranks.names[0])
            program = [arguments.python, str(EXAMPLE), str(arguments.outer_steps), str(arguments.width)]
            said = ranks.run(lambda rank, program=program: ["env", f"RANK={rank}", *program], environment)
            loss, waited = re.search(r"loss ([\d.]+), .* waited ([\d.]+) s", said).groups()
            found[way].append((float(loss), float(waited), sent_by(ranks.names[0]) - before))
    for way, runs in found.items():
        loss, waited, sent = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{way:10} loss {loss:.8f}  waited {waited:7.2f} s  {sent / 1e6:7.1f} MB")


if __name__ == "__main__":
    main()
