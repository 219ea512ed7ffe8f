#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a DistributedDataParallel step of a model of GPT-2's size (random weights and tokens) on one GPU, by how gradients are averaged; and how much of the codec's work is beside backward.

    python lab/bench/gpu_training.py                          # 124 million weights, two ranks on one GPU over loopback: a step of each way, as ratios to a step that averages nothing
    python lab/bench/gpu_training.py --trace trace.json       # a profiler's trace of rank 0 with our hook (chrome://tracing, Perfetto), and the share of the codec's kernels that ran beside others

All ways take turns in one run: no averaging, Gloo, Gloo with the fp16 hook, our hook with the host's codec and with Triton's kernels, our backend. NCCL does not take two ranks on one GPU. Ranks share the GPU, and each other's time on it: what
is measured is the overhead, not the speed of training. Without a GPU nothing is measured; --device cpu tries the command itself.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

WAYS = ("nothing", "gloo", "gloo, fp16", "hook, host's codec", "hook", "backend")
#: Kernels of trimwire.cuda, by their names in a trace.
OURS = ("encode_rows", "decode_rows")


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans of time that do not overlap, ascending: the union of some that may."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def overlap(events: Iterable[dict[str, Any]]) -> tuple[float, float]:
    """Microseconds in which kernels of ours ran, and in how many of them another kernel ran beside; of a trace in Chrome's format."""
    ours, others = [], []
    for event in events:
        if event.get("cat") == "kernel" and "dur" in event:
            span = (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
            (ours if event["name"] in OURS else others).append(span)
    busy, beside = merged(ours), merged(others)
    both = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in busy for b in beside)
    return sum(end - begin for begin, end in busy), both


def model_of(arguments: argparse.Namespace, device: str) -> Any:
    """GPT-2's shape: embeddings tied to the head, blocks of attention and four times the width, normalised in front."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(arguments.vocabulary, arguments.width)
            self.places = nn.Embedding(arguments.context, arguments.width)
            layer = nn.TransformerEncoderLayer(
                arguments.width, arguments.heads, 4 * arguments.width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.blocks = nn.TransformerEncoder(layer, arguments.layers, norm=nn.LayerNorm(arguments.width), enable_nested_tensor=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
            x = self.blocks(x, mask=mask, is_causal=True)
            return nn.functional.cross_entropy((x @ self.tokens.weight.T).flatten(0, 1), tokens.flatten())

    return Model().to(device)


def rank(arguments: argparse.Namespace) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    way, device = arguments.way, arguments.device
    if way.startswith(("hook", "backend")):
        import trimwire.torch

        trimwire.torch.options(gradients="lossy")
    dist.init_process_group("trimwire" if way == "backend" else "gloo")
    torch.manual_seed(1)
    own = model_of(arguments, device)
    model = own if way == "nothing" else DistributedDataParallel(own)
    hook = None
    if way.startswith("hook"):
        hook = trimwire.torch.TrimwireState(local_size=1, options={"codec": "host" if "host" in way else "auto"})
        model.register_comm_hook(hook, trimwire.torch.trimwire_hook)
    elif way == "gloo, fp16":
        model.register_comm_hook(None, fp16_compress_hook)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    tokens = torch.randint(arguments.vocabulary, (arguments.batch, arguments.context), device=device)

    def settled() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def step() -> float:
        settled()
        dist.barrier()
        start = time.perf_counter()
        optimiser.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            loss = model(tokens)
        loss.backward()
        optimiser.step()
        settled()
        return time.perf_counter() - start

    # Kernels are compiled, desks made.
    for _ in range(3):
        step()
    if arguments.trace:
        with torch.profiler.profile() as profile:
            for _ in range(arguments.steps):
                step()
        if dist.get_rank() == 0:
            profile.export_chrome_trace(arguments.trace)
    else:
        times = [step() for _ in range(arguments.steps)]
        if dist.get_rank() == 0:
            print(json.dumps({"times": times, "weights": sum(parameter.numel() for parameter in own.parameters())}))
    dist.barrier()
    if hook is not None:
        hook.close()
    dist.destroy_process_group()


def run(arguments: argparse.Namespace, way: str) -> str:
    """What rank 0 said."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "WORLD_SIZE": str(arguments.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment |= {"TRIMWIRE_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}
    children = [
        subprocess.Popen([sys.executable, *sys.argv, "--way", way], env={**environment, "RANK": str(number)}, stdout=subprocess.PIPE, text=True)
        for number in range(arguments.ranks)
    ]
    try:
        said = [child.communicate(timeout=1_800)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    if any(child.returncode for child in children):
        sys.exit(f"{way}: a rank failed; what it said is above")
    return said[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--batch", type=int, default=4, help="sequences a rank (default: 4)")
    parser.add_argument("--steps", type=int, default=10, help="of each way and round, or of the trace (default: 10)")
    parser.add_argument("--rounds", type=int, default=2, help="in each of which all ways take a turn (default: 2)")
    parser.add_argument("--trace", metavar="FILE", help="writes a trace of the hook on GPUs instead")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        return rank(arguments)
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("SKIPPED: there is no GPU, and what is beside what on one cannot be seen without")
    about = f"{torch.cuda.get_device_name() if arguments.device == 'cuda' else 'no GPU'}, {arguments.ranks} ranks over loopback"
    if arguments.trace:
        arguments.trace = os.path.abspath(arguments.trace)
        run(arguments, "hook")
        with open(arguments.trace) as file:
            busy, both = overlap(json.load(file)["traceEvents"])
        share = f"{both / busy:.0%} of it beside other kernels" if busy else "no kernel of ours ran"
        print(f"{about}: the codec's kernels ran {busy / arguments.steps / 1e3:.2f} ms a step, {share}; {arguments.trace}")
        return
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    weights = 0
    for number in range(arguments.rounds):
        for way in WAYS:
            begin = time.perf_counter()
            said = json.loads(run(arguments, way).splitlines()[-1])
            times[way] += said["times"]
            middle, whole = statistics.median(said["times"]) * 1e3, time.perf_counter() - begin
            print(f"round {number + 1}, {way}: {middle:.1f} ms a step; {whole:.0f} s with its beginning, and kernels that were compiled", file=sys.stderr, flush=True)
            weights = said["weights"]
    base = statistics.median(times["nothing"])
    print(f"{about}, {weights / 1e6:.1f} million weights, medians of {arguments.rounds * arguments.steps} steps")
    for way in WAYS:
        median = statistics.median(times[way])
        print(f"{way:20} {median * 1e3:9.1f} ms  {median / base:5.2f} x a step that averages nothing")


if __name__ == "__main__":
    main()
