"""Promises of sparse messages on a GPU, against the vectors of the wire format and against the host's sparse codec.

    python -m pytest python/tests/test_cuda_sparse.py                         on a GPU
    TRITON_INTERPRET=1 python -m pytest python/tests/test_cuda_sparse.py      without: Triton's interpreter runs the same kernels on the processor
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trimwire
from kernels import DEVICE, INTERPRETED, skip_unless_they_run
from trimwire import _native, sparse

skip_unless_they_run()

import torch

import trimwire.cuda

FIXTURES = Path(os.environ.get("TRIMWIRE_VECTORS", Path(__file__).parents[2] / "host-encoder/tests/vectors.json")).parent
VECTORS = json.loads((FIXTURES / "sparse_vectors.json").read_text())
CASES = {case["name"]: case for case in VECTORS["cases"]}


def bits_of(digits: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(digits), dtype=">u4").astype("<u4").view(np.float32)


def index_of(packet: bytes) -> int:
    return int.from_bytes(packet[8:11], "big") & 0xFFFFF


def in_slots(packets: Sequence[bytes], slots: int) -> list[bytes | None]:
    there: list[bytes | None] = [None] * slots
    for packet in packets:
        there[index_of(packet)] = packet
    return there


class Host:
    """The native codec, in one place for encoding and decoding several tensors."""

    def __init__(self, tensors: Sequence[tuple[int, int]], **numbers: int) -> None:
        self.agreement = sparse._Agreement(tuple(tensors), **numbers)
        self.length = sum(length for length, _ in tensors)

    def encode(self, gradient: Any, k: int, **choice: Any) -> list[bytes]:
        return _native.sparse_encode(gradient, k, sparse._Choice(**choice), self.agreement)

    def decode(self, packets: Sequence[bytes | None], into: np.ndarray | None = None) -> tuple[np.ndarray, int]:
        """The sum, and how many packets were believed."""
        out = np.zeros(self.length, dtype=np.float32) if into is None else into.copy()
        full, cut, _, _ = _native.sparse_decode_into([packet for packet in packets if packet is not None], out, into is not None, self.agreement)
        return out, full + cut


def same(got: np.ndarray, expected: np.ndarray) -> bool:
    return got.tobytes() == expected.tobytes() or bool((np.isnan(got) & np.isnan(expected)).all())


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["gradient"] is not None])
def test_packets_are_the_vectors_to_the_byte(name: str) -> None:
    case = CASES[name]
    lengths = [tensor["coordinates"] for tensor in case["tensors"]]
    tensors = [torch.from_numpy(part.copy()).to(DEVICE) for part in np.split(bits_of(case["gradient"]), np.cumsum(lengths)[:-1])]
    encoder = trimwire.cuda.SparseEncoder(
        lengths,
        case["k"],
        layer_classes=[tensor["layer_class"] for tensor in case["tensors"]],
        fraction_bits=case["fraction_bits"],
        packet_bytes=case["packet_bytes"],
        important=case["important"],
        device=DEVICE,
    )
    encoder.encode(tensors, **VECTORS["envelope"])
    assert encoder.to_bytes() == [bytes.fromhex(packet) for packet in case["packets"]]


@pytest.mark.parametrize("name", list(CASES))
def test_any_prefix_of_the_vectors_holds_their_entries(name: str) -> None:
    case = CASES[name]
    packets = [bytes.fromhex(packet) for packet in case["packets"]]
    # Tensors of 2^32 coordinates need not be there to be told of.
    decoder = trimwire.cuda.SparseDecoder(
        [tensor["coordinates"] for tensor in case["tensors"]],
        len(packets),
        layer_classes=[tensor["layer_class"] for tensor in case["tensors"]],
        packet_bytes=case["packet_bytes"],
        device=DEVICE,
    )
    for receiver in case["decoded"]:
        arrived = [None if length is None else packet[:length] for packet, length in zip(packets, receiver["lengths"], strict=True)]
        for whole in receiver["then"]:
            arrived[whole] = packets[whole]
        decoder.put(arrived)
        got = decoder.entries(**VECTORS["envelope"])
        if receiver["entries"] is None:
            assert got is None
            continue
        assert got is not None
        entries = sorted(zip(got[0].tolist(), got[1].cpu().numpy().view(np.uint32).tolist(), strict=True))
        assert entries == [(place, int(value, 16)) for place, value in receiver["entries"]]


@pytest.mark.parametrize("nth", range(len(VECTORS["refused"]["packets"])))
def test_what_the_page_refuses_is_believed_as_little_as_by_the_host(nth: int) -> None:
    refused = VECTORS["refused"]
    tensors = [(tensor["coordinates"], tensor["layer_class"]) for tensor in refused["tensors"]]
    one = refused["packets"][nth]
    packet, after = bytes.fromhex(one["packet"]), [bytes.fromhex(packet) for packet in one["after"]]
    index = index_of(packet) if len(packet) >= 11 else 0
    if index >= 8 or index in map(index_of, after):
        pytest.skip("copies of a packet, and packets that there cannot be, are seen to by who receives them")
    arrived = in_slots(after, 8)
    arrived[index] = packet
    expected, believed = Host(tensors, **VECTORS["envelope"]).decode(arrived)
    decoder = trimwire.cuda.SparseDecoder([length for length, _ in tensors], 8, layer_classes=[layer_class for _, layer_class in tensors], device=DEVICE)
    decoder.put(arrived)
    out = [torch.ones(length, device=DEVICE) for length, _ in tensors]
    decoder.decode(out, **VECTORS["envelope"])
    assert same(torch.cat(out).cpu().numpy(), expected), one["why"]
    assert int(decoder.summary[0]) == believed


def contents(length: int, seed: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    gaussian = random.standard_normal(length).astype(np.float32)
    with_nan, with_infinity = gaussian.copy(), gaussian.copy()
    with_nan[length // 2], with_infinity[-1] = np.nan, -np.inf
    return {
        "gaussian": gaussian,
        "zeros": np.where(random.random(length) < 0.5, 0.0, -0.0).astype(np.float32),
        "a few": np.where(random.random(length) < 0.05, gaussian, 0).astype(np.float32),
        "ties of both signs": random.choice(np.array([-1.0, 1.0, 2.0, 0.5], dtype=np.float32), length),
        "equal": np.full(length, -0.25, dtype=np.float32),
        "heavy tails": (gaussian / random.random(length)).astype(np.float32),
        "subnormal": (gaussian * np.float32(2.0**-140)).astype(np.float32),
        "of all sizes": (gaussian * 2.0 ** random.uniform(-120, 120, length)).astype(np.float32),
        "the largest f32s": (np.sign(gaussian) * np.finfo(np.float32).max).astype(np.float32),
        "NaN": with_nan,
        "infinity": with_infinity,
    }


@pytest.mark.parametrize("kind", list(contents(2)))
def test_packets_are_the_hosts_whatever_the_values_and_however_many(kind: str) -> None:
    gradient = contents(600)[kind]
    host = Host([(600, 2)], job=5, rank=9, message=77)
    for k, fraction_bits, size in ((1, 4, 1452), (7, 0, 64), (250, 4, 150), (600, 23, 1452), (599, 7, 300)):
        options = {"fraction_bits": fraction_bits, "packet_bytes": size}
        encoder = trimwire.cuda.SparseEncoder([600], k, layer_classes=[2], device=DEVICE, **options)
        encoder.encode([torch.from_numpy(gradient).to(DEVICE)], job=5, rank=9, message=77)
        expected = host.encode(gradient, k, **options)
        assert encoder.to_bytes() == expected, (k, options)
        decoder = trimwire.cuda.SparseDecoder([600], len(expected), layer_classes=[2], packet_bytes=size, device=DEVICE)
        decoder.put(expected)
        out = torch.ones(600, device=DEVICE)
        decoder.decode([out], job=5, rank=9, message=77)
        assert same(out.cpu().numpy(), host.decode(expected)[0]), (k, options)


def test_packets_are_the_hosts_where_they_are_many_and_sorted_by_the_larger_network() -> None:
    # Packets of more than 2,048 entries of some kind, and of fewer; several of each.
    gradient = contents(9_000)["gaussian"]
    for k, fraction_bits, size in ((9_000, 0, 1452), (9_000, 4, 9_000), (900, 4, 1452)):
        encoder = trimwire.cuda.SparseEncoder([9_000], k, fraction_bits=fraction_bits, packet_bytes=size, device=DEVICE)
        encoder.encode([torch.from_numpy(gradient).to(DEVICE)])
        assert encoder.to_bytes() == Host([(9_000, 0)]).encode(gradient, k, fraction_bits=fraction_bits, packet_bytes=size)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_goes_in_and_comes_out(dtype: Any) -> None:
    gradient = torch.from_numpy(contents(500)["heavy tails"]).clamp(-6e4, 6e4).to(dtype)
    gradient[5:9] = torch.tensor([0.0, -0.0, 6e-8, 1e-40]).to(dtype)
    for k, fraction_bits in ((60, 4), (500, 10)):
        encoder = trimwire.cuda.SparseEncoder([500], k, dtype=dtype, fraction_bits=fraction_bits, device=DEVICE)
        encoder.encode([gradient.to(DEVICE)], message=1)
        packets = encoder.to_bytes()
        host = Host([(500, 0)], message=1)
        assert packets == host.encode(gradient, k, fraction_bits=fraction_bits)
        decoder = trimwire.cuda.SparseDecoder([500], len(packets), dtype=dtype, device=DEVICE)
        decoder.put(packets)
        out = torch.ones(500, dtype=dtype, device=DEVICE)
        decoder.decode([out], message=1)
        assert torch.equal(out.cpu(), torch.from_numpy(host.decode(packets)[0]).to(dtype))


@pytest.mark.parametrize("seed", range(6))
def test_any_cut_of_any_message_decodes_to_what_the_host_makes_of_it_and_adds_up(seed: int) -> None:
    random = np.random.default_rng(seed)
    tensors = [(int(random.integers(1, 400)), int(random.integers(0, 3))) for _ in range(int(random.integers(1, 6)))]
    lengths = [length for length, _ in tensors]
    host = Host(tensors, rank=3, message=seed)
    gradient = contents(host.length, seed)["heavy tails"]
    options = {"fraction_bits": int(random.integers(0, 24)), "packet_bytes": int(random.integers(64, 500))}
    k = int(random.integers(1, host.length + 1))
    parts = [torch.from_numpy(part.copy()).to(DEVICE) for part in np.split(gradient, np.cumsum(lengths)[:-1])]
    classes = [layer_class for _, layer_class in tensors]
    encoder = trimwire.cuda.SparseEncoder(lengths, k, layer_classes=classes, device=DEVICE, **options)
    encoder.encode(parts, rank=3, message=seed)
    packets = encoder.to_bytes()
    assert packets == host.encode(gradient, k, **options)
    decoder = trimwire.cuda.SparseDecoder(lengths, len(packets), layer_classes=classes, packet_bytes=options["packet_bytes"], device=DEVICE)
    for _ in range(3):
        arrived = [packet[: random.integers(0, len(packet) + 1)] if random.random() < 0.9 else None for packet in packets]
        decoder.put(arrived)
        got = [part.clone() for part in parts]
        decoder.decode(got, accumulate=True, rank=3, message=seed)
        expected, believed = host.decode(arrived, gradient)
        assert same(torch.cat(got).cpu().numpy(), expected)
        assert int(decoder.summary[0]) == believed


@pytest.mark.parametrize("seed", range(4))
def test_damage_behind_the_check_is_believed_as_little_as_by_the_host(seed: int) -> None:
    # Packets that nobody encoded: any byte is another, and the check is right again.
    sys.path.insert(0, str(FIXTURES / "reference"))
    from wire import check

    random = np.random.default_rng(100 + seed)
    host = Host([(300, 0), (300, 1)], rank=1, message=4)
    gradient = contents(600, seed)["gaussian"]
    packets = host.encode(gradient, 150, packet_bytes=90)
    assert len(packets) > 3
    decoder = trimwire.cuda.SparseDecoder([300, 300], len(packets), layer_classes=[0, 1], packet_bytes=90, device=DEVICE)
    refused = 0
    for _ in range(8):
        arrived: list[bytes | None] = list(packets)
        for _ in range(int(random.integers(1, 3))):
            nth = int(random.integers(len(packets)))
            damaged = bytearray(packets[nth])
            # Most bits of the header are refused one by one; those behind decide what entries are.
            at = int(random.integers(32, len(damaged))) if random.random() < 0.6 else int(random.choice([9, 10, 11, 13, 14, 15, 16, 17, *range(20, 32)]))
            damaged[at] ^= 1 << int(random.integers(8))
            damaged[18:20] = check(bytes(damaged[:18])).to_bytes(2, "big")
            arrived[nth] = bytes(damaged) if index_of(damaged) == nth else None
        expected, believed = host.decode(arrived)
        refused += believed < len([packet for packet in arrived if packet is not None])
        decoder.put(arrived)
        out = [torch.ones(300, device=DEVICE), torch.ones(300, device=DEVICE)]
        decoder.decode(out, rank=1, message=4)
        assert same(torch.cat(out).cpu().numpy(), expected)
        assert int(decoder.summary[0]) == believed
    assert refused > 1


def test_what_is_not_sent_is_left_for_the_next_step() -> None:
    gradient = contents(800)["heavy tails"]
    encoder = trimwire.cuda.SparseEncoder([500, 300], 90, device=DEVICE)
    parts = [torch.from_numpy(part.copy()).to(DEVICE) for part in np.split(gradient, [500])]
    encoder.encode(parts)
    residual = [part.clone() for part in parts]
    encoder.take_sent_from(residual)
    sent = Host([(800, 0)]).decode(encoder.to_bytes())[0]
    assert np.array_equal(torch.cat(residual).cpu().numpy(), gradient - sent)
    # The tensors that are encoded are still the gradient's.
    assert encoder.encode(parts).data_ptr() == encoder.packets.data_ptr() and torch.equal(torch.cat(parts).cpu(), torch.from_numpy(gradient))
    # A message that is not finite takes nothing.
    parts[0][3] = float("nan")
    encoder.encode(parts)
    before = [part.clone() for part in residual]
    encoder.take_sent_from(residual)
    assert all(torch.equal(a, b) for a, b in zip(before, residual, strict=True))


def test_a_second_message_has_nothing_of_the_first() -> None:
    first, second = contents(700)["gaussian"], contents(700)["a few"]
    encoder = trimwire.cuda.SparseEncoder([700], 400, packet_bytes=128, device=DEVICE)
    decoder = trimwire.cuda.SparseDecoder([700], 64, packet_bytes=128, device=DEVICE)
    for message, gradient in enumerate((first, second, first)):
        encoder.encode([torch.from_numpy(gradient).to(DEVICE)], message=message)
        host = Host([(700, 0)], message=message)
        packets = encoder.to_bytes()
        assert packets == host.encode(gradient, 400, packet_bytes=128)
        decoder.put(packets)
        out = torch.ones(700, device=DEVICE)
        decoder.decode([out], message=message)
        assert same(out.cpu().numpy(), host.decode(packets)[0])


def test_strict_encoding_and_too_little_room_are_reported() -> None:
    gradient = torch.from_numpy(contents(400)["infinity"]).to(DEVICE)
    encoder = trimwire.cuda.SparseEncoder([400], 5, strict=True, device=DEVICE)
    encoder.encode([gradient])
    with pytest.raises(ValueError, match="coordinate 399 is -inf"):
        encoder.check()
    encoder = trimwire.cuda.SparseEncoder([400], 300, packet_bytes=64, packets=2, device=DEVICE)
    encoder.encode([torch.from_numpy(contents(400)["gaussian"]).to(DEVICE)])
    with pytest.raises(ValueError, match="packets: 2"):
        encoder.to_bytes()


def test_there_is_room_for_the_packets_of_any_message() -> None:
    # Far apart, and of all sizes: gaps are as long as they can be.
    random = np.random.default_rng(8)
    for k, size, fraction_bits in ((50, 64, 23), (200, 1452, 23), (30, 64, 0)):
        gradient = np.zeros(60_000, dtype=np.float32)
        places = random.choice(60_000, k, replace=False)
        gradient[places] = 2.0 ** random.uniform(-149, 127, k) * random.choice([-1, 1], k)
        encoder = trimwire.cuda.SparseEncoder([60_000], k, packet_bytes=size, fraction_bits=fraction_bits, device=DEVICE)
        expected = Host([(60_000, 0)]).encode(gradient, k, packet_bytes=size, fraction_bits=fraction_bits)
        assert len(expected) <= encoder.capacity
        encoder.encode([torch.from_numpy(gradient).to(DEVICE)])
        assert encoder.to_bytes() == expected


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: trimwire.cuda.SparseEncoder([], 1), ValueError, "tensors: none"),
        (lambda: trimwire.cuda.SparseEncoder([4, 0], 1), ValueError, r"tensors\[1\]: empty"),
        (lambda: trimwire.cuda.SparseEncoder([2**32, 1], 1), ValueError, "at most 2\\^32"),
        (lambda: trimwire.cuda.SparseEncoder([4], 0), ValueError, "k: 0; valid are 1 to 4"),
        (lambda: trimwire.cuda.SparseEncoder([4], 5), ValueError, "k: 5"),
        (lambda: trimwire.cuda.SparseEncoder([4], 1, fraction_bits=24), ValueError, "fraction_bits: 24"),
        (lambda: trimwire.cuda.SparseEncoder([4], 1, packet_bytes=63), ValueError, "packet_bytes: 63"),
        (lambda: trimwire.cuda.SparseEncoder([4], 1, packets=0), ValueError, "packets: 0"),
        (lambda: trimwire.cuda.SparseEncoder([4], 1, layer_classes=[8]), ValueError, r"layer_classes\[0\]: 8"),
        (lambda: trimwire.cuda.SparseEncoder([4], 1, layer_classes=[1, 1]), ValueError, "layer_classes: 2"),
        (lambda: trimwire.cuda.SparseEncoder([4], 1, dtype=torch.float64), TypeError, "float64"),
        (lambda: trimwire.cuda.SparseEncoder([4], 1, device="meta"), ValueError, "device: meta"),
        (lambda: trimwire.cuda.SparseEncoder([4], 1, device=DEVICE).run(), RuntimeError, "none are bound"),
        (lambda: trimwire.cuda.SparseEncoder([4], 1, device=DEVICE).encode([torch.ones(5, device=DEVICE)]), ValueError, r"tensors\[0\]: 5 elements"),
        (lambda: trimwire.cuda.SparseEncoder([4], 1, device=DEVICE).encode([torch.ones(8, device=DEVICE)[::2]]), ValueError, "contiguous"),
        (lambda: trimwire.cuda.SparseEncoder([4], 1, device=DEVICE).set_numbers(job=64), ValueError, "job: 64"),
        (lambda: trimwire.cuda.SparseDecoder([4], 0), ValueError, "packets: 0"),
        (lambda: trimwire.cuda.SparseDecoder([4], 1, device=DEVICE).put([b"", b""]), ValueError, r"packets\[1\]"),
    ],
)
def test_errors_name_the_argument(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


COMPILED = """
    import sys
    from trimwire.cuda import _sparse_decode, _sparse_encode, _sparse_select
    from trimwire.cuda._compiled import compiled_sparse
    network = {"SMALL": 8, "SMALL_LOG2": 3, "LARGE": 16, "LARGE_LOG2": 4}
    for kernel, constants in (
        (_sparse_select.count, {"CHUNK": 1024}),
        (_sparse_select.take, {"CHUNK": 1024}),
        (_sparse_encode.share_out, network),
        (_sparse_encode.write_heads, {"LANES": 32}),
        (_sparse_decode.read_heads, {"LANES": 32}),
        (_sparse_decode.read_entries, {}),
        (_sparse_decode.accept_packets, {}),
        (_sparse_decode.put_entries, {"KIND": 2, "HOW": 1, "CHUNK": 1024}),
    ):
        for line in compiled_sparse(kernel, constants, 80).asm["ptx"].splitlines():
            if "fma" in line or ".ftz" in line:
                sys.exit(f"{kernel.__name__}: {line}")
    print("compiled")
"""


def test_all_kernels_compile_for_a_gpu_and_fuse_no_product_with_a_sum() -> None:
    # Needs no GPU: the compiler and its assembler come with Triton.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(COMPILED)], env=environment, capture_output=True, text=True, timeout=1_800)
    assert ran.returncode == 0 and "compiled" in ran.stdout, ran.stdout + ran.stderr[-2_000:]


@pytest.mark.skipif(INTERPRETED, reason="CUDA graphs need a GPU")
def test_a_captured_graph_encodes_and_decodes_with_other_numbers_and_values() -> None:
    gradient = torch.from_numpy(contents(40_000)["gaussian"]).to(DEVICE)
    encoder = trimwire.cuda.SparseEncoder([40_000], 400)
    decoder = trimwire.cuda.SparseDecoder([40_000], encoder.capacity)
    out = torch.empty_like(gradient)
    encoder.encode([gradient], message=1)
    decoder.decode([out], message=1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        encoder.run()
        decoder.arrived[: encoder.packets.numel()].copy_(encoder.packets)
        decoder.sizes.copy_(encoder.sizes)
        decoder.run()
    gradient.copy_(torch.from_numpy(contents(40_000)["heavy tails"]))
    encoder.set_numbers(message=2)
    decoder.set_numbers(message=2)
    graph.replay()
    host = Host([(40_000, 0)], message=2)
    expected = host.encode(gradient.cpu(), 400)
    assert encoder.to_bytes() == expected
    assert same(out.cpu().numpy(), host.decode(expected)[0])
