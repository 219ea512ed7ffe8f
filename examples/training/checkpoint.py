# SPDX-License-Identifier: Apache-2.0
"""A checkpoint, from which any number of ranks goes on: torchrun --nproc-per-node N checkpoint.py FILE STEPS"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trimwire.torch import TrimwireState, trimwire_hook

file, steps = sys.argv[1], int(sys.argv[2])
# local_size=1: every process of this host sends for itself, as on hosts with one GPU each.
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(960, 32)
y = (x.sum(1) > 0).long()
model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 2)))
model.register_comm_hook(state := TrimwireState(local_size=1), trimwire_hook)
optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
first = 0
if os.path.exists(file):
    kept = torch.load(file, weights_only=True)
    model.module.load_state_dict(kept["model"])
    optimiser.load_state_dict(kept["optimiser"])
    first = kept["step"]
for step in range(first, first + steps):
    # Of 96 examples a step each rank takes its part: how many ranks there are changes nothing.
    batch = torch.arange(96)[rank::world] + 96 * (step % 10)
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
    loss.backward()
    optimiser.step()
if rank == 0:
    torch.save({"model": model.module.state_dict(), "optimiser": optimiser.state_dict(), "step": first + steps}, file)
    print(f"step {first + steps}, {world} ranks, {state.stats()['bytes_sent']} bytes through Trimwire")
dist.barrier()
state.close()
dist.destroy_process_group()
