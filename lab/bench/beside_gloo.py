#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce by trimwire-agent beside PyTorch's Gloo, over the same veth pairs, in turns.

Needs root, iproute2, and for Gloo a Python with PyTorch (--python). Ranks live in network namespaces, each on --cores of its own
where there are enough, joined by a bridge; --rate limits each rank's sending by htb. Prints a line per size and planes: medians
over the rounds, and the ratio. Rates of both come from the same minutes; a busy machine shows in the spread.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

GLOO = """
import json, os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
rank, world, sizes, iters = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
dist.init_process_group("gloo", rank=rank, world_size=world)
out = {}
for size in sizes:
    data, times = torch.randn(size // 4), []
    for i in range(iters + 3):
        copy = data.clone()
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(copy)
        times.append(time.perf_counter() - start)
    out[size] = times[3:]
if rank == 0:
    print(json.dumps(out), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def sh(words, **options):
    return subprocess.run(words.split(), check=True, capture_output=True, text=True, **options).stdout


class Ranks:
    """Namespaces joined by a bridge in one more."""

    def __init__(self, world, rate, cores, mtu):
        self.prefix = f"twb{os.getpid()}"
        self.names = [f"{self.prefix}-{rank}" for rank in range(world)]
        self.hub = f"{self.prefix}-hub"
        self.world, self.rate, self.cores, self.mtu = world, rate, cores, mtu

    def address(self, rank):
        return f"10.231.0.{rank + 1}"

    def __enter__(self):
        sh(f"ip netns add {self.hub}")
        sh(f"ip -n {self.hub} link add br0 type bridge")
        sh(f"ip -n {self.hub} link set br0 up")
        for rank, name in enumerate(self.names):
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
            sh(f"ip link add eth0 netns {name} type veth peer name p{rank} netns {self.hub}")
            sh(f"ip -n {self.hub} link set p{rank} mtu {self.mtu} master br0 up")
            sh(f"ip -n {name} addr add {self.address(rank)}/24 dev eth0")
            sh(f"ip -n {name} link set eth0 mtu {self.mtu} up")
            if self.rate:
                sh(f"ip netns exec {name} tc qdisc add dev eth0 root handle 1: htb default 1 r2q 1000")
                sh(f"ip netns exec {name} tc class add dev eth0 parent 1: classid 1:1 htb rate {self.rate} burst 64k cburst 64k")
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def run(self, command, environment=None):
        """Runs `command(rank)` on all ranks; gives what rank 0 prints."""
        cores = sorted(os.sched_getaffinity(0))
        children = []
        for rank in reversed(range(self.world)):
            own = ",".join(str(cores[(rank * self.cores + each) % len(cores)]) for each in range(self.cores))
            words = ["ip", "netns", "exec", self.names[rank], "taskset", "-c", own, *command(rank)]
            children.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment))
        texts = [child.communicate(timeout=600) for child in children]
        for child, (_, errors) in zip(children, texts):
            if child.returncode:
                sys.exit(f"{' '.join(child.args)}\n{errors}")
        return texts[-1][0]


def size(text):
    number, unit = re.fullmatch(r"(\d+)([KM]?)", text).groups()
    return int(number) << {"": 0, "K": 10, "M": 20}[unit]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--agent", default="target/release/trimwire-agent")
    parser.add_argument("--python", default=sys.executable, help="interpreter with PyTorch")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", type=size, nargs="+", default=[size("1M"), size("4M"), size("16M")])
    parser.add_argument("--planes", type=int, nargs="+", default=[9, 10])
    parser.add_argument("--rate", help="of each rank's link, in tc's words (10gbit); none: as fast as veth is")
    parser.add_argument("--cores", type=int, default=1, help="processors of each rank")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--perf", default="", help="further options of `trimwire-agent perf`, as '--channels 2'")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    ours, theirs = {}, {}
    with Ranks(args.ranks, args.rate, args.cores, args.mtu) as ranks, tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(GLOO)
        script.flush()
        peers = ",".join(ranks.address(rank) for rank in range(args.ranks))
        environment = {**os.environ, "MASTER_ADDR": ranks.address(0), "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0"}
        for _ in range(args.rounds):
            out = ranks.run(
                lambda rank: [args.python, script.name, str(rank), str(args.ranks), json.dumps(args.sizes), str(args.iters)],
                environment,
            )
            for bytes_, times in json.loads(out).items():
                theirs.setdefault(int(bytes_), []).append(statistics.median(times))
            for planes in args.planes:
                for bytes_ in args.sizes:
                    words = f"perf all-reduce --world {args.ranks} --peers {peers} -b {bytes_} -e {bytes_} -n {args.iters} -w 3"
                    words += f" --planes {planes} --json {args.perf}"
                    row = json.loads(ranks.run(lambda rank: [args.agent, *words.split(), "--rank", str(rank)]))["rows"][0]
                    ours.setdefault((bytes_, planes), []).append(row)
    rows = []
    for (bytes_, planes), runs in sorted(ours.items()):
        median = statistics.median(row["seconds_p50"] for row in runs)
        ratios = [row["seconds_p50"] / gloo for row, gloo in zip(runs, theirs[bytes_])]
        rows.append({
            "bytes": bytes_, "planes": planes, "gloo_ms": 1e3 * statistics.median(theirs[bytes_]), "trimwire_ms": 1e3 * median,
            "ratio": statistics.median(ratios), "ratios": ratios, "nmse": runs[-1]["nmse"],
            "cpu_s_per_gib": statistics.median(row["cpu_seconds"] for row in runs) * 2**30 / bytes_,
        })
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'size (B)':>10} {'planes':>6} {'Gloo ms':>9} {'Trimwire ms':>11} {'ratio':>6}  {'of the rounds':<20} {'NMSE':>9} {'CPU s/GiB':>9}")
    for row in rows:
        each = " ".join(f"{ratio:.2f}" for ratio in row["ratios"])
        print(
            f"{row['bytes']:>10} {row['planes']:>6} {row['gloo_ms']:>9.2f} {row['trimwire_ms']:>11.2f} {row['ratio']:>6.2f}  "
            f"{each:<20} {row['nmse']:>9.2e} {row['cpu_s_per_gib']:>9.2f}"
        )


if __name__ == "__main__":
    main()
