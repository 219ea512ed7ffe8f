"""PyTorch: a backend of torch.distributed, and a communication hook for DistributedDataParallel.

As the backend of everything:

    import trimwire.torch
    torch.distributed.init_process_group("trimwire")

Beside another backend, for gradients only:

    model = DistributedDataParallel(model)
    trimwire.torch.register(model)
"""

from ._backend import BACKEND, ProcessGroupTrimwire, options
from ._hook import Hook, register
from ._rendezvous import connect

__all__ = ["BACKEND", "Hook", "ProcessGroupTrimwire", "connect", "options", "register"]
