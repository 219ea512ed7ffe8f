# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's ZeRO, stages 1 and 2: torchrun --nproc-per-node 2 deepspeed_zero.py [STAGE]

On processors DeepSpeed compiles an extension at its first start: it needs g++, and ninja on PATH.
"""

import os
import sys

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

import trimwire.torch

# DeepSpeed makes groups of its own from the default one, so that their options come from the environment. ZeRO's sums of
# gradients may be trimmed; the parameters that it gathers are exact whatever is said here.
os.environ.setdefault("TRIMWIRE_GRADIENTS", "lossy")
dist.init_process_group("trimwire")
torch.manual_seed(0)
data = torch.randn(512, 32)
labels = (data.sum(1) > 0).long()
model = nn.Sequential(nn.Linear(32, 2048), nn.ReLU(), nn.Linear(2048, 2))
config = {
    "train_micro_batch_size_per_gpu": 32,
    "zero_optimization": {"stage": int(sys.argv[1]) if len(sys.argv) > 1 else 2},
    "zero_allow_untested_optimizer": True,
}
engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config)
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(64):
    batch = torch.randint(512, (32,), generator=torch.Generator().manual_seed(step * world + rank))
    loss = nn.functional.cross_entropy(engine(data[batch]), labels[batch])
    engine.backward(loss)
    engine.step()
if rank == 0:
    sent = trimwire.torch.of(engine.optimizer.dp_process_group).stats()["bytes_sent"]
    print(f"loss {loss.item():.3f}, {sent} bytes through Trimwire")
dist.destroy_process_group()
