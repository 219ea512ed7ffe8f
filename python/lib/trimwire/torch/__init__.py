# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a backend of torch.distributed, and a communication hook for DistributedDataParallel.

As the backend of everything:

    import trimwire.torch
    torch.distributed.init_process_group("trimwire")

Beside another backend, for gradients only:

    model = DistributedDataParallel(model)
    trimwire.torch.register(model)

Without a network:

    trimwire.torch.register(model, simulate=trimwire.torch.Simulation(trim_rate=0.25))
"""

from ._backend import BACKEND, of
from ._epochs import shrink
from ._errors import CollectiveError
from ._hook import Hook, register
from ._options import Options, options
from ._plan import Plan
from ._profile import Profile, profile
from ._rendezvous import connect
from ._resync import Resync
from ._scalars import Scalars
from ._simulated import SimulatedHook, Simulation
from ._state import TrimwireState, trimwire_hook
from ._trace import Trace, Traced, trace

__all__ = [
    "BACKEND",
    "CollectiveError",
    "Hook",
    "Options",
    "Plan",
    "Profile",
    "Resync",
    "Scalars",
    "SimulatedHook",
    "Simulation",
    "Trace",
    "Traced",
    "TrimwireState",
    "connect",
    "of",
    "options",
    "profile",
    "register",
    "shrink",
    "trace",
    "trimwire_hook",
]
