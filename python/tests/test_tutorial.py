# SPDX-License-Identifier: Apache-2.0
"""What docs/start/pytorch.md says to type does what it says. All but what installs is run to the letter, in network namespaces."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

REPOSITORY = Path(os.environ.get("TRIMWIRE_REPOSITORY", Path(__file__).resolve().parents[2]))
TUTORIAL = REPOSITORY / "docs/start/pytorch.md"
PROGRAMS = ("trimwire-switch", "trimwire-controller")


def block(heading: str) -> str:
    section = TUTORIAL.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return section.split("```sh\n")[1].split("\n```")[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The repository, with this environment as its `venv`."""
    if not TUTORIAL.exists():
        pytest.skip(f"SKIPPED: no tutorial at {TUTORIAL}; TRIMWIRE_REPOSITORY names the repository")
    for entry in ("cli", "examples"):
        (tmp_path / entry).symlink_to(REPOSITORY / entry)
    (tmp_path / "venv").symlink_to(sys.prefix)
    if not (tmp_path / "venv/bin/torchrun").exists():
        pytest.skip("SKIPPED: torchrun is not in this environment")
    return tmp_path


def run(commands: list[str], folder: Path, prefix: list[str]) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # What a run of torchrun around these tests would say.
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    words = [*prefix, "bash", "-euc", "\n".join(commands)]
    done = subprocess.run(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def results(text: str) -> list[tuple[float, dict[str, float]]]:
    found = re.findall(r"^accuracy ([\d.]+)%; (\{.*\})$", text, re.MULTILINE)
    return [(float(accuracy), {name: float(value) for name, value in re.findall(r"'(\w+)': ([\d.e-]+)", stats)}) for accuracy, stats in found]


def test_a_model_trains_with_simulated_cuts_and_over_loopback(folder: Path) -> None:
    (cut, simulated), (whole, stats) = results(run([block("A training script")], folder, []))
    assert simulated["nmse"] > 0.02 and stats["packets_trimmed"] == 0 and stats["packets_received"] > 1_000
    assert min(cut, whole) > 85.0


@pytest.mark.parametrize("mtu", [1500, 1450])
def test_two_ranks_train_through_a_switch_that_trims(folder: Path, mtu: int) -> None:
    """To the letter; and on the path that VXLAN leaves, of which nobody tells the ranks."""
    built = REPOSITORY / "target/release"
    path = os.environ.get("TRIMWIRE_BIN_DIR") or (str(built) if (built / PROGRAMS[0]).exists() else None)
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    if missing or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip(f"SKIPPED: needs root, ip, and {' and '.join(PROGRAMS)} in target/release, TRIMWIRE_BIN_DIR or PATH")
    programs = Path(shutil.which(PROGRAMS[0], path=path) or "").parent
    (folder / "target").mkdir()
    (folder / "target/release").symlink_to(programs)
    script = block("A training script").split("\nEND\n")[0] + "\nEND\n"
    network = block("A network that trims")
    if mtu != 1500:
        lines = (folder / "examples/fabrics/two-hosts.yaml").read_text().replace("version: 1\n", f"version: 1\nmtu: {mtu}\n")
        (folder / "fabric.yaml").write_text(lines)
        assert network.count("mtu 1500 up") == 1
        network = network.replace("mtu 1500 up ", f"mtu {mtu} up ").replace("examples/fabrics/two-hosts.yaml", "fabric.yaml")
    # Namespaces of their own, which nobody else sees.
    prefix = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    text = run(["mkdir -p /run/netns; mount -t tmpfs none /run/netns; ip link set lo up", script, network], folder, prefix)
    [(accuracy, stats)] = results(text)
    assert stats["packets_trimmed"] > 100 and stats["failed"] == 0, text
    assert accuracy > 85.0, text
    counted = [line for line in text.splitlines() if "class0" in line]
    assert len(counted) == 2 and all(int(line.split()[4]) > 100 for line in counted), text


def test_it_is_not_more_than_fifteen_commands() -> None:
    if not TUTORIAL.exists():
        pytest.skip(f"SKIPPED: no tutorial at {TUTORIAL}; TRIMWIRE_REPOSITORY names the repository")
    # Real hosts are another matter, after it.
    tutorial = TUTORIAL.read_text().split("\n## Two real hosts\n")[0]
    text = re.sub(r"<<'END'\n.*?\nEND\n", "\n", tutorial, flags=re.DOTALL)
    text = re.sub(r"^for .*?^done$", "for", text, flags=re.DOTALL | re.MULTILINE)
    commands = [line for part in re.findall(r"```sh\n(.*?)\n```", text, re.DOTALL) for line in part.splitlines()]
    assert len(commands) == 15, commands
