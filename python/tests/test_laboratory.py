# SPDX-License-Identifier: Apache-2.0
"""Benches and experiments, once each at the smallest size: that they run and print what they are for, whatever the figures."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

REPOSITORY = Path(os.environ.get("TRIMWIRE_REPOSITORY", Path(__file__).resolve().parents[2]))
PROGRAMS = shutil.which("trimwire-agent", path=os.environ.get("TRIMWIRE_BIN_DIR") or os.environ["PATH"])
#: Each one's smallest run, and a pattern of what it then prints, as often as there are names
#: behind it, which are the pattern's first group.
RUNS = {
    "bench/beside_gloo.py": ("--agent {programs}/trimwire-agent --sizes 64K --planes 8 --rounds 1 --iters 2", r"^ +65536 +(8) +[\d.]+ +[\d.]+ +[\d.]+ ", "8"),
    "bench/congestion.py": (
        "--programs {programs} --experiments congestion --ranks 2 --loads 3 --modes trim Gloo --size 65536 --operations 2 --rounds 1",
        r"^\| 2 \| 3:1 \| (\S+) \| \d+ \| \d+ \|", "trim, Gloo",
    ),
    "bench/ddp_overhead.py": (
        "--link veth --width 64 --layers 2 --iterations 2 --rounds 1 --ways ddp fp16 powersgd hook backend",
        r"^(\S+) +[\d.]+ ms  p99 +[\d.]+ ms +[\d.]+ x ddp +[\d.]+ MB$", "ddp, fp16, powersgd, hook, backend",
    ),
    "bench/diloco.py": ("--outer-steps 2 --width 256 --rounds 1 --delay 0.002 --loss 0.001", r"^(\S+) +loss 0\.0\d+  waited +[\d.]+ s", "gloo, gloo-fp16, trimwire"),
    "bench/failures.py": ("--programs {programs} --cases one-spine --seconds 1", r"^(\S+) +\d+ of \d+ +\d+ ms +\d+ ms ", "one-spine"),
    "bench/faults.py": ("--programs {programs} --only doubled --way direct --bytes 64K", r"^\| 5 % doubled, .* \| (\S+) \| right sums", "direct"),
    "bench/soak.py": ("--agent {programs}/trimwire-agent --most 64K --cases 1 --seed 3", r"^\| 3 \| 2 \| 64K × 3 \| (\S+) .* \| NMSE", "reduce-scatter"),
    "bench/straggler.py": ("--operations 2 --bytes 262144 --late 0.1 --rounds 1", r'^\{"punctual_seconds": [\d.]+, "(late_seconds)": 0\.[1-9]', "late_seconds"),
    "experiments/accuracy.py": ("feedback --model perceptron --rates 0.5 --seeds 1 --steps 20", r"^\| (\w+)(?:, feedback)? \| 50 % \| 1 \| 0\.\d+ ", "unbiased, unbiased, mmse, mmse"),
    # Two steps are near exact ones, and replicas are equal.
    "experiments/adamw.py": ("--steps 2 --seeds 1 --ways exact '8 planes, 30 %'", r"^\| (exact|8 planes, 30 %) \| [\d.]+ .*? \| [-+]0\.0\d+ to [-+\d.]+ \| 0 \| [\d.e-]+ \|$", "exact, 8 planes, 30 %"),
    "experiments/changing_rate.py": (
        "--seconds 1 --rounds 1 --width 16 --scenarios degrading --ways Gloo progress",
        r"^\| degrading \| (\w+) \| [\d.]+ \|", "Gloo, progress",
    ),
    "experiments/loss_bounds.py": ("convolutional --seeds 1 --rates 0.5 --rounds 16", r"^(trimmed to 1 plane|lost) +\d+ ± 0 +\d+ ± 0 ", "trimmed to 1 plane, lost"),
    "experiments/through_a_switch.py": (
        "--programs {programs} --ranks 2 --loads 3 --ways Trimwire Gloo --steps 2 --width 16 --seeds 1",
        r"^\| 3:1 \| (\w+) \| \w+ \|", "Trimwire, Gloo",
    ),
    "experiments/time_to_accuracy.py": (
        "--simulator {programs}/trimwire-lab --models perceptron --rates 0.5 --seeds 1 --steps 20",
        r"^\| (rht|sq|sd|sign-magnitude) \| 50 % \| [\d.]+ \| .* to ", "rht, sign-magnitude, sq, sd",
    ),
}  # fmt: skip
#: Say without a GPU that there is none (test_gpu_commands).
ON_A_GPU = {"bench/gpu_codec.py", "bench/gpu_training.py"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose results nobody keeps."""
    copy = tmp_path_factory.mktemp("repository")
    for entry in REPOSITORY.iterdir():
        if entry.name not in ("docs", "figures-results", "lab", "target"):
            (copy / entry.name).symlink_to(entry)
    (copy / "docs/figures").mkdir(parents=True)
    for name in ("bench", "experiments"):
        shutil.copytree(REPOSITORY / "lab" / name, copy / "lab" / name)
    return copy / "lab"


@pytest.fixture(scope="module")
def networks() -> bool:
    """Whether there are namespaces, and links with rates."""
    words = ["mkdir -p /run/netns", "mount -t tmpfs tmpfs /run/netns", "ip netns add far", "ip link add name eth0 netns far type veth peer name near"]
    words += ["tc qdisc add dev near root tbf rate 1mbit burst 6000 limit 6000"]
    return os.geteuid() == 0 and subprocess.run(["unshare", "--net", "--mount", "sh", "-c", " && ".join(words)], capture_output=True, check=False).returncode == 0


def test_every_bench_and_experiment_is_run() -> None:
    commands = {str(path.relative_to(REPOSITORY / "lab")) for path in (REPOSITORY / "lab").glob("*/*.py") if "__main__" in path.read_text()}
    assert commands == RUNS.keys() | ON_A_GPU


@pytest.mark.parametrize("command", RUNS)
def test_the_smallest_run(lab: Path, networks: bool, command: str) -> None:
    words, pattern, names = RUNS[command]
    source = (lab / command).read_text()
    if "{programs}" in words and PROGRAMS is None:
        pytest.skip("SKIPPED: no trimwire-agent in TRIMWIRE_BIN_DIR or on PATH")
    if not networks:
        words = words.replace("--link veth", "")
        if "Needs root" in source:
            pytest.skip("SKIPPED: needs root, network namespaces, ip and tc")
    if re.search(r"^ *from plot import", source, re.MULTILINE) or "congestion_figures" in source:
        pytest.importorskip("matplotlib", reason="SKIPPED: matplotlib is not installed")
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")} | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    programs = Path(PROGRAMS or "").parent
    done = subprocess.run([sys.executable, lab / command, *shlex.split(words.format(programs=programs))], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", ".join(re.findall(pattern, done.stdout, re.MULTILINE)) == names, done.stdout + done.stderr
