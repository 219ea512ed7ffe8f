#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What faults do to all-reduces: a table of what happened at every rank, and how long it took.

Needs root, iproute2, trimwire-agent, -switch and -controller (`cargo build --release`):

    sudo lab/bench/faults.py

Four ranks live in network namespaces joined by a bridge, or by a trimwire-switch that `trimwire-controller run` programs. While `trimwire-agent perf`
sums, a rank is killed or stopped, a link goes down, packets are lost, doubled and reordered, a stranger sends in the ranks' names, the switch dies. Of each fault and way
(direct, ring, parameter server) the table says whether the sums were right, or which rank was named in every error, and the time from the fault until
the last rank was gone, or from the beginning where nothing failed. Exit code 1: something hung, a sum was wrong, or somebody blamed the wrong rank.
--output writes the table into a page, too. What a rank that hangs has to say, its metrics and errors, goes into a file in the current folder.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from congestion_lab import ROOT, address, alone
from faults_lab import Bridge, Switched

WORLD, VICTIM, SERVER = 4, 2, 3
GIVE_UP = 5.0
"""s: --timeout of all ranks."""
LIMIT = 90.0
"""s: who is not gone then hangs."""
METRICS = "127.0.0.1:9551"
"""Where a rank tells of itself, in its own namespace."""
HOPS = {"direct": 2, "ring": 2 * (WORLD - 1), "servers": 2}
"""Most links that a part and its sum cross on the way to a rank, each of which may trim."""
ONE_PLANE = 0.571
"""Share of a packet's energy that is lost with all planes but its signs: π/2 - 1 (docs/reference/wire-format.md, §9)."""


KEY = tempfile.NamedTemporaryFile(prefix="trimwire-key-")  # noqa: SIM115: as long as this process
KEY.write(os.urandom(32))
KEY.flush()
"""Of sealed jobs."""


class Run:
    """All ranks of one way."""

    def __init__(self, lab, agent, way, size, fault):
        self.children, self.way = {}, way
        peers = ",".join(address(rank) for rank in range(WORLD))
        for rank in reversed(range(WORLD)):
            common = ["--rank", str(rank), "--world", str(WORLD), "--peers", peers, "--bind", address(rank), "--timeout", f"{GIVE_UP:.0f}s"]
            common += ["--metrics", METRICS]
            measure = ["-b", size, "-e", size, "-n", str(fault.operations), "--bitrate", lab.bitrate, "--json", *fault.extra]
            if way == "servers":
                words = ["serve", "--servers", str(SERVER), *common, "--json"] if rank == SERVER else ["perf", "push-pull", "--servers", str(SERVER), *common, *measure]
            else:
                words = ["perf", "all-reduce", "--algorithm", way, *common, *measure]
            environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
            self.children[rank] = subprocess.Popen(
                ["ip", "netns", "exec", f"r{rank}", agent, *words],
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
                metrics = last_words(rank)
                child.kill()
                errors = child.communicate()[1]
                Path(f"faults-{self.way}-rank{rank}.txt").write_text(f"{metrics}\n{errors}")
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


def last_words(rank):
    """Metrics of a rank that hangs."""
    code = f"import urllib.request as u; print(u.urlopen('http://{METRICS}/metrics', timeout=5).read().decode())"
    done = subprocess.run(["ip", "netns", "exec", f"r{rank}", sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout or done.stderr


def lost(result, is_server):
    """(trimmed, missing) shares of a rank's packets, and how many were repaired."""
    said = json.loads(result[1])
    if is_server:
        packets = max(1, said["packets"])
        return said["trimmed"] / packets, said["missing"] / packets, said["totals"]["repairs_sent"]
    (row,) = said["rows"]
    return row["trimmed_share"], row["missing_share"], said["totals"]["repairs_sent"]


def judge(run, fault, results, since):
    """(what happened, whether that is a promise kept, s that it took)."""
    gone = {rank for rank in results if fault.ends and rank == VICTIM}
    hung = [rank for rank, result in results.items() if result is None and rank not in gone]
    if hung:
        return f"**ranks {sorted(hung)} hung**", False, LIMIT
    rest = {rank: result for rank, result in results.items() if rank not in gone and not (run.way == "servers" and rank == SERVER)}
    took = max(result[3] for result in rest.values()) - since
    if all(result[0] == 0 for result in rest.values()):
        if run.way == "servers" and results[SERVER][0] != 0:
            return f"**the server failed: {results[SERVER][2]}**", False, took
        error = max(row["nmse"] for result in rest.values() for row in json.loads(result[1])["rows"])
        losses = [lost(result, run.way == "servers" and rank == SERVER) for rank, result in results.items() if rank not in gone]
        trimmed, missing = (max(loss[at] for loss in losses) for at in (0, 1))
        repaired = sum(loss[2] for loss in losses)
        # What is stated: each link costs at most the missing packets' energy, and what is left of the trimmed ones' without all planes but one.
        right = error < 1e-9 + HOPS[run.way] * (missing + ONE_PLANE * trimmed) and missing <= 0.01
        text = f"NMSE {error:.0e}, {percent(trimmed)} trimmed, {percent(missing)} missing, {repaired} repaired"
        return (f"right sums, {text}" if right else f"**wrong sums: {text}**"), right and not fault.fails, took
    errors = {rank: result[2] for rank, result in rest.items() if result[0] != 0}
    if len(errors) < len(rest):
        return f"**only ranks {sorted(errors)} failed: {next(iter(errors.values()))}**", False, took
    named = all(f"rank {VICTIM}" in text for text in errors.values())
    sample = errors[min(errors)].removeprefix("error: ")
    return (f"all name rank {VICTIM}: “{sample}”" if named else f"**not all name rank {VICTIM}: {errors}**"), named and fault.fails, took


def percent(share):
    return f"{100 * share:.2g} %"


class Fault:
    """A fault that `inject`s itself, and may tell of it; `fails`: no sum is possible; `ends`: the victim is not judged."""

    def __init__(self, name, inject=lambda lab, run: None, fails=False, ends=False, extra=(), ways=tuple(HOPS), lab=Bridge, operations=300, size=None):
        self.name, self.inject, self.fails, self.ends, self.extra, self.ways, self.lab = name, inject, fails, ends, extra, ways, lab
        self.operations = operations
        """Enough to be in the middle of them after a second."""
        self.size = size
        """Of the tensor; None: as --bytes says."""


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


def stranger(lab, _run):
    return lab.stranger(4, 9217)


def heard(results, sent):
    """What ranks counted of a stranger's packets, and whether they looked at them: who speaks under a wrong incarnation is foreign (in a sealed job without its tag: unsealed), and nothing else is; most of the control packets have to be."""
    totals = [json.loads(result[1])["totals"] for result in results.values() if result and result[0] == 0]
    foreign, malformed, unsealed = (sum(total[name] for total in totals) for name in ("foreign", "malformed", "unsealed"))
    said = ", ".join(f"{count} {what}" for what, count in sent.items())
    return f"sent {said}; {foreign} counted as foreign, {unsealed} as unsealed, {malformed} as malformed", foreign + unsealed >= sent["control"] / 2


def restart_switch_after(seconds):
    def inject(lab, _run):
        lab.kill_switch()
        killed = time.monotonic()
        time.sleep(seconds)
        started = time.monotonic()
        lab.start_switch()
        back = lab.wait_until_in_place(killed)
        return f"switch empty after {started - killed:.1f} s, in place again {back - started:.1f} s later"

    return inject


FAULTS = [
    Fault("none"),
    Fault("killed (SIGKILL)", lambda _lab, run: child_of(run).kill(), fails=True, ends=True),
    Fault("stopped for 2 s (SIGSTOP)", stop_for(2)),
    Fault("stopped for good", stop_for_good, fails=True, ends=True),
    Fault("link down for 2 s", down_for(2)),
    Fault("link down for good", lambda lab, _run: lab.link(VICTIM, "down"), fails=True, ends=True),
    *(Fault(f"{share} % lost everywhere", extra=("--faults", f"drop={share / 100}")) for share in (0.01, 0.1, 1)),
    Fault("5 % doubled, 5 % reordered", extra=("--faults", "duplicate=0.05,reorder=0.05")),
    *(Fault(f"{name}, 64 MiB", extra=extra, operations=5, size="64M") for name, extra in (("none", ()), ("30 % trimmed", ("--faults", "truncate=0.3")), ("1 % lost everywhere", ("--faults", "drop=0.01")))),
    Fault("a stranger in the ranks' names, 4 s", stranger),
    Fault("a stranger in the ranks' names, 4 s, sealed job", stranger, extra=("--seal-key", KEY.name), ways=("direct", "ring")),
    Fault("disk full for the transcript", extra=("--record", "/dev/full"), ways=("direct", "ring")),
    Fault("none, behind a switch that trims", lab=Switched, operations=40),
    Fault("switch killed and started again", restart_switch_after(1), lab=Switched, operations=40),
]


def suffer(fault, way, options):
    """One row of the table, and whether it keeps what is promised."""
    with fault.lab(options.programs, WORLD) as lab:
        run = Run(lab, str(options.programs / "trimwire-agent"), way, fault.size or options.bytes, fault)
        time.sleep(1)
        since = time.monotonic() if fault.fails else run.started
        told = fault.inject(lab, run)
        early = not fault.fails and told is not None and any(child.poll() is not None for child in run.children.values())
        results = run.end()
        text, good, took = judge(run, fault, results, since)
        if isinstance(told, dict):
            told, reached = heard(results, told)
            good &= reached
    if early:
        text, good = f"**over before the fault was: {text}**", False
    return f"| {fault.name} | {way} | {text}{f'; {told}' if told else ''} | {took:.1f} |", good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=ROOT / "target/release", help="folder of trimwire-agent, -switch and -controller")
    parser.add_argument("--bytes", default="1M", help="of the tensor, f32")
    parser.add_argument("--only", help="faults with this in their name")
    parser.add_argument("--way", choices=HOPS, help="this way only")
    parser.add_argument("--output", type=Path, help="a page with the table, between its two lines that begin with <!-- faults")
    options = parser.parse_args()
    options.programs = options.programs.resolve()
    alone()
    kept, lines = True, [f"| fault at rank {VICTIM} | way | what happened | s |", "|---|---|---|---|"]
    print("\n".join(lines))
    for fault in FAULTS:
        if options.only and options.only not in fault.name:
            continue
        for way in fault.ways:
            if options.way not in (None, way):
                continue
            line, good = suffer(fault, way, options)
            kept &= good
            lines.append(line)
            print(line, flush=True)
    if options.output:
        parts = options.output.read_text().split("<!-- faults -->\n")
        parts[1] = "\n".join(lines) + "\n"
        options.output.write_text("<!-- faults -->\n".join(parts))
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
