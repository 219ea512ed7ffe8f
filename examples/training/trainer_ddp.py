# SPDX-License-Identifier: Apache-2.0
"""Transformers' Trainer: TRIMWIRE_LOCAL_SIZE=1 torchrun --nproc-per-node 2 trainer_ddp.py

On one host as on two: without the variable both ranks are of one host, between which nothing goes through Trimwire.
"""

import tempfile

import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from trimwire.torch import TrimwireState, trimwire_hook


class ThroughTrimwire(TrainerCallback):
    """Gradients of Trainer's model; made before the trainer, told of it after."""

    def __init__(self):
        self.state, self.trainer = TrimwireState(), None

    def on_train_begin(self, args, state, control, **_):
        wrapped = self.trainer.model_wrapped
        if isinstance(wrapped, DistributedDataParallel):
            wrapped.register_comm_hook(self.state, trimwire_hook)


torch.manual_seed(0)
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (64, 16))]
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=64, n_layer=2, n_head=2))
through = ThroughTrimwire()
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        use_cpu=not torch.cuda.is_available(),
        per_device_train_batch_size=8,
        num_train_epochs=2,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = through.trainer = Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[through])
    done = trainer.train()
    if trainer.is_world_process_zero():
        print(f"loss {done.training_loss:.3f}, {through.state.stats()['bytes_sent']} bytes through Trimwire")
