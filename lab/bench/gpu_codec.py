# SPDX-License-Identifier: Apache-2.0
"""The codec on a GPU beside a copy of the same numbers: encode + pack, and decode, as ratios to a device-to-device copy of f32s.

    python lab/bench/gpu_codec.py                      # 64 MiB of f32
    python lab/bench/gpu_codec.py --mib 256 --planes 9 --json

All ways take turns in one run, timed by CUDA events; medians. Beside them: torch's cast f32 -> bf16, and the transform of
fast-hadamard-transform, where that is installed. Packets are held against the host's codec first. Without a GPU nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable

import torch


def ways(coordinates: int, planes: int) -> dict[str, Callable[[], object]]:
    """What is timed, by name; the first one is what all are held against."""
    import trimwire
    import trimwire.cuda

    gradient = torch.randn(coordinates, device="cuda")
    copy, half, out = torch.empty_like(gradient), torch.empty_like(gradient, dtype=torch.bfloat16), torch.empty_like(gradient)
    encoder = trimwire.cuda.Encoder([coordinates], planes=planes)
    decoder = trimwire.cuda.Decoder([coordinates], planes=planes)
    encoder.encode([gradient], seed=1)
    if encoder.to_bytes() != list(trimwire.encode(gradient.cpu(), planes=planes, seed=1)):
        sys.exit("packets differ from the host's: nothing else is worth a measurement")
    decoder.packets.copy_(encoder.packets)
    decoder.lengths.copy_(torch.diff(torch.tensor(encoder.layout.offsets)).int())
    decoder.decode([out], seed=1)
    error = trimwire.nmse(out.cpu().numpy(), gradient.cpu().numpy())
    if not error < (1e-12 if planes == 10 else 1.0):
        sys.exit(f"decoded values are off: NMSE {error}")
    cut = trimwire.cuda.Decoder([coordinates], planes=planes)
    cut.packets.copy_(encoder.packets)
    # A quarter of the packets trimmed to one plane, as a congested switch would.
    coordinates_of = torch.tensor(encoder.layout.coordinates)
    whole = torch.diff(torch.tensor(encoder.layout.offsets)).int()
    signs = (20 + coordinates_of // 8).int()
    cut.lengths.copy_(torch.where(torch.arange(whole.numel()) % 4 == 0, torch.minimum(signs, whole), whole))
    cut.decode([out], seed=1)
    found: dict[str, Callable[[], object]] = {
        "copy of f32s": lambda: copy.copy_(gradient),
        "encode and pack": encoder.run,
        "decode": decoder.run,
        "decode, a quarter trimmed": cut.run,
        "decode into a sum": lambda: decoder.run(accumulate=True),
        "cast to bf16": lambda: half.copy_(gradient),
    }
    try:
        from fast_hadamard_transform import hadamard_transform
    except ImportError:
        print("fast-hadamard-transform is not installed: its transform is left out", file=sys.stderr)
    else:
        rows = gradient[: coordinates // 2**15 * 2**15].view(-1, 2**15)
        found["fast-hadamard-transform"] = lambda: hadamard_transform(rows)
    return found


def timed(way: Callable[[], object], repeats: int) -> float:
    """Milliseconds a call, of `repeats` in a row."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        way()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=64, help="MiB of f32 (default: 64)")
    parser.add_argument("--planes", type=int, default=10, help="planes that are sent, 1 to 10 (default: 10)")
    parser.add_argument("--rounds", type=int, default=30, help="rounds, in each of which all take a turn (default: 30)")
    parser.add_argument("--repeats", type=int, default=10, help="calls a turn (default: 10)")
    parser.add_argument("--json", action="store_true", help="one object, medians in ms")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("SKIPPED: there is no GPU, and the interpreter's times say nothing")
    all_ways = ways(arguments.mib * 2**18, arguments.planes)
    times: dict[str, list[float]] = {name: [] for name in all_ways}
    for name, way in all_ways.items():
        timed(way, 3)
    for _ in range(arguments.rounds):
        for name, way in all_ways.items():
            times[name].append(timed(way, arguments.repeats))
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    if arguments.json:
        about = {"device": torch.cuda.get_device_name(), "mib": arguments.mib, "planes": arguments.planes}
        print(json.dumps({**about, "milliseconds": medians}))
        return
    print(f"{torch.cuda.get_device_name()}, {arguments.mib} MiB of f32, {arguments.planes} planes, medians of {arguments.rounds}")
    base = medians["copy of f32s"]
    for name, median in medians.items():
        print(f"{name:24} {median:8.3f} ms  {median / base:5.2f} x the copy")


if __name__ == "__main__":
    main()
