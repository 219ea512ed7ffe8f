# SPDX-License-Identifier: Apache-2.0
"""Promises of the codec on a GPU, against the vectors of the wire format and against the host's codec.

    python -m pytest python/tests/test_cuda.py                         on a GPU
    TRITON_INTERPRET=1 python -m pytest python/tests/test_cuda.py      without: Triton's interpreter runs the same kernels on the processor
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trimwire
from kernels import DEVICE, INTERPRETED, skip_unless_they_run

skip_unless_they_run()

import torch

import trimwire.cuda

RANDOM = np.random.default_rng(11)
VECTORS = Path(os.environ.get("TRIMWIRE_VECTORS", Path(__file__).parents[2] / "host-encoder/tests/vectors.json"))


def values_of(digits: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(digits), dtype=">u4").astype("<u4").view(np.float32)


@pytest.fixture(scope="module")
def vectors() -> dict[str, Any]:
    return json.loads(VECTORS.read_text())


CASES = [case["name"] for case in json.loads(VECTORS.read_text())["cases"] if case["codec"] == "rht"]


def plan_of(case: dict[str, Any]) -> dict[str, Any]:
    return {
        "planes": case["planes"],
        "layer_classes": [tensor["layer_class"] for tensor in case["tensors"]],
        "coordinates_per_packet": case["coordinates_per_packet"],
        "row_log2": case["row_log2"],
        "device": DEVICE,
    }


def numbers_of(vectors: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    return {"seed": int(vectors["job_seed"], 16), "message": vectors["message"], **vectors["envelope"]}


def assert_near(got: np.ndarray, expected: np.ndarray, rows: Sequence[int]) -> None:
    """Within the page's tolerance, of each row's root mean square; `rows` are their lengths."""
    for a, b in zip(np.split(got, np.cumsum(rows)[:-1]), np.split(expected, np.cumsum(rows)[:-1]), strict=True):
        assert (np.isnan(a) == np.isnan(b)).all()
        a, b = a.astype(np.float64), b.astype(np.float64)
        limit = 1e-5 * np.sqrt(np.mean(b * b)) + 4 * 2.0**-149
        assert (np.isnan(b) | (a == b) | (np.abs(a - b) <= limit)).all(), (np.nanmax(np.abs(a - b)), limit)


@pytest.mark.parametrize("name", CASES)
def test_packets_are_the_vectors_to_the_byte_and_decode_to_theirs(vectors: dict[str, Any], name: str) -> None:
    case = next(case for case in vectors["cases"] if case["name"] == name)
    lengths = [tensor["coordinates"] for tensor in case["tensors"]]
    gradient = values_of(vectors["gradients"][case["gradient"]]["values"])
    tensors = [torch.from_numpy(part.copy()).to(DEVICE) for part in np.split(gradient, np.cumsum(lengths)[:-1])]
    encoder = trimwire.cuda.Encoder(lengths, **plan_of(case))
    if case["important_from"] is not None:
        encoder.important_from.fill_(case["important_from"])
    packets = [bytes.fromhex(packet) for packet in case["packets"]]
    rows, receivers = range(len(encoder.layout.rows)), [receiver for receiver in case["decoded"] if "then" not in receiver]  # Repairs are joined by who receives them.
    parts = [rows]
    if INTERPRETED:
        # A row takes a quarter of a second, whatever its length: of very many the first and the
        # last, and of many receivers each other one, by turns.
        parts = [rows] if len(rows) <= 12 else [rows[:2], rows[-2:]]
        receivers = receivers if len(receivers) <= 2 else receivers[CASES.index(name) % 2 :: 2]
    encoder.bind(tensors)
    encoder.set_numbers(**numbers_of(vectors, case))
    for some in parts:
        encoder.run(some)
        first, end = encoder.layout.packets_of(some)
        assert encoder.to_bytes()[first:end] == packets[first:end]
    for receiver in receivers:
        decoder = trimwire.cuda.Decoder(lengths, decoding=receiver["decoding"], **plan_of(case))
        decoder.put([None if length is None else packet[:length] for packet, length in zip(packets, receiver["lengths"], strict=True)])
        out = [torch.full((length,), 7.0, device=DEVICE) for length in lengths]
        decoder.bind(out)
        decoder.set_numbers(**numbers_of(vectors, case))
        for some in parts:
            decoder.run(some)
            used = [row.used for row in decoder.layout.rows]
            place = slice(sum(used[: some.start]), sum(used[: some.stop]))
            assert_near(torch.cat(out).cpu().numpy()[place], values_of(receiver["values"])[place], used[some.start : some.stop])


def test_rows_at_a_time_are_the_message_at_once() -> None:
    tensor = torch.from_numpy(RANDOM.standard_normal(1_000).astype(np.float32)).to(DEVICE)
    plan = {"row_log2": 8, "coordinates_per_packet": 96, "device": DEVICE}
    encoder = trimwire.cuda.Encoder([1_000], **plan)
    expected = encoder.encode([tensor], seed=4, message=9).clone()
    decoder = trimwire.cuda.Decoder([1_000], **plan)
    decoder.put(encoder.to_bytes())
    whole = torch.zeros_like(tensor)
    decoder.decode([whole], seed=4, message=9)
    parts = torch.zeros_like(tensor)
    decoder.bind([parts])
    encoder.packets.zero_()
    rows = len(encoder.layout.rows)
    assert rows >= 4
    for some in (range(1, 3), range(3, rows), range(0, 1)):
        encoder.run(some)
        decoder.run(some)
        begin, end = decoder.layout.coordinates_of(some)
        assert (parts[begin:end] == whole[begin:end]).all() and (some.start > 0 or (parts == whole).all())
    assert (encoder.packets == expected).all()


def test_every_case_of_the_codec_is_there() -> None:
    assert len(CASES) > 40


def contents(length: int) -> dict[str, np.ndarray]:
    gaussian = RANDOM.standard_normal(length).astype(np.float32)
    spike = np.zeros(length, dtype=np.float32)
    spike[length // 2] = -3.0
    with_nan, with_infinity = gaussian.copy(), gaussian.copy()
    with_nan[-1], with_infinity[0] = np.nan, -np.inf
    few = np.where(RANDOM.random(length) < 0.02, gaussian, 0).astype(np.float32)
    mixed = gaussian.copy()
    mixed[::3], mixed[1::3] = 0.0, -0.0
    return {
        "gaussian": gaussian,
        "zeros": np.zeros(length, dtype=np.float32),
        "negative zeros": -np.zeros(length, dtype=np.float32),
        "zeros of both signs": mixed,
        "one spike": spike,
        "equal values": np.full(length, 0.1, dtype=np.float32),
        "few values": few,
        "heavy tails": (gaussian / RANDOM.random(length)).astype(np.float32),
        "NaN": with_nan,
        "infinity": with_infinity,
        "subnormal": (gaussian * np.float32(2.0**-140)).astype(np.float32),
        "tiny": (gaussian * np.float32(2.0**-60)).astype(np.float32),
        "huge": (gaussian * np.float32(2.0**100)).astype(np.float32),
        "of all sizes": (gaussian * 2.0 ** RANDOM.uniform(-120, 20, length)).astype(np.float32),
    }


KINDS = list(contents(2))


@pytest.mark.parametrize(("kind", "length"), [*((kind, 700) for kind in KINDS), *((kind, length) for length in (1, 70) for kind in ("gaussian", "negative zeros", "infinity"))])
def test_packets_are_the_hosts_whatever_the_values(kind: str, length: int) -> None:
    gradient = contents(length)[kind]
    encoder = trimwire.cuda.Encoder([length], device=DEVICE)
    encoder.encode([torch.from_numpy(gradient).to(DEVICE)], seed=2**63 + 5, message=2**31 + 9, rank=1023)
    expected = trimwire.encode(gradient, seed=2**63 + 5, message=2**31 + 9, rank=1023)
    assert encoder.to_bytes() == list(expected)
    decoder = trimwire.cuda.Decoder([length], device=DEVICE)
    decoder.put(expected)
    out = torch.empty(length, device=DEVICE)
    decoder.decode([out], seed=2**63 + 5, message=2**31 + 9, rank=1023)
    assert_near(out.cpu().numpy(), trimwire.decode(expected), [row.used for row in decoder.layout.rows])


@pytest.mark.parametrize("length", [2**12, 2**13 + 300])
def test_packets_are_the_hosts_in_long_rows(length: int) -> None:
    for kind in ("gaussian", "few values", "heavy tails") if length == 2**12 else ("heavy tails",):
        gradient = contents(length)[kind]
        encoder = trimwire.cuda.Encoder([length], device=DEVICE)
        encoder.encode([torch.from_numpy(gradient).to(DEVICE)], seed=3, message=4, rank=5)
        expected = trimwire.encode(gradient, seed=3, message=4, rank=5)
        assert encoder.to_bytes() == list(expected), kind
        decoder = trimwire.cuda.Decoder([length], device=DEVICE)
        decoder.put(expected)
        out = torch.empty(length, device=DEVICE)
        decoder.decode([out], seed=3, message=4, rank=5)
        assert trimwire.nmse(out.cpu().numpy(), gradient) < 1e-12


@pytest.mark.parametrize("per_packet", [448, 704, 1_408])
def test_zero_blocks_are_zeros_of_trimmed_packets_and_add_nothing(per_packet: int) -> None:
    gradient = contents(4_000)["gaussian"]
    gradient[:1_024] = gradient[1_984:3_072] = -0.0
    zeros = torch.from_numpy(gradient == 0)
    encoder = trimwire.cuda.Encoder([4_000], coordinates_per_packet=per_packet, device=DEVICE)
    encoder.encode([torch.from_numpy(gradient).to(DEVICE)], seed=2)
    decoder = trimwire.cuda.Decoder([4_000], coordinates_per_packet=per_packet, device=DEVICE)
    # A plane and a mask, of packets that have one in the body, and whole packets.
    for length in (23 + per_packet // 8, None):
        decoder.put([packet[:length] for packet in encoder.to_bytes()])
        out = torch.ones(4_000, device=DEVICE)
        decoder.decode([out], seed=2)
        assert torch.equal((out == 0).cpu(), zeros) and not out.cpu()[zeros].signbit().any()
        total = torch.full((4_000,), 7.0, device=DEVICE)
        decoder.decode([total], accumulate=True, seed=2)
        assert (total.cpu()[zeros] == 7.0).all()


@pytest.mark.parametrize("planes", range(1, 11))
def test_packets_are_the_hosts_for_every_number_of_planes(planes: int) -> None:
    gradient = contents(500)["gaussian"]
    encoder = trimwire.cuda.Encoder([500], planes=planes, device=DEVICE)
    encoder.encode([torch.from_numpy(gradient).to(DEVICE)], seed=1)
    expected = trimwire.encode(gradient, planes=planes, seed=1)
    assert encoder.to_bytes() == list(expected)
    decoder = trimwire.cuda.Decoder([500], planes=planes, device=DEVICE)
    decoder.put(expected)
    out = torch.empty(500, device=DEVICE)
    decoder.decode([out], seed=1)
    assert_near(out.cpu().numpy(), trimwire.decode(expected), [500])


@pytest.mark.parametrize("seed", range(12))
def test_packets_are_the_hosts_on_arbitrary_lengths_and_sizes_of_packets(seed: int) -> None:
    random = np.random.default_rng(seed)
    length, size, planes = int(random.integers(1, 2_500)), 32 * int(random.integers(1, 40)), int(random.integers(1, 11))
    gradient = (random.standard_normal(length) ** 3).astype(np.float32)
    encoder = trimwire.cuda.Encoder([length], planes=planes, coordinates_per_packet=size, device=DEVICE)
    encoder.encode([torch.from_numpy(gradient).to(DEVICE)], message=seed)
    assert encoder.to_bytes() == list(trimwire.encode(gradient, planes=planes, coordinates_per_packet=size, message=seed))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_goes_in_and_comes_out(dtype: Any) -> None:
    gradient = torch.from_numpy(contents(600)["gaussian"]).to(dtype)
    gradient[5:9] = torch.tensor([0.0, -0.0, 6e-8, 1e-40]).to(dtype)
    encoder = trimwire.cuda.Encoder([600], dtype=dtype, planes=9, device=DEVICE)
    encoder.encode([gradient.to(DEVICE)], seed=8)
    expected = trimwire.encode(gradient, planes=9, seed=8)
    assert encoder.to_bytes() == list(expected)
    decoder = trimwire.cuda.Decoder([600], dtype=dtype, planes=9, device=DEVICE)
    decoder.put(expected)
    out = torch.empty(600, dtype=dtype, device=DEVICE)
    decoder.decode([out], seed=8)
    whole = torch.from_numpy(trimwire.decode(expected))
    # What rounds the other way is a neighbour.
    spacing = torch.finfo(dtype).eps * whole.abs() + 1e-4
    assert ((out.cpu().float() - whole).abs() <= spacing).all()
    assert (out.cpu() == whole.to(dtype)).float().mean() > 0.98


@pytest.mark.parametrize(("dtype", "planes"), [(torch.float32, 9), (torch.bfloat16, 10)])
def test_tensors_that_begin_anywhere_are_coded_as_those_that_begin_at_16_bytes(dtype: Any, planes: int) -> None:
    # A long row with padding, of which a thread moves four coordinates at a time where it may.
    length = 4_088
    aligned = torch.from_numpy(contents(length)["gaussian"]).to(dtype).to(DEVICE)
    odd = torch.zeros(length + 1, dtype=dtype, device=DEVICE)[1:]
    odd.copy_(aligned)
    assert aligned.data_ptr() % 16 == 0 and odd.data_ptr() % 16 != 0
    encoder = trimwire.cuda.Encoder([length], dtype=dtype, planes=planes, device=DEVICE)
    packets = encoder.encode([aligned], seed=6).clone()
    assert encoder.to_bytes() == list(trimwire.encode(aligned.cpu(), planes=planes, seed=6))
    assert torch.equal(encoder.encode([odd], seed=6), packets)
    decoder = trimwire.cuda.Decoder([length], dtype=dtype, planes=planes, device=DEVICE)
    decoder.put(encoder.to_bytes())
    results = []
    for out in (torch.zeros_like(aligned), torch.zeros(length + 1, dtype=dtype, device=DEVICE)[1:]):
        decoder.decode([out], seed=6)
        once = out.float().clone()
        decoder.decode([out], accumulate=True, seed=6)
        assert torch.allclose(out.float(), 2 * once, rtol=2**-7)
        results.append((once, out))
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("decoding", ["unbiased", "mmse", "paper"])
def test_any_cut_decodes_to_what_the_host_makes_of_it(decoding: str) -> None:
    gradient = contents(3_000)["heavy tails"]
    packets = trimwire.encode(gradient, seed=1, coordinates_per_packet=96)
    decoder = trimwire.cuda.Decoder([3_000], decoding=decoding, coordinates_per_packet=96, device=DEVICE)
    for _ in range(4):
        arrived = [packet[: RANDOM.integers(20, len(packet) + 1)] if RANDOM.random() < 0.9 else None for packet in packets]
        decoder.put(arrived)
        out = torch.empty(3_000, device=DEVICE)
        decoder.decode([out], seed=1)
        expected = trimwire.decode(packets, [packet for packet in arrived if packet is not None], decoding=decoding)
        assert_near(out.cpu().numpy(), expected, [row.used for row in decoder.layout.rows])


def test_a_message_of_which_nothing_arrived_is_zero() -> None:
    decoder = trimwire.cuda.Decoder([100], device=DEVICE)
    out = torch.ones(100, device=DEVICE)
    decoder.decode([out])
    assert (out == 0).all()


def test_a_damaged_header_is_a_lost_packet() -> None:
    gradient = contents(512)["gaussian"]
    packets = list(trimwire.encode(gradient, seed=1, message=6, rank=2, coordinates_per_packet=64))
    decoder = trimwire.cuda.Decoder([512], coordinates_per_packet=64, device=DEVICE)
    numbers = {"seed": 1, "message": 6, "rank": 2}
    expected = torch.empty(512, device=DEVICE)
    decoder.put([*packets[:3], None, *packets[4:]])
    decoder.decode([expected], **numbers)
    assert (expected != 0).all()
    for byte in range(20):
        damaged = bytearray(packets[3])
        damaged[byte] ^= 1 << int(RANDOM.integers(8))
        decoder.put([*packets[:3], bytes(damaged), *packets[4:]])
        out = torch.empty(512, device=DEVICE)
        decoder.decode([out], **numbers)
        assert torch.equal(out, expected), byte


@pytest.mark.parametrize("other", [{"message": 7}, {"rank": 3}, {"job": 1}])
def test_packets_of_another_message_are_lost(other: dict[str, int]) -> None:
    decoder = trimwire.cuda.Decoder([64], device=DEVICE)
    decoder.put(trimwire.encode(np.ones(64, dtype=np.float32), seed=1, message=6, rank=2))
    out = torch.ones(64, device=DEVICE)
    decoder.decode([out], **{"seed": 1, "message": 6, "rank": 2, **other})
    assert (out == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decoded_values_add_to_a_sum_in_place(dtype: Any) -> None:
    first, second = contents(500)["gaussian"], contents(500)["heavy tails"]
    decoder = trimwire.cuda.Decoder([500], dtype=dtype, device=DEVICE)
    total = torch.from_numpy(first).to(dtype).to(DEVICE)
    decoder.put(trimwire.encode(second, seed=1))
    alone = torch.empty(500, device=DEVICE)
    whole = trimwire.cuda.Decoder([500], device=DEVICE)
    whole.put(trimwire.encode(second, seed=1))
    whole.decode([alone], seed=1)
    before = total.clone()
    decoder.decode([total], accumulate=True, seed=1)
    assert torch.equal(total, (before.float() + alone).to(dtype))


def test_many_tensors_of_many_lengths_are_one_message() -> None:
    lengths = [3, 40, 700, 1, 513, 32, 95]
    tensors = [torch.from_numpy(contents(length)["gaussian"]) for length in lengths]
    encoder = trimwire.cuda.Encoder(lengths, device=DEVICE, coordinates_per_packet=128)
    encoder.encode([tensor.to(DEVICE) for tensor in tensors], seed=1, message=2)
    decoder = trimwire.cuda.Decoder(lengths, device=DEVICE, coordinates_per_packet=128)
    decoder.put(encoder.to_bytes())
    out = [torch.empty(length, device=DEVICE) for length in lengths]
    decoder.decode(out, seed=1, message=2)
    for got, tensor in zip(out, tensors, strict=True):
        assert trimwire.nmse(got.cpu().numpy(), tensor.numpy()) < 1e-12


def test_equal_gradients_make_equal_packets_and_memory_is_taken_once() -> None:
    gradient = torch.from_numpy(contents(900)["gaussian"]).to(DEVICE)
    encoder = trimwire.cuda.Encoder([900], device=DEVICE)
    addresses = [encoder.encode([gradient], message=message).data_ptr() for message in (1, 2, 1)]
    first = trimwire.cuda.Encoder([900], device=DEVICE)
    first.encode([gradient], message=1)
    assert len(set(addresses)) == 1 and encoder.to_bytes() == first.to_bytes()
    encoder.encode([gradient], message=2)
    assert encoder.to_bytes() != first.to_bytes()


def test_rows_are_important_from_a_figure_on() -> None:
    # Three rows of 256, the second is loud, the third not finite; and one of a few coordinates.
    gradient = np.concatenate([RANDOM.standard_normal(256) * scale for scale in (1.0, 9.0, 1.0)] + [np.full(4, 5.0)]).astype(np.float32)
    gradient[600] = np.nan
    encoder = trimwire.cuda.Encoder([772], row_log2=8, device=DEVICE)
    tensor = torch.from_numpy(gradient).to(DEVICE)
    encoder.encode([tensor])
    assert [packet[1] >> 4 & 1 for packet in encoder.to_bytes()] == [1, 1, 1, 1]
    figures = encoder.figures.cpu().numpy()
    assert figures[:2] == pytest.approx([np.mean(gradient[:256] ** 2), np.mean(gradient[256:512] ** 2)], rel=2**-11) and np.isnan(figures[2])
    encoder.important_from.fill_(figures[1])
    encoder.encode([tensor])
    assert [packet[1] >> 4 & 1 for packet in encoder.to_bytes()] == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: trimwire.cuda.Encoder([]), ValueError, "tensors: none"),
        (lambda: trimwire.cuda.Encoder([4, 0]), ValueError, r"tensors\[1\]: empty"),
        (lambda: trimwire.cuda.Encoder([4], planes=11), ValueError, "planes: 11"),
        (lambda: trimwire.cuda.Encoder([4], planes=[]), ValueError, "planes: 0"),
        (lambda: trimwire.cuda.Encoder([4], coordinates_per_packet=33), ValueError, "coordinates_per_packet: 33"),
        (lambda: trimwire.cuda.Encoder([4], row_log2=13), ValueError, "row_log2: 13; .* rows of 2\\^5 to 2\\^12 .*the host's codec has longer ones"),
        (lambda: trimwire.cuda.Decoder([4], row_log2=4), ValueError, "row_log2: 4; a GPU takes rows of 2\\^5 to 2\\^12 coordinates$"),
        (lambda: trimwire.cuda.Encoder([4], layer_classes=[8]), ValueError, r"layer_classes\[0\]: 8"),
        (lambda: trimwire.cuda.Encoder([4], layer_classes=[1, 1]), ValueError, "layer_classes: 2"),
        (lambda: trimwire.cuda.Encoder([4], dtype=torch.float64), TypeError, "float64"),
        (lambda: trimwire.cuda.Encoder([4], device="meta"), ValueError, "device: meta"),
        (lambda: trimwire.cuda.Encoder([4], device=DEVICE).encode([torch.ones(5, device=DEVICE)]), ValueError, r"tensors\[0\]: 5 elements"),
        (lambda: trimwire.cuda.Encoder([4], device=DEVICE).encode([]), ValueError, "tensors: 0"),
        (lambda: trimwire.cuda.Encoder([4], device=DEVICE).encode([torch.ones(4, device=DEVICE).half()]), ValueError, "float16"),
        (lambda: trimwire.cuda.Encoder([4], device=DEVICE).encode([torch.ones(8, device=DEVICE)[::2]]), ValueError, "contiguous"),
        (lambda: trimwire.cuda.Encoder([4], device=DEVICE).set_numbers(rank=1024), ValueError, "rank: 1024"),
        (lambda: trimwire.cuda.Decoder([4], decoding="best", device=DEVICE), ValueError, "decoding: 'best'"),
        (lambda: trimwire.cuda.Decoder([4], device=DEVICE).put([b"", b""]), ValueError, r"packets\[1\]"),
    ],
)
def test_errors_name_the_argument(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.skipif(INTERPRETED, reason="CUDA graphs need a GPU")
def test_a_captured_graph_encodes_and_decodes_with_other_numbers_and_values() -> None:
    gradient = torch.from_numpy(contents(40_000)["gaussian"]).to(DEVICE)
    encoder, decoder = trimwire.cuda.Encoder([40_000]), trimwire.cuda.Decoder([40_000])
    out = torch.empty_like(gradient)
    encoder.encode([gradient], seed=1, message=1)
    decoder.packets.copy_(encoder.packets)
    decoder.lengths.copy_(torch.diff(torch.tensor(encoder.layout.offsets)).int())
    decoder.decode([out], seed=1, message=1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        encoder.run()
        decoder.packets.copy_(encoder.packets)
        decoder.run()
    gradient.mul_(3.0)
    encoder.set_numbers(seed=1, message=2)
    decoder.set_numbers(seed=1, message=2)
    graph.replay()
    assert encoder.to_bytes() == list(trimwire.encode(gradient.cpu(), seed=1, message=2))
    assert trimwire.nmse(out.cpu().numpy(), gradient.cpu().numpy()) < 1e-12


@pytest.mark.skipif(INTERPRETED, reason="streams need a GPU")
def test_a_side_stream_works_beside_others() -> None:
    gradient = torch.from_numpy(contents(300_000)["gaussian"]).to(DEVICE)
    encoder = trimwire.cuda.Encoder([300_000])
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        encoder.encode([gradient], seed=1)
    stream.synchronize()
    assert encoder.to_bytes() == list(trimwire.encode(gradient.cpu(), seed=1))
