# SPDX-License-Identifier: Apache-2.0
"""python -m trimwire.cuda warm: has the kernels compiled that a job will need, before it starts."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import torch
import triton

from .._native import PLANES, coordinates_per_packet
from .._operation import GRADIENT_PLANES, MTU_LEAST, MTU_MOST
from ._compiled import Variant, variants_of
from ._launch import interpreted
from ._values import KINDS

_DTYPES = [str(dtype).removeprefix("torch.") for dtype in KINDS]


def _mtu(text: str) -> int:
    if not (text.isdecimal() and MTU_LEAST <= int(text) <= MTU_MOST):
        raise argparse.ArgumentTypeError(f"{text!r}; valid are {MTU_LEAST} to {MTU_MOST}")
    return int(text)


def _capability(text: str) -> int:
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal() and len(minor) == 1 and int(major) >= 8):
        raise argparse.ArgumentTypeError(f"{text!r}; valid are 8.0 and later, as 9.0")
    return 10 * int(major) + int(minor)


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m trimwire.cuda", description="Kernels of the codec on a GPU.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    warm = commands.add_parser(
        "warm",
        help="compile all kernels that a job needs into Triton's cache",
        description="Compiles all kernels that a job's sums, shards and gathered tensors need into Triton's cache (TRITON_CACHE_DIR, ~/.triton/cache), for any lengths. Needs no GPU.",
    )
    warm.add_argument("--dtype", nargs="+", choices=_DTYPES, default=["float32"], help="of what is summed or gathered (float32)")
    warm.add_argument("--mtu", type=_mtu, default=1500, help=f"the job's, {MTU_LEAST} to {MTU_MOST} bytes (1500)")
    warm.add_argument("--planes", type=int, nargs="+", choices=range(1, PLANES + 1), metavar="N", default=[GRADIENT_PLANES], help="that are sent, 1 to 10; up to eight share their kernels (8)")
    warm.add_argument("--sealed", action="store_true", help="packets are sealed (TRIMWIRE_SEAL_KEY)")
    warm.add_argument("--capability", type=_capability, help="compute capability, as 9.0 (that of each GPU here)")
    arguments = parser.parse_args(given)
    if interpreted():
        warm.error("TRITON_INTERPRET=1 has nothing compiled: unset it")
    arguments.capabilities = [arguments.capability] if arguments.capability else _capabilities()
    if not arguments.capabilities:
        warm.error("--capability: there is no GPU whose capability could be taken; valid are 8.0 and later, as 9.0")
    return arguments


def _capabilities() -> list[int]:
    found = [torch.cuda.get_device_capability(device) for device in range(torch.cuda.device_count())]
    return sorted({10 * major + minor for major, minor in found})


def _warmed(work: tuple[int, Variant]) -> tuple[float, bool]:
    """Seconds that a kernel took, and whether it was in the cache before."""
    capability, variant = work
    hits: list[bool] = []

    def heard(*, cache_hit: bool, **_: Any) -> None:
        hits.append(cache_hit)

    triton.knobs.compilation.listener = heard
    began = time.monotonic()
    variant.compiled(capability)
    return time.monotonic() - began, all(hits)


def main(given: list[str] | None = None) -> None:
    arguments = _arguments(given)
    began = time.monotonic()
    sizes = {coordinates_per_packet(planes, arguments.mtu, arguments.sealed) for planes in arguments.planes}
    variants = variants_of(arguments.dtype, sizes)
    work = [(capability, variant) for capability in arguments.capabilities for variant in variants]
    there = 0
    say = partial(print, flush=True)
    # A process a processor, as Triton compiles one kernel at a time in each; not forked, as CUDA does not outlive that.
    with ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), len(work)), multiprocessing.get_context("spawn")) as pool:
        for (capability, variant), (seconds, hit) in zip(work, pool.map(_warmed, work), strict=True):
            there += hit
            say(f"{capability / 10}: {variant}: {'there' if hit else f'{seconds:.0f} s'}")
    say(f"{len(work)} kernels in {triton.knobs.cache.dir}: {len(work) - there} compiled in {time.monotonic() - began:.0f} s, {there} were there")


if __name__ == "__main__":
    main()
