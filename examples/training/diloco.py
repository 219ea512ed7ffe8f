# SPDX-License-Identifier: Apache-2.0
"""DiLoCo between sites: many steps of AdamW at each, then one outer step over the slow path: torchrun --nproc-per-node 2 diloco.py [ROUNDS] [WIDTH]"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

rounds, width = (int(sys.argv[nth]) if len(sys.argv) > nth else default for nth, default in ((1, 8), (2, 512)))
backend = os.environ.get("BACKEND", "trimwire")
if backend == "trimwire":
    import trimwire.torch

    # Pseudo-gradients may be trimmed; all ranks take the same outer step.
    trimwire.torch.options(gradients="lossy")
dist.init_process_group("gloo" if backend.startswith("gloo") else backend)
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
# The outer optimiser of the paper (Douillard et al., 2023, arXiv 2311.08105) has the shared weights, and the inner one a copy.
shared = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
outer = torch.optim.SGD(shared, lr=0.7, momentum=0.9, nesterov=True)
generator = torch.Generator().manual_seed(1 + rank)
waited = 0.0


def loss(generator: torch.Generator, size: int) -> torch.Tensor:
    x = torch.randn(size, 64, generator=generator)
    with torch.no_grad():
        wanted = teacher(x)
    return nn.functional.mse_loss(model(x), wanted)


for _ in range(rounds):
    for _ in range(20):
        inner.zero_grad()
        loss(generator, 64).backward()
        inner.step()
    began = time.perf_counter()
    apart = torch.cat([(old.detach() - new.detach()).view(-1) for old, new in zip(shared, model.parameters(), strict=True)])
    if backend == "gloo-fp16":
        half = apart.half()
        dist.all_reduce(half)
        apart = half.float()
    else:
        dist.all_reduce(apart)
    waited += time.perf_counter() - began
    at = 0
    for old in shared:
        old.grad = apart[at : at + old.numel()].view(old.shape) / world
        at += old.numel()
    outer.step()
    with torch.no_grad():
        for old, new in zip(shared, model.parameters(), strict=True):
            new.copy_(old)
with torch.no_grad():
    held_out = loss(torch.Generator().manual_seed(99), 4096)
if rank == 0:
    print(f"loss {held_out:.8f}, {rounds} outer steps of {apart.numel() * 4 / 1e6:.1f} MB waited {waited:.3f} s")
dist.barrier()
dist.destroy_process_group()
