#!/usr/bin/env python3
"""What faults do to all-reduces: a table of what happened at every rank, and how long it took.

Needs root and iproute2. Four ranks live in network namespaces joined by a bridge. While `trimwire-agent perf` sums, a rank
is killed or stopped, a link goes down, packets are lost, doubled and reordered, a stranger sends. Of each fault and way
(direct, ring, parameter server) the table says whether the sums were right, or which rank was named in every error, and the time
from the fault until the last rank was gone, or from the beginning where nothing failed. Exit code 1: something hung, or somebody blamed the wrong rank.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

WORLD, VICTIM, SERVER = 4, 2, 3
GIVE_UP = 5.0
"""s: --timeout of all ranks."""
LIMIT = 90.0
"""s: who is not gone then hangs."""


def sh(words):
    return subprocess.run(words.split(), check=True, capture_output=True, text=True).stdout


class Lab:
    """Namespaces joined by a bridge in one more; the last one is a stranger's."""

    def __init__(self):
        self.prefix = f"twf{os.getpid()}"
        self.names = [f"{self.prefix}-{rank}" for rank in range(WORLD + 1)]
        self.hub = f"{self.prefix}-hub"

    @staticmethod
    def address(rank):
        return f"10.232.0.{rank + 1}"

    def __enter__(self):
        sh(f"ip netns add {self.hub}")
        sh(f"ip -n {self.hub} link add br0 type bridge")
        sh(f"ip -n {self.hub} link set br0 up")
        for rank, name in enumerate(self.names):
            sh(f"ip netns add {name}")
            sh(f"ip -n {name} link set lo up")
            sh(f"ip link add eth0 netns {name} type veth peer name p{rank} netns {self.hub}")
            sh(f"ip -n {self.hub} link set p{rank} master br0 up")
            sh(f"ip -n {name} addr add {self.address(rank)}/24 dev eth0")
            sh(f"ip -n {name} link set eth0 up")
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def link(self, rank, state):
        sh(f"ip -n {self.hub} link set p{rank} {state}")

    def stranger(self, seconds, port):
        """Packets from an address that is no rank's: noise, and headers that look right, to the port where ranks listen."""
        code = f"""
import os, random, socket, struct, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    for rank in range({WORLD}):
        kind = random.randrange(8)
        head = struct.pack(">HBBHI", 0x5457, 3 << 4 | kind, random.randrange(256), random.randrange({WORLD}), random.randrange(1 << 32))
        s.sendto(random.choice([head, b""]) + os.urandom(random.randrange(1400)), (f"10.232.0.{{rank + 1}}", {port}))
"""
        return subprocess.Popen(["ip", "netns", "exec", self.names[WORLD], sys.executable, "-c", code])


class Run:
    """All ranks of one way."""

    def __init__(self, lab, agent, way, size, iterations, extra=()):
        self.children, self.way = {}, way
        peers = ",".join(lab.address(rank) for rank in range(WORLD))
        for rank in reversed(range(WORLD)):
            common = ["--rank", str(rank), "--world", str(WORLD), "--peers", peers, "--bind", lab.address(rank), "--timeout", f"{GIVE_UP:.0f}s"]
            measure = ["-b", size, "-e", size, "-n", str(iterations), "--bitrate", "1G", "--json", *extra]
            if way == "servers":
                words = ["serve", "--servers", str(SERVER), *common] if rank == SERVER else ["perf", "push-pull", "--servers", str(SERVER), *common, *measure]
            else:
                words = ["perf", "all-reduce", "--algorithm", way, *common, *measure]
            environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
            self.children[rank] = subprocess.Popen(
                ["ip", "netns", "exec", lab.names[rank], agent, *words],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            )
        self.started = time.monotonic()

    def end(self):
        """(exit code, what was printed, the last line of errors, when) of each rank; None where one had to be killed."""
        results, threads = {}, []

        def wait(rank, child):
            try:
                out, err = child.communicate(timeout=LIMIT)
                results[rank] = (child.returncode, out, (err.strip().splitlines() or [""])[-1], time.monotonic())
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGCONT)
                child.kill()
                child.communicate()
                results[rank] = None

        for rank, child in self.children.items():
            threads.append(threading.Thread(target=wait, args=(rank, child)))
            threads[-1].start()
        if self.way == "servers":
            # It would wait for its workers to start anew.
            while set(self.children) - set(results) - {SERVER}:
                time.sleep(0.05)
            self.children[SERVER].terminate()
        for thread in threads:
            thread.join()
        return results


def judge(run, fault, results, since):
    """(what happened, whether that is a promise kept)."""
    gone = {rank for rank in results if fault.ends and rank == VICTIM}
    hung = [rank for rank, result in results.items() if result is None and rank not in gone]
    if hung:
        return f"**ranks {hung} hung**", False, LIMIT
    rest = {rank: result for rank, result in results.items() if rank not in gone and not (run.way == "servers" and rank == SERVER)}
    took = max(result[3] for result in rest.values()) - since
    if all(result[0] == 0 for result in rest.values()):
        rows = [row for result in rest.values() for row in json.loads(result[1])["rows"]]
        error, missing = max(row["nmse"] for row in rows), max(row["missing_share"] for row in rows)
        right = error < 1e-9 + 2.5 * missing and missing <= 0.01
        text = f"right sums, NMSE {error:.0e}, {100 * missing:.2f} % missing" if right else f"**wrong sums: NMSE {error:.0e}, missing {missing:.2%}**"
        return text, right and not fault.fails, took
    errors = {rank: result[2] for rank, result in rest.items() if result[0] != 0}
    if len(errors) < len(rest):
        return f"**only ranks {sorted(errors)} failed: {next(iter(errors.values()))}**", False, took
    named = all(f"rank {VICTIM}" in text for text in errors.values())
    sample = errors[min(errors)].removeprefix("error: ")
    return (f"all name rank {VICTIM}: “{sample}”" if named else f"**not all name rank {VICTIM}: {errors}**"), named and fault.fails, took


class Fault:
    """A fault that `inject`s itself; `fails`: no sum is possible; `ends`: the victim is not judged."""

    def __init__(self, name, inject=lambda lab, run: None, fails=False, ends=False, extra=(), ways=("direct", "ring", "servers")):
        self.name, self.inject, self.fails, self.ends, self.extra, self.ways = name, inject, fails, ends, extra, ways


def child_of(run):
    """The agent itself: `ip netns exec` becomes it."""
    return run.children[VICTIM]


def stop_for(seconds):
    def inject(_lab, run):
        child_of(run).send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        child_of(run).send_signal(signal.SIGCONT)

    return inject


def stop_for_good(_lab, run):
    child_of(run).send_signal(signal.SIGSTOP)
    # It would never end; the others are to.
    threading.Timer(LIMIT / 3, lambda: (child_of(run).send_signal(signal.SIGCONT), child_of(run).kill())).start()


def down_for(seconds):
    def inject(lab, _run):
        lab.link(VICTIM, "down")
        time.sleep(seconds)
        lab.link(VICTIM, "up")

    return inject


def stranger(lab, run):
    flood = lab.stranger(4, 9217)
    flood.wait()


FAULTS = [
    Fault("none"),
    Fault("killed (SIGKILL)", lambda _lab, run: child_of(run).kill(), fails=True, ends=True),
    Fault("stopped for 2 s (SIGSTOP)", stop_for(2)),
    Fault("stopped for good", stop_for_good, fails=True, ends=True),
    Fault("link down for 2 s", down_for(2)),
    Fault("link down for good", lambda lab, _run: lab.link(VICTIM, "down"), fails=True, ends=True),
    *(Fault(f"{share} % lost everywhere", extra=("--faults", f"drop={share / 100}")) for share in (0.01, 0.1, 1)),
    Fault("5 % doubled, 5 % reordered", extra=("--faults", "duplicate=0.05,reorder=0.05")),
    Fault("a stranger's packets, 4 s", stranger),
    Fault("disk full for the transcript", extra=("--record", "/dev/full"), ways=("direct", "ring")),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agent", default="target/release/trimwire-agent", help="the binary")
    parser.add_argument("--bytes", default="1M")
    parser.add_argument("--iterations", type=int, default=300, help="operations a run: enough to be in the middle of them after a second")
    parser.add_argument("--only", help="faults with this in their name")
    parser.add_argument("--way", choices=["direct", "ring", "servers"], help="this way only")
    args = parser.parse_args()
    kept = True
    print("| fault at rank 2 | way | what happened | s |\n|---|---|---|---|")
    for fault in FAULTS:
        if args.only and args.only not in fault.name:
            continue
        for way in fault.ways:
            if args.way not in (None, way):
                continue
            extra = fault.extra
            with Lab() as lab:
                run = Run(lab, os.path.abspath(args.agent), way, args.bytes, args.iterations, extra)
                time.sleep(1)
                since = time.monotonic() if fault.fails else run.started
                fault.inject(lab, run)
                text, good, took = judge(run, fault, run.end(), since)
            kept &= good
            print(f"| {fault.name} | {way} | {text} | {took:.1f} |", flush=True)
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
