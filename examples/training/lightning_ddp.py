# SPDX-License-Identifier: Apache-2.0
"""Lightning: TRIMWIRE_LOCAL_SIZE=1 torchrun --nproc-per-node 2 lightning_ddp.py

On one host as on two: without the variable both ranks are of one host, between which nothing goes through Trimwire.
"""

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn

from trimwire.torch import TrimwireState, trimwire_hook


class Classifier(lightning.LightningModule):
    """A net that could be anybody's."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 2))

    def training_step(self, batch, _):
        self.last = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        return self.last

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class ThroughTrimwire(lightning.Callback):
    """Gradients of the strategy's model. `DDPStrategy(ddp_comm_state=, ddp_comm_hook=)` does the same on GPUs; on others Lightning leaves hooks out."""

    def __init__(self):
        self.state = TrimwireState()

    def on_train_start(self, trainer, _):
        trainer.strategy.model.register_comm_hook(self.state, trimwire_hook)


lightning.seed_everything(0)
data = torch.utils.data.TensorDataset(x := torch.randn(512, 32), (x.sum(1) > 0).long())
through = ThroughTrimwire()
gpu = torch.cuda.is_available()
trainer = lightning.Trainer(
    accelerator="gpu" if gpu else "cpu",
    devices=-1 if gpu else 2,
    # The strategy's backend does everything but gradients.
    strategy=DDPStrategy(process_group_backend="nccl" if gpu else "gloo"),
    callbacks=[through],
    max_epochs=4,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Classifier()
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=32))
if trainer.is_global_zero:
    print(f"loss {model.last.item():.3f}, {through.state.stats()['bytes_sent']} bytes through Trimwire")
