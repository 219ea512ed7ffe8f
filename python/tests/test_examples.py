# SPDX-License-Identifier: Apache-2.0
"""The examples of examples/training, run as their first lines say."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ranks import free_port  # noqa: E402

FOLDER = Path(os.environ.get("TRIMWIRE_REPOSITORY", Path(__file__).parents[2])) / "examples/training"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--master-addr", "127.0.0.1"]


def torchrun(ranks: int, *words: object) -> str:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TRIMWIRE_LOCAL_SIZE": "1"}
    command = [*TORCHRUN, "--master-port", str(free_port()), "--nproc-per-node", str(ranks), *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    ("script", "package"),
    [("accelerate_ddp.py", "accelerate"), ("lightning_ddp.py", "lightning"), ("trainer_ddp.py", "transformers"), ("deepspeed_zero.py", "deepspeed")],
)
def test_frameworks_train_through_trimwire(script: str, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"SKIPPED: {package} is not installed")
    if package == "deepspeed" and (shutil.which("ninja") is None or shutil.which("c++") is None):
        pytest.skip("SKIPPED: DeepSpeed compiles an extension, with ninja and a C++ compiler")
    said = torchrun(2, FOLDER / script)
    found = re.search(r"loss ([\d.]+), (\d+) bytes through Trimwire", said)
    assert found is not None and float(found[1]) < 5.0 and int(found[2]) > 50_000, said


def test_two_sites_take_outer_steps() -> None:
    said = torchrun(2, FOLDER / "diloco.py", 2, 64)
    assert re.fullmatch(r"loss 0\.\d+, 2 outer steps of 0\.0 MB waited [\d.]+ s\n", said), said


def test_a_checkpoint_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    def state(file: Path) -> Any:
        return torch.cat([part.reshape(-1) for part in torch.load(file, weights_only=True)["model"].values()]).numpy()

    import trimwire

    whole, parts = tmp_path / "whole.pt", tmp_path / "parts.pt"
    assert "step 8, 2 ranks" in torchrun(2, FOLDER / "checkpoint.py", whole, 8)
    assert "step 4, 3 ranks" in torchrun(3, FOLDER / "checkpoint.py", parts, 4)
    assert "step 8, 2 ranks" in torchrun(2, FOLDER / "checkpoint.py", parts, 4)
    assert trimwire.nmse(state(parts), state(whole)) < 1e-6


def test_the_slurm_script_is_a_script_and_starts_torchrun_on_every_node(tmp_path: Path) -> None:
    stand_ins = {"scontrol": 'printf "one\\ntwo\\n"', "srun": 'echo "$MASTER_ADDR $@"; env | grep ^TRIMWIRE_ >&2; true'}
    for name, body in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "x[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "7"}
    ran = subprocess.run(["bash", FOLDER / "slurm.sh", "train.py", "--lr", "1"], capture_output=True, text=True, env=environment, check=True)
    assert ran.stdout.split() == "one --kill-on-bad-exit=1 torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-id 7 --rdzv-endpoint one:29500 train.py --lr 1".split()
    # Names of interfaces and sizes are the cluster's: the script invents none, and passes on those that are set.
    assert ran.stderr == ""
    environment["TRIMWIRE_SOCKET_IFNAME"] = "ens3"
    ran = subprocess.run(["bash", FOLDER / "slurm.sh", "train.py"], capture_output=True, text=True, env=environment, check=True)
    assert ran.stderr == "TRIMWIRE_SOCKET_IFNAME=ens3\n"


def test_the_kubernetes_job_has_what_an_indexed_job_needs() -> None:
    yaml = pytest.importorskip("yaml", reason="SKIPPED: PyYAML is not installed")
    service, job = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    assert (service["apiVersion"], service["kind"], service["spec"]["clusterIP"]) == ("v1", "Service", "None")
    assert (job["apiVersion"], job["kind"], job["spec"]["completionMode"]) == ("batch/v1", "Job", "Indexed")
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never" and pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    (container,) = pod["containers"]
    assert f"--nnodes={job['spec']['completions']}" in container["command"]
    assert f"--rdzv-endpoint={job['metadata']['name']}-0.{pod['subdomain']}:29500" in container["command"]
    from trimwire.torch import _options

    assert {variable["name"] for variable in container["env"]} <= {f"TRIMWIRE_{name}" for name in _options._NAMES}


SCRIPT = """
import torch, torch.distributed as dist, trimwire.torch
dist.init_process_group("trimwire", pg_options={"gradients": "lossy"})
group = trimwire.torch.of()
got = torch.ones(300_000)
dist.all_reduce(got)
print("mtu", group.native.agreed_mtu, "sum", round(got.mean().item(), 3), flush=True)
dist.destroy_process_group()
"""


def test_two_hosts_on_a_path_of_1450_bytes_need_no_option(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("SKIPPED: needs root and iproute2")
    names = [f"twt{os.getpid()}{end}" for end in "ab"]
    (script := tmp_path / "script.py").write_text(SCRIPT)

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    try:
        ip("netns", "add", names[0])
        ip("netns", "add", names[1])
    except subprocess.CalledProcessError:
        pytest.skip("SKIPPED: no network namespaces here")
    try:
        ip("-n", names[0], "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", names[1])
        for place, name in enumerate(names, 1):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{place}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "mtu", "1450", "up")
        environment = {**os.environ, "TRIMWIRE_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "10.77.0.1", "--master-port", "29507"]
        started = [
            subprocess.Popen(["ip", "netns", "exec", name, *command, "--node-rank", str(rank), str(script)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for rank, name in enumerate(names)
        ]
        for process in started:
            said, _ = process.communicate(timeout=120)
            assert "mtu 1450 sum 2.0" in said, said
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
