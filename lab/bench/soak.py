#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs on sockets that look like real ones, each of which has to end with right sums within a time that is computed.

Needs trimwire-agent (`cargo build --release`):

    lab/bench/soak.py                       # one case of each kind, up to 64 MiB
    lab/bench/soak.py --most 1G --cases 40  # drawn at random; --seed says where to begin

Ranks are processes of `trimwire-agent perf` on addresses of the loopback, and with push-pull `trimwire-agent serve`. Each case draws how many ranks, how many bytes (4 KiB to --most), which collective and how, what is trimmed and lost (--faults),
how many jobs run at once, and what happens: nothing, a rank begins seconds late, a rank is stopped for 5 s (SIGSTOP), all processors are busy, a rank is killed and the job is started again.
A case may take: 2 s to begin, the time of the trouble, and its operations at the slowest of what a machine with other work to do codes and copies (--rate), once more for each share that is lost.
The table says how long each took of that, how many bytes a rank kept at most beside its share of the tensors, and the error; exit code 1 if one did not end, or ended wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEGIN = 2.0
"""s that processes and greetings take on a busy machine."""
GIVE_UP = 10.0
ONE_PLANE = 0.571
"""Share of a packet's energy that is lost with all planes but its signs (docs/reference/wire-format.md, 9)."""
TROUBLES = ("none", "late", "stopped", "busy", "restarted")
KINDS = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "reduce", "push-pull")


def size(text: str) -> int:
    return int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]] if text[-1] in "KMG" else int(text)


def named(count: int) -> str:
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if count % (1 << shift) == 0:
            return f"{count >> shift}{unit}"
    return str(count)


@dataclass
class Case:
    ranks: int
    bytes: int
    operations: int
    jobs: int
    kind: str
    way: list[str]
    trim: float
    drop: float
    trouble: str
    after: float
    """s after the beginning that the trouble comes, or a late rank does."""

    def hops(self) -> int:
        # Broadcasts may be passed on from rank to rank.
        return 2 * (self.ranks - 1) if "ring" in self.way or self.kind == "broadcast" else 2

    def serves(self, rank: int) -> bool:
        return self.kind == "push-pull" and rank == 0

    def exact(self) -> bool:
        return "--exact" in self.way

    def bound(self, rate: float) -> float:
        """s; every rank codes and copies everything about twice, and all share the machine."""
        work = self.jobs * self.operations * self.ranks * self.bytes * 2
        share = self.drop + (self.trim if self.exact() or "--reliable" in self.way else 0.0)
        # Packets of which something is sent again, and again.
        work /= 1 - share
        # Rounds in which the last one gets through, each after a time-out of 100 ms at most.
        rounds = 0.1 * self.hops() * self.operations * (10 if self.trim + self.drop > 0 else 1)
        trouble = {"none": 0.0, "busy": 0.0, "late": self.after, "stopped": self.after + 5.0, "restarted": self.after + GIVE_UP + 2.0}[self.trouble]
        busy = 3.0 if self.trouble == "busy" else 1.0
        again = 2.0 if self.trouble == "restarted" else 1.0
        return again * (BEGIN * (1 + self.jobs) + busy * (work / rate + rounds)) + trouble

    def text(self) -> str:
        faults = ", ".join(f"{100 * share:.2g} % {what}" for what, share in (("trimmed", self.trim), ("lost", self.drop)) if share > 0)
        return f"{self.ranks} | {named(self.bytes)} × {self.operations}{f' × {self.jobs} jobs' if self.jobs > 1 else ''} | {' '.join([self.kind, *self.way])} | {faults or '-'} | {self.trouble}{f' {self.after:.1f} s' if self.after else ''}"


@dataclass
class Job:
    case: Case
    agent: str
    number: int
    port: int
    children: dict[int, subprocess.Popen] = field(default_factory=dict)

    def start(self, rank: int) -> None:
        case = self.case
        peers = ",".join(f"127.0.0.1:{self.port + other}" for other in range(case.ranks))
        faults = ",".join(f"{name}={share}" for name, share in (("truncate", case.trim), ("drop", case.drop)) if share > 0)
        words = [self.agent, *(["serve"] if case.serves(rank) else ["perf", case.kind]), *(["--servers", "0"] if case.kind == "push-pull" else [])]
        words += ["--rank", str(rank), "--world", str(case.ranks), "--peers", peers, "--bind", "127.0.0.1", "--port", str(self.port + rank)]
        words += ["--job", str(self.number), "--timeout", f"{GIVE_UP:.0f}s", "--json"]
        # Servers are told how much has to arrive, and nothing else.
        words += [word for word in case.way if word == "--reliable"] if case.serves(rank) else case.way
        if not case.serves(rank):
            words += ["-b", str(case.bytes), "-e", str(case.bytes), "-n", str(case.operations), "-w", "0"]
        environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        words += ["--faults", faults] if faults else []
        self.children[rank] = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def wait(self, until: float) -> tuple[list[str], list[dict]]:
        """What is wrong, and what ranks report."""
        wrong, reports = [], []
        for rank, child in self.children.items():
            try:
                out, err = child.communicate(timeout=max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                wrong.append(f"rank {rank} has not ended")
                continue
            if child.returncode == 0:
                # Servers have no sums to compare.
                reports += [] if self.case.serves(rank) else [json.loads(out)]
            else:
                wrong.append(f"rank {rank}: {(err.strip().splitlines() or ['?'])[-1]}")
        return wrong, reports

    def kill(self) -> None:
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
                child.communicate()


def free_ports(count: int) -> int:
    """The first of so many that nobody has."""
    for _ in range(100):
        first = random.randrange(20_000, 30_000 - count)
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
        try:
            for offset, one in enumerate(sockets):
                one.bind(("127.0.0.1", first + offset))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    sys.exit("no free ports from 20,000 to 30,000")


def burners() -> list[subprocess.Popen]:
    return [subprocess.Popen(["nice", "-n", "10", sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]


def judged(case: Case, reports: list[dict]) -> str | None:
    """What is wrong with sums; None: nothing."""
    # What was lost on the way to others, who pass on what they have, counts for all.
    worst = {key: max((report["rows"][0][key] for report in reports), default=0.0) for key in ("missing_share", "trimmed_share")}
    # Servers do not say what they lost; as much as anybody drops or trims in these.
    if case.kind == "push-pull":
        worst = {"missing_share": max(worst["missing_share"], 0.01), "trimmed_share": max(worst["trimmed_share"], 1.5 * case.trim)}
    # The rest is scaled to make up for what is missing; packets differ by a tenth in what they carry.
    lost = 1.1 * (worst["missing_share"] / (1 - worst["missing_share"]) + ONE_PLANE * worst["trimmed_share"])
    for report in reports:
        (row,) = report["rows"]
        limit = 1e-9 + case.hops() * lost if not case.exact() else 1e-12
        if not row["nmse"] <= limit:
            return f"rank {report['rank']}: NMSE {row['nmse']:.1e} with {row['trimmed_share']:.1%} trimmed and {row['missing_share']:.2%} missing"
        if row["missing_share"] > 0.01:
            return f"rank {report['rank']}: {row['missing_share']:.2%} missing, 1 % may be"
    return None


def attempt(case: Case, jobs: list[Job], draw: random.Random, until: float) -> tuple[list[str], list[dict]]:
    victim = draw.randrange(case.ranks)
    for job in jobs:
        for rank in range(case.ranks):
            if not (case.trouble == "late" and rank == victim):
                job.start(rank)
    if case.after:
        time.sleep(case.after)
    wrong: list[str] = []
    if case.trouble == "late":
        for job in jobs:
            job.start(victim)
    elif case.trouble == "stopped":
        for job in jobs:
            job.children[victim].send_signal(signal.SIGSTOP)
        time.sleep(5)
        for job in jobs:
            job.children[victim].send_signal(signal.SIGCONT)
    elif case.trouble == "restarted":
        for job in jobs:
            job.children[victim].kill()
            failed, reports = job.wait(until)
            # Those who were done before have their sums; the others name the rank that is gone, or one that left because of it.
            others, gone = [text for text in failed if not text.startswith(f"rank {victim}:")], {f"rank {victim}"}
            while found := [text for text in others if any(name in text.split(":", 1)[-1] for name in gone)]:
                gone |= {text.split(":", 1)[0] for text in found}
                others = [text for text in others if text not in found]
            wrong += others
            job.children.clear()
        for job in jobs:
            for rank in range(case.ranks):
                job.start(rank)
    reports = []
    for job in jobs:
        failed, said = job.wait(until)
        wrong += failed
        reports += said
    return wrong, reports


def run(case: Case, agent: str, rate: float, draw: random.Random) -> tuple[str, bool]:
    """A line of the table, and whether it kept what is promised."""
    jobs = [Job(case, agent, number, free_ports(case.ranks)) for number in range(case.jobs)]
    beside = burners() if case.trouble == "busy" else []
    begun, bound = time.monotonic(), case.bound(rate)
    try:
        wrong, reports = attempt(case, jobs, draw, begun + bound)
    finally:
        for job in jobs:
            job.kill()
        for one in beside:
            one.kill()
            one.wait()
    took = time.monotonic() - begun
    mistaken = judged(case, reports)
    wrong += [mistaken] if mistaken else []
    error = max((row["nmse"] for report in reports for row in report["rows"]), default=float("nan"))
    slowest = max((max(row["seconds_each"]) for report in reports for row in report["rows"]), default=float("nan"))
    control = sum(report["totals"]["control_sent"] for report in reports) / max(1, sum(report["totals"]["data_sent"] for report in reports))
    text = f"NMSE {error:.0e}" if not wrong else f"**{wrong[0][:200]}**"
    return f"| {case.text()} | {text} | {slowest:.2f} | {100 * control:.1f} % | {took:.1f} of {bound:.0f} |", not wrong


def drawn(draw: random.Random, most: int) -> Case:
    ranks = draw.choice([2, 2, 2, 3, 4, 8])
    bytes_ = 1 << draw.randrange(12, most.bit_length())
    bytes_ = min(bytes_, most) // (2 if ranks > 4 else 1)
    if draw.random() < 0.3:
        bytes_ -= 4 * draw.randrange(1, 100)
    kind = draw.choice(["all-reduce", "all-reduce", *KINDS[1:]])
    ways = [[], [], ["--exact"], ["--reliable"]]
    ways += [["--algorithm", "ring"], ["--consistent"]] if kind == "all-reduce" else []
    way = draw.choice(ways)
    trim = draw.choice([0.0, 0.05, 0.3, 0.3, 0.6])
    trouble = draw.choice(TROUBLES)
    after = {"none": 0.0, "busy": 0.0, "late": draw.uniform(1, 8), "stopped": draw.uniform(0.5, 2), "restarted": draw.uniform(3, 5)}[trouble]
    small = bytes_ < 4 << 20
    if trouble == "restarted":
        bytes_ = min(bytes_, 4 << 20)
        return Case(ranks, bytes_, 200, 1, "all-reduce" if kind == "push-pull" else kind, way, trim, 0.0, trouble, after)
    return Case(ranks, bytes_, draw.choice([3, 10]) if small else 2, draw.choice([1, 1, 2, 4]) if small else 1, kind, way, trim, draw.choice([0.0, 0.0, 0.01]), trouble, after)


def listed(most: int) -> list[Case]:
    """One of each kind, and the sizes that messages of several map parts have."""
    cases = [Case(2, 4 << 10, 10, 4, "all-reduce", [], 0.3, 0.01, "none", 0.0), Case(4, 1 << 20, 10, 2, "all-reduce", ["--algorithm", "ring"], 0.3, 0.0, "none", 0.0)]
    cases += [Case(2, large, 3, 1, "all-reduce", [], 0.3, 0.0, "none", 0.0) for large in (24 << 20, 64 << 20, 256 << 20, 1 << 30) if large <= most]
    cases += [Case(2, min(16 << 20, most), 3, 1, "all-reduce", way, 0.05, 0.0, trouble, after) for way, trouble, after in (([], "busy", 0.0), (["--exact"], "late", 3.0), ([], "stopped", 1.0), (["--consistent"], "none", 0.0))]
    cases += [Case(3, min(16 << 20, most), 3, 1, kind, [], 0.3, 0.01, "none", 0.0) for kind in KINDS[1:]]
    # In the middle of it: who is killed before anybody has met it may be waited for as long as it takes to start.
    cases.append(Case(2, min(16 << 20, most), 60, 1, "all-reduce", [], 0.05, 0.0, "restarted", 4.0))
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default=str(ROOT / "target/release/trimwire-agent"))
    parser.add_argument("--most", type=size, default=64 << 20, help="bytes of the largest tensor: 64M, 1G")
    parser.add_argument("--cases", type=int, default=0, help="so many drawn at random, in place of one of each kind")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rate", type=size, default=40 << 20, help="bytes/s that all processes together code and copy at least")
    options = parser.parse_args()
    # Chance is the seed's, case by case: one of them is run again by itself with its own.
    seeds = [options.seed + number for number in range(options.cases)]
    cases = [(seed, drawn(random.Random(seed), options.most)) for seed in seeds] or [(options.seed, case) for case in listed(options.most)]
    print(f"seed {options.seed}\n\n| seed | ranks | bytes | what | faults | trouble | what happened | slowest operation, s | control packets | s |\n|---|---|---|---|---|---|---|---|---|---|")
    kept = True
    for seed, case in cases:
        line, good = run(case, options.agent, options.rate, random.Random(seed))
        kept &= good
        print(f"| {seed} {line}", flush=True)
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"\nThe largest process held {most:.0f} MiB.")
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
