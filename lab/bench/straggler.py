#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several all-reduces at once, of which one rank is late: how late are they, and what was sent twice?

Ranks are processes of this machine, over its loopback interface, or over another one (--interface, as TRIMWIRE_SOCKET_IFNAME's names). Each round runs the operations
punctually and with one rank late, and prints the slowest rank's times. The late rank's own time without its lateness should be that of a punctual round.

    python3 straggler.py --operations 6 --bytes 33554432 --late 1.0
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from typing import Any

import numpy as np
import trimwire


def rank(number: int, arguments: argparse.Namespace, barrier: Any, addresses: Any, results: Any) -> None:
    if arguments.interface:
        os.environ["TRIMWIRE_SOCKET_IFNAME"] = arguments.interface
    group = trimwire.Group()
    addresses[number] = group.address
    barrier.wait()
    group.connect(number, list(addresses), mtu=group.mtu)
    count = arguments.bytes // 4
    tensors = [np.random.default_rng(number * 100 + index).standard_normal(count, dtype=np.float32) for index in range(arguments.operations)]
    repaired = 0.0
    for lap in range(2 * arguments.rounds + 1):
        late = lap % 2 == 0 and lap > 0
        barrier.wait()
        start = time.perf_counter()
        if late and number == arguments.ranks - 1:
            time.sleep(arguments.late)
        works = [group.all_reduce(tensor, tag=index, average=True) for index, tensor in enumerate(tensors)]
        for work in works:
            work.wait()
        seconds = time.perf_counter() - start
        again = group.stats()["packets_repaired"] - repaired
        repaired += again
        if lap > 0:  # The first warms up.
            results.put((lap, late, number, seconds, again))
    barrier.wait()
    group.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--operations", type=int, default=6, help="all-reduces at once")
    parser.add_argument("--bytes", type=int, default=32 << 20, help="of each, in float32")
    parser.add_argument("--late", type=float, default=1.0, help="seconds by which the last rank is late")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--interface", default="")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        barrier, addresses, results = manager.Barrier(arguments.ranks), manager.list([""] * arguments.ranks), manager.Queue()
        processes = [context.Process(target=rank, args=(number, arguments, barrier, addresses, results)) for number in range(arguments.ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        rows = []
        while not results.empty():
            rows.append(results.get())
    if len(rows) != 2 * arguments.rounds * arguments.ranks:
        raise SystemExit("a rank failed")
    slowest: dict[bool, list[float]] = {}
    for lap in sorted({row[0] for row in rows}):
        of = [row for row in rows if row[0] == lap]
        slowest.setdefault(of[0][1], []).append(max(row[3] for row in of))
    punctual, late = (statistics.median(slowest[kind]) for kind in (False, True))
    again = {kind: sum(row[4] for row in rows if row[1] is kind) for kind in (False, True)}
    print(
        json.dumps(
            {
                "punctual_seconds": round(punctual, 3),
                "late_seconds": round(late, 3),
                "beyond_its_lateness": round((late - arguments.late) / punctual, 3),
                "packets_sent_again_punctual": again[False],
                "packets_sent_again_late": again[True],
            }
        )
    )


if __name__ == "__main__":
    main()
