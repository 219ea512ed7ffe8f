#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small GPT under AdamW in two ranks, by how gradients are averaged: what the loss becomes, and whether embeddings of words that never occur stay where they are.

The text is Python's own library, in words; of the vocabulary a quarter is of words that no text has. Ranks meet over Gloo, and what packets would lose is simulated
(trimwire.torch.Simulation, both ways, replicas equal). Prints each run's held-out loss and, at the end, means over the seeds and how far two seeds are apart.

    python3 lab/experiments/adamw.py
    python3 lab/experiments/adamw.py --ways exact "8 planes" "8 planes, 30 %" --rates 1e-3 --seeds 5 --steps 400
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

#: Planes that are sent, and the share of packets that is trimmed to one, of each way that sends planes.
PLANES = {f"{planes} planes{f', {rate} %' if rate else ''}": (planes, rate / 100) for planes in (4, 8, 9, 10) for rate in (0, 5, 30, 50)}
WAYS = ("exact", "fp16", "bf16", "powersgd", *PLANES)
DEFAULT = ("exact", "fp16", "9 planes", "8 planes", "8 planes, 30 %", "8 planes, 50 %")
UNUSED = 1024
WORDS = 4096
CONTEXT, BATCH = 64, 8


def text() -> list[int]:
    """The library as numbers of its words: the commonest have one, the others share one."""
    pages = [path.read_text(errors="replace") for path in sorted(Path(os.__file__).parent.glob("*.py"))]
    words = re.findall(r"\w+|[^\w\s]|\n", "".join(pages))
    known = {word: number for number, (word, _) in enumerate(Counter(words).most_common(WORDS - UNUSED - 1))}
    return [known.get(word, WORDS - UNUSED - 1) for word in words]


def rank(arguments: argparse.Namespace) -> None:
    """One rank's run; the first prints."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn import functional
    from torch.nn.parallel import DistributedDataParallel

    from trimwire.torch import Simulation, TrimwireState, trimwire_hook

    class GPT(nn.Module):
        """A decoder; the default has 1,854,208 weights."""

        def __init__(self, width: int = 128, layers: int = 4) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(CONTEXT, width)
            block = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            self.blocks, self.norm, self.out = nn.TransformerEncoder(block, layers, enable_nested_tensor=False), nn.LayerNorm(width), nn.Linear(width, WORDS)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)
            nn.init.normal_(self.words.weight, std=0.02)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            seen = self.words(words) + self.places.weight[: words.shape[1]]
            out: torch.Tensor = self.out(self.norm(self.blocks(seen, mask=self.mask, is_causal=True)))
            return out

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
    me, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(arguments.seed)
    network = GPT()
    before = network.words.weight.detach()[WORDS - UNUSED :].clone()
    way = arguments.way
    model = DistributedDataParallel(network, **({"bucket_cap_mb": 1 << 20} if way == "powersgd" else {}))
    if way == "powersgd":
        model.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=10), powerSGD_hook.powerSGD_hook)
    elif way in ("fp16", "bf16"):
        model.register_comm_hook(None, getattr(default_hooks, f"{way}_compress_hook"))
    elif way in PLANES:
        planes, rate = PLANES[way]
        simulation = Simulation(trim_rate=rate, sent_planes=planes, seed=arguments.seed, consistent=True)
        model.register_comm_hook(TrimwireState(simulate=simulation), trimwire_hook)
    optimiser = torch.optim.AdamW(model.parameters(), lr=arguments.rate)
    numbers = torch.tensor(text())
    held, numbers = numbers[: len(numbers) // 20], numbers[len(numbers) // 20 :]
    random = torch.Generator().manual_seed(1_000 * arguments.seed + me)

    def batch(source: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        begins = torch.randint(len(source) - CONTEXT - 1, (BATCH,), generator=generator).tolist()
        return torch.stack([source[begin : begin + CONTEXT + 1] for begin in begins])

    def loss(of: Any, words: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(of(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())

    for _ in range(arguments.steps):
        optimiser.zero_grad()
        loss(model, batch(numbers, random)).backward()
        optimiser.step()
    same = torch.Generator().manual_seed(7)
    with torch.no_grad():
        final = statistics.mean(float(loss(network, batch(held, same))) for _ in range(40))
    mine = torch.cat([weight.detach().flatten() for weight in network.parameters()])
    others = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(others, mine)
    drift = max(float((other - others[0]).norm() / others[0].norm()) for other in others)
    # Weight decay moves what has no gradient, alike in all ways: what is left is its rounding.
    kept = before * (1.0 - arguments.rate * 0.01) ** arguments.steps
    moved = float((network.words.weight.detach()[WORDS - UNUSED :] - kept).square().mean().sqrt())
    if me == 0:
        print(f"{final} {drift} {moved}", flush=True)
    dist.destroy_process_group()


def run(way: str, seed: int, rate: float, steps: int) -> list[float]:
    """Held-out loss, distance of two ranks' weights, distance that words which never occur have moved, rms."""
    program = [sys.executable, __file__, "--way", way, "--seed", str(seed), "--rate", str(rate), "--steps", str(steps)]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20_000 + os.getpid() % 10_000), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen(program, env=os.environ | where | {"RANK": str(number)}, stdout=subprocess.PIPE, text=True) for number in range(2)]
    told = [process.communicate()[0] for process in ranks]
    if any(process.returncode for process in ranks):
        raise SystemExit(f"{way}: a rank failed")
    return [float(number) for number in told[0].split()]


def main() -> None:
    """Runs all ways in turns, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=DEFAULT, metavar="WAY", help=f"of {', '.join(WAYS)}".replace("%", "%%"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3], help="learning rates")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way is not None:
        rank(arguments)
        return
    for rate in arguments.rates:
        got: dict[str, list[list[float]]] = {way: [] for way in arguments.ways}
        for seed in range(1, arguments.seeds + 1):
            for way in arguments.ways:
                got[way].append(run(way, seed, rate, arguments.steps))
                print(f"{rate:g}, seed {seed}, {way}: {got[way][-1]}", file=sys.stderr, flush=True)
        print(f"\nLearning rate {rate:g}, {arguments.steps} steps, {arguments.seeds} seeds\n")
        print("| gradients | held-out loss, and its deviation by seed | from exact, seed by seed | ranks apart | unused words moved, rms |\n|---|---|---|---|---|")
        for way, runs in got.items():
            losses = [one[0] for one in runs]
            base = got.get("exact", runs)
            apart = [ours[0] - theirs[0] for ours, theirs in zip(runs, base, strict=True)]
            spread = f"{statistics.mean(losses):.4f} ± " + (f"{statistics.stdev(losses):.4f}" if len(losses) > 1 else "?")
            print(f"| {way} | {spread} | {min(apart):+.4f} to {max(apart):+.4f} | {max(one[1] for one in runs):.2g} | {max(one[2] for one in runs):.2g} |")


if __name__ == "__main__":
    main()
