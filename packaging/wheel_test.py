# SPDX-License-Identifier: Apache-2.0
"""Tries an installed wheel: a gradient through the codec, half of its packets trimmed, and an all-reduce of two ranks over loopback."""

import platform
import threading

import numpy as np

import trimwire

gradient = np.random.default_rng(1).standard_normal(100_000, dtype=np.float32)
packets = trimwire.encode(gradient)
exact = trimwire.nmse(trimwire.decode(packets, packets), gradient)
trimmed = trimwire.nmse(trimwire.decode(packets, [trimwire.trim(packet, 1) if nth % 2 else packet for nth, packet in enumerate(packets)]), gradient)
assert exact < 1e-9, exact
expected = trimwire.expected_nmse({1: 0.5, trimwire.PLANES: 0.5})
assert expected is not None and abs(trimmed / expected - 1) < 0.1, (trimmed, expected)

groups = [trimwire.Group("127.0.0.1") for _ in range(2)]
addresses = [group.address for group in groups]
tensors = [gradient.copy(), 2 * gradient]
errors: list[BaseException] = []


def rank(number: int) -> None:
    try:
        groups[number].connect(number, addresses)
        groups[number].all_reduce(tensors[number]).wait(30)
    except BaseException as error:
        errors.append(error)


threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for group in groups:
    group.close()
assert not errors, errors
summed = [trimwire.nmse(tensor, 3 * gradient) for tensor in tensors]
assert max(summed) < 1e-8, summed
print(f"Python {platform.python_version()}: trimwire {trimwire.__version__}, {len(packets)} packets, NMSE {exact:.0e} whole and {trimmed:.2f} half trimmed, sums {max(summed):.0e}")
