# SPDX-License-Identifier: Apache-2.0
"""Runs a function on several ranks, each in a process of its own, and brings back what each returns or why it failed."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def hooked(model: Any, **arguments: Any) -> Any:
    """Has a DistributedDataParallel average through the hook, which is connected; gives its state."""
    from trimwire.torch import TrimwireState, trimwire_hook

    state = TrimwireState(model.process_group, **arguments)
    model.register_comm_hook(state, trimwire_hook)
    state.connect()
    return state


def _one(function: Callable[..., Any], rank: int, world: int, port: int, results: Any, arguments: tuple[Any, ...]) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    try:
        results.put((rank, function(rank, world, *arguments), None))
    except BaseException:
        results.put((rank, None, traceback.format_exc()))


def run(function: Callable[..., Any], world: int, *arguments: Any, timeout: float = 120.0, dying: int = 0) -> list[Any]:
    """What `function(rank, world, *arguments)` returns on each rank; fails with all tracebacks if one fails.

    Of `dying` ranks nothing is expected.
    """
    # Ranks are copies of a process that has imported what takes seconds, and has done nothing else.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numpy", "torch", "torch.distributed", "torch.distributed.fsdp", "torch._dynamo", "trimwire.torch"])
    results = context.Queue()
    port = free_port()
    processes = [
        context.Process(target=_one, args=(function, rank, world, port, results, arguments), daemon=True) for rank in range(world)
    ]
    for process in processes:
        process.start()
    got: dict[int, Any] = {}
    errors = []
    try:
        for _ in range(world - dying):
            rank, result, error = results.get(timeout=timeout)
            got[rank] = result
            if error is not None:
                errors.append(f"rank {rank}:\n{error}")
    finally:
        for process in processes:
            process.join(timeout=20)
            if process.is_alive():
                process.kill()
    assert not errors, "\n".join(errors)
    return [got[rank] for rank in sorted(got)]
