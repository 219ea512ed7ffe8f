#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps a second while links change, under algorithms of how much to send, beside Gloo: DistributedDataParallel in network namespaces, htb at every port.

Needs root, iproute2 and a Python with PyTorch and this package (--python):

    sudo python3 lab/experiments/changing_rate.py --python venv/bin/python

Ranks are on a bridge whose ports to them have a rate by htb and a queue of --queue packets, which drops: nothing trims here. `degrading` takes a tenth of the rate away every tenth of the time, as NetSenseML's
second scenario does; `fluctuating` leaves 1 / (flows + 1) of it, up to four flows coming and going, as its third one.

Everything runs once a round, so that what else the machine does falls on all alike; the table and the plot have the rounds' medians.

Into OUT: changing-rate.csv, a line a step; changing-rate.md and changing-rate.svg. With --draw only the latter two, of the lines that are there; they need matplotlib.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WAYS = {
    "Gloo": ("gloo", None),
    "Gloo, fp16 hook": ("gloo-fp16", None),
    "Gloo, top-k 0.1": ("gloo-topk", None),
    "nine planes": ("trimwire", "fixed:first=1"),
    "a tenth": ("trimwire", "fixed:first=0.1"),
    "NetSenseML": ("trimwire", "netsense"),
    "DA2": ("trimwire", "da2"),
    "DA5": ("trimwire", "da5"),
    "trim feedback, budget": ("trimwire", "trim-feedback:budget_ms={budget}"),
    "progress": ("trimwire", "progress"),
}
SCENARIOS = ("degrading", "fluctuating")
FIELDS = ["scenario", "way", "round", "at_seconds", "step_seconds", "planes", "link_mbps", "loss"]


def rank(options: argparse.Namespace) -> None:
    """One rank, in its namespace: trains until rank 0 says that the time is over."""
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    number, world = dist.get_rank(), dist.get_world_size()
    with gzip.open(ROOT / "cli/data/digits.csv.gz", "rt") as text:
        table = np.loadtxt(text, delimiter=",", comments="#", dtype=np.float32)
    pixels, labels = torch.from_numpy(table[:, :64] / 16.0), torch.from_numpy(table[:, 64]).long()
    torch.manual_seed(1)
    width = options.width
    net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    model = DistributedDataParallel(net)
    hook: Any = None
    if options.way == "gloo-fp16":
        model.register_comm_hook(None, fp16_compress_hook)
    elif options.way == "gloo-topk":
        # DDP reads annotations, and takes none as a string.
        model.register_comm_hook({}, lambda left, bucket: largest_tenth(left, bucket))
    elif options.way == "trimwire":
        import trimwire.torch

        network = {"channels": 1, "rate_bps": round(options.rate * 1e6)}
        hook = trimwire.torch.TrimwireState(options={"planes": 9, "adaptive": options.algorithm, "network": network})
        model.register_comm_hook(hook, trimwire.torch.trimwire_hook)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    over = torch.zeros(1)
    dist.barrier()
    if number == 0:
        print("begin", flush=True)
    start, step = time.perf_counter(), 0
    while not over.item():
        generator = torch.Generator().manual_seed(step * world + number)
        batch = torch.randint(len(labels), (32,), generator=generator)
        planes = 0 if hook is None else hook.adaptive.planes
        before = time.perf_counter()
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(pixels[batch]), labels[batch])
        loss.backward()
        optimiser.step()
        after = time.perf_counter()
        over.fill_(float(number == 0 and after - start > options.seconds))
        dist.all_reduce(over)
        step += 1
        if number == 0:
            print(json.dumps({"at_seconds": after - start, "step_seconds": after - before, "planes": planes, "loss": loss.item()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def largest_tenth(left: dict[int, Any], bucket: Any) -> Any:
    """Sums a bucket's largest tenth of every rank, and keeps the rest for the next step: PyTorch has no such hook. `left` has what was kept, by bucket."""
    import torch
    import torch.distributed as dist

    flat, world = bucket.buffer(), dist.get_world_size()
    kept = left.get(bucket.index())
    # DDP divides its buckets anew after the first step.
    whole = flat.clone() if kept is None or kept.numel() != flat.numel() else kept + flat
    places = whole.abs().topk(max(1, flat.numel() // 10), sorted=False).indices.to(torch.int32)
    values = whole[places]
    whole[places] = 0.0
    left[bucket.index()] = whole
    all_places = [torch.empty_like(places) for _ in range(world)]
    all_values = [torch.empty_like(values) for _ in range(world)]
    dist.all_gather(all_places, places)
    dist.all_gather(all_values, values)
    flat.zero_()
    for at, what in zip(all_places, all_values, strict=True):
        flat.index_add_(0, at, what, alpha=1.0 / world)
    done: Any = torch.futures.Future()
    done.set_result(flat)
    return done


class Net:
    """Ranks in namespaces around a bridge whose ports have rates."""

    def __init__(self, sh: Any, ranks: int, queue: int) -> None:
        self.sh, self.ranks, self.queue = sh, ranks, queue

    def __enter__(self) -> Net:
        sh = self.sh
        sh("ip netns add hub")
        sh("ip -n hub link add br0 type bridge")
        sh("ip -n hub link set br0 up")
        for number in range(self.ranks):
            sh(f"ip netns add r{number}")
            sh(f"ip -n r{number} link set lo up")
            sh(f"ip link add eth0 netns r{number} mtu 1500 type veth peer name p{number} netns hub")
            sh(f"ip -n hub link set p{number} master br0 up")
            sh(f"ip -n r{number} link set eth0 gso_max_segs 1 up")
            sh(f"ip -n r{number} addr add {self.address(number)}/24 dev eth0")
            sh(f"ip netns exec hub tc qdisc add dev p{number} root handle 1: htb default 1")
            sh(f"ip netns exec hub tc class add dev p{number} parent 1: classid 1:1 htb rate 100mbit quantum 3000")
            sh(f"ip netns exec hub tc qdisc add dev p{number} parent 1:1 pfifo limit {self.queue}")
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("hub", *(f"r{number}" for number in range(self.ranks))):
            self.sh(f"ip netns del {name}")

    @staticmethod
    def address(number: int) -> str:
        return f"10.234.0.{number + 1}"

    def rate(self, mbps: float) -> None:
        for number in range(self.ranks):
            self.sh(f"ip netns exec hub tc class change dev p{number} parent 1: classid 1:1 htb rate {round(mbps * 1_000)}kbit quantum 3000")


def pieces(scenario: str, rate: float, seconds: float) -> list[tuple[float, float]]:
    """From when on, and what ports have then, Mbit/s."""
    if scenario == "degrading":
        return [(seconds * i / 10, rate * (10 - i) / 10) for i in range(10)]
    draw, at, found = random.Random(3), 0.0, []
    while at < seconds:
        found.append((at, rate / (1 + draw.randrange(5))))
        at += seconds / 120 * (0.5 + 4 * draw.random()) * 2
    return found


def one(net: Net, options: argparse.Namespace, scenario: str, way: str, port: int) -> list[dict[str, Any]]:
    """The steps of a run, as rank 0 tells them."""
    how, algorithm = WAYS[way]
    words = [options.python, str(Path(__file__).resolve()), "--way", how, "--rate", str(options.rate), "--seconds", str(options.seconds), "--width", str(options.width)]
    words += ["--algorithm", algorithm.format(budget=options.budget)] if algorithm else []
    plan = pieces(scenario, options.rate, options.seconds)
    net.rate(plan[0][1])
    children = []
    for number in range(options.ranks):
        environment = {"RANK": str(number), "WORLD_SIZE": str(options.ranks), "MASTER_ADDR": net.address(0), "MASTER_PORT": str(port)}
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "TRIMWIRE_SOCKET_IFNAME": "eth0", **environment}
        inside = ["ip", "netns", "exec", f"r{number}", *words]
        children.append(subprocess.Popen(inside, env=environment, stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL))
    said = children[0].stdout
    assert said is not None
    if said.readline().strip() != b"begin":
        sys.exit(f"{way}: the ranks did not begin")
    start, rows = time.monotonic(), []
    os.set_blocking(said.fileno(), False)
    pending, rest, ended = list(plan), b"", False
    while not ended:
        now = time.monotonic() - start
        while pending and pending[0][0] <= now:
            net.rate(pending.pop(0)[1])
        # None: nothing yet; nothing at all: rank 0 has ended.
        got = said.read(65_536)
        ended = got == b""
        rest += got or b""
        while b"\n" in rest:
            line, rest = rest.split(b"\n", 1)
            row = json.loads(line)
            link = next(mbps for begin, mbps in reversed(plan) if begin <= row["at_seconds"])
            rows.append({"scenario": scenario, "way": way, "link_mbps": round(link, 2), **row})
        if now > options.seconds:
            # The last step is to end.
            net.rate(options.rate)
        if not got:
            time.sleep(0.01)
    for child in children:
        if child.wait(timeout=60):
            sys.exit(f"{way} in {scenario}: a rank ended with {child.returncode}")
    return rows


def measure(options: argparse.Namespace, file: Path) -> None:
    sys.path.insert(0, str(ROOT / "lab/bench"))
    from congestion_lab import alone, sh

    alone()
    with open(file, "w", newline="") as out:
        writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
        writer.writeheader()
        port = 29_600
        with Net(sh, options.ranks, options.queue) as net:
            for nth, scenario, way in product(range(options.rounds), options.scenarios, options.ways):
                port += 1
                rows = one(net, options, scenario, way, port)
                print(f"round {nth}, {scenario}, {way}: {len(rows)} steps", file=sys.stderr, flush=True)
                for row in rows:
                    writer.writerow(row | {"round": nth} | {name: f"{row[name]:.5g}" for name in ("at_seconds", "step_seconds", "loss")})
                out.flush()


def runs_of(rows: list[dict[str, str]], scenario: str, way: str) -> list[list[dict[str, str]]]:
    """The steps of each round."""
    own = [row for row in rows if (row["scenario"], row["way"]) == (scenario, way)]
    return [[row for row in own if row["round"] == nth] for nth in sorted({row["round"] for row in own})]


def figures(own: list[dict[str, str]]) -> dict[str, float]:
    """Of one run: steps a second in all and while the link has least, the slowest hundredth in ms, planes on average, loss in the last fifth."""
    times = [float(row["step_seconds"]) for row in own]
    until = max(float(row["at_seconds"]) for row in own)
    least = min(float(row["link_mbps"]) for row in own)
    slow = [t for t, row in zip(times, own, strict=True) if float(row["link_mbps"]) <= least * 1.2]
    late = [float(row["loss"]) for row in own if float(row["at_seconds"]) > 0.8 * until]
    return {
        "rate": len(own) / until,
        "slow": len(slow) / max(sum(slow), 1e-9),
        "p99": sorted(times)[len(times) * 99 // 100] * 1e3,
        "planes": sum(float(row["planes"]) for row in own) / len(own),
        "loss": sum(late) / max(len(late), 1),
    }


def table(rows: list[dict[str, str]]) -> str:
    """Medians of the rounds; least and most of steps a second."""
    lines = ["| scenario | way | steps/s | rounds | while the link has least | slowest hundredth, ms | planes, mean | loss, last fifth |", "|---|---|---|---|---|---|---|---|"]
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        for way in dict.fromkeys(row["way"] for row in rows if row["scenario"] == scenario):
            rounds = [figures(own) for own in runs_of(rows, scenario, way)]
            middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
            rates = sorted(one["rate"] for one in rounds)
            planes = f"{middle['planes']:.1f}" if middle["planes"] else "-"
            lines.append(
                f"| {scenario} | {way} | {middle['rate']:.1f} | {rates[0]:.1f} to {rates[-1]:.1f} | {middle['slow']:.1f} | {middle['p99']:.0f} | {planes} | {middle['loss']:.3f} |"
            )
    return "\n".join(lines) + "\n"


def drawing(rows: list[dict[str, str]]) -> str:
    """Steps a second, over windows of a fortieth of the run, against time: the median of the rounds."""
    from plot import COLOURS, legend, panels, svg

    scenarios = list(dict.fromkeys(row["scenario"] for row in rows))
    figure, all_axes = panels(len(scenarios), "Steps a second while links change", height=2.6)
    for axes, scenario in zip(all_axes, scenarios, strict=True):
        of = [row for row in rows if row["scenario"] == scenario]
        until = max(float(row["at_seconds"]) for row in of)
        window, most = until / 40, 0.0
        for colour, way in zip(COLOURS, dict.fromkeys(row["way"] for row in of), strict=False):
            ends = [[float(row["at_seconds"]) for row in own] for own in runs_of(of, scenario, way)]
            rates = [statistics.median(sum(i * window <= end < (i + 1) * window for end in own) / window for own in ends) for i in range(40)]
            axes.plot([(i + 0.5) * window for i in range(40)], rates, color=colour, linewidth=1.3, label=way)
            most = max(most, *rates)
        links = sorted({(float(row["at_seconds"]), float(row["link_mbps"])) for row in of})
        greatest = max(link for _, link in links)
        links = links[:: max(1, len(links) // 400)]
        axes.plot([at for at, _ in links], [most * link / greatest for _, link in links], color="#333", linestyle="--", linewidth=1.0, label="link, of its greatest")
        axes.set_title(scenario, loc="left", fontsize=9)
        axes.set_xlim(0, until)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("steps/s")
        legend(axes)
    all_axes[-1].set_xlabel("seconds")
    return svg(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="a Python with PyTorch and this package")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rate", type=float, default=200.0, help="greatest rate of a port, Mbit/s")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--width", type=int, default=640, help="of the network's layers: 640 are 1.8 MB of gradient")
    parser.add_argument("--queue", type=int, default=100, help="packets that wait at a port")
    parser.add_argument("--budget", type=float, default=100.0, help="ms of a step's communication, for the algorithm that keeps one")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/figures")
    parser.add_argument("--draw", action="store_true", help="table and plot only")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--algorithm", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        rank(options)
        return
    file = options.out / "changing-rate.csv"
    if not options.draw:
        measure(options, file)
    with open(file, newline="") as text:
        rows = list(csv.DictReader(text))
    (options.out / "changing-rate.md").write_text(table(rows))
    print(table(rows), end="")
    (options.out / "changing-rate.svg").write_text(drawing(rows))


if __name__ == "__main__":
    main()
