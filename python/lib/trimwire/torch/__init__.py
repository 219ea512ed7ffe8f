# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a backend of torch.distributed, and a communication hook for DistributedDataParallel.

As the backend of everything:

    import trimwire.torch
    torch.distributed.init_process_group("trimwire")

Beside another backend, for gradients only:

    model = DistributedDataParallel(model)
    model.register_comm_hook(TrimwireState(), trimwire_hook)

Without a network:

    model.register_comm_hook(TrimwireState(simulate=Simulation(trim_rate=0.25)), trimwire_hook)
"""

from ._backend import BACKEND, of
from ._epochs import shrink
from ._errors import CollectiveError
from ._options import Network, Options, options
from ._rendezvous import connect
from ._scalars import Scalars
from ._simulated import Simulation
from ._state import TrimwireState, trimwire_hook

__all__ = [
    "BACKEND",
    "CollectiveError",
    "Network",
    "Options",
    "Scalars",
    "Simulation",
    "TrimwireState",
    "connect",
    "of",
    "options",
    "shrink",
    "trimwire_hook",
]
