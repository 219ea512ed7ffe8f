# SPDX-License-Identifier: Apache-2.0
"""Accelerate: TRIMWIRE_LOCAL_SIZE=1 torchrun --nproc-per-node 2 accelerate_ddp.py

On one host as on two: without the variable both ranks are of one host, between which nothing goes through Trimwire.
"""

import torch
from accelerate import Accelerator
from torch import nn

from trimwire.torch import TrimwireState, trimwire_hook

accelerator = Accelerator(cpu=not torch.cuda.is_available())
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(x := torch.randn(512, 32), (x.sum(1) > 0).long())
model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 2))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(data, batch_size=32)
model, optimiser, loader = accelerator.prepare(model, optimiser, loader)

# Accelerate's own list of hooks is closed; its model is a DistributedDataParallel.
state = TrimwireState()
model.register_comm_hook(state, trimwire_hook)

for _ in range(4):
    for inputs, labels in loader:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        optimiser.step()
accelerator.print(f"loss {loss.item():.3f}, {state.stats()['bytes_sent']} bytes through Trimwire")
accelerator.end_training()
