# SPDX-License-Identifier: Apache-2.0
"""Promises of compiled kernels, without a GPU: what they are made of, and that `python -m trimwire.cuda warm` makes those that a job launches.

    TRITON_INTERPRET=1 python -m pytest python/tests/test_cuda_warm.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import pytest

import trimwire
from kernels import skip_unless_they_run

skip_unless_they_run()

from trimwire.cuda import __main__ as command
from trimwire import _native
from trimwire.cuda import _rows


def compiling(script: str) -> str:
    """What a script prints that runs without the interpreter: the compiler and its assembler come with Triton."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment, capture_output=True, text=True, timeout=1_800)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2_000:]
    return ran.stdout


COMPILED = """
    import sys
    from trimwire.cuda import __main__ as command
    from trimwire.cuda._compiled import Variant
    few = [Variant(work, "float32", 1_408) for work in ("encode", "decode")]
    command.variants_of = lambda dtypes, sizes: few
    for _ in range(2):
        command.main(["warm", "--capability", "8.0"])
    for variant in few:
        for line in variant.compiled(80).asm["ptx"].splitlines():
            # The decoder's lines are fused on purpose: its values are not binding to the bit.
            if ("fma" in line and variant.work == "encode") or ".ftz" in line:
                sys.exit(f"{variant}: {line}")
"""


def test_warm_fills_the_cache_and_compiled_encoders_fuse_no_product_with_a_sum_and_all_keep_subnormals() -> None:
    said = compiling(COMPILED).splitlines()
    assert len(said) == 6 and said[3:5] == [f"8.0: {work}, float32, 1408 coordinates a packet: there" for work in ("encode", "decode")]
    assert said[5].startswith("2 kernels in ") and ": 0 compiled in " in said[5] and said[5].endswith(", 2 were there")


#: All that ranks launch, on the processor, as far as the question to Triton's cache; and all that is warmed.
LAUNCHED = """
    from contextlib import nullcontext, suppress
    from types import SimpleNamespace
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.driver import driver
    from trimwire.cuda import Decoder, Encoder, _codec, _compiled, _decode, _encode

    KERNELS = (_encode.encode_rows, _decode.decode_rows)
    target = GPUTarget("cuda", 90, 32)
    asked = set()

    def compile(source, target, options, **_):
        asked.add((source.name, source.hash(), make_backend(target).parse_options(dict(options)).hash()))
        raise NotImplementedError

    def all_asked(launches):
        asked.clear()
        for kernel in KERNELS:
            # Which device is current, launches and warming say for themselves.
            for device in (0, 90):
                kernel.device_caches[device]
            kernel.compile = compile
        for launch in launches:
            with suppress(NotImplementedError):
                launch()
        return set(asked)

    # In place of a GPU.
    here = SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0, get_current_stream=lambda device: 0)
    driver.set_active(here)
    _codec.device_of, _codec.guard = torch.device, lambda device: nullcontext()
    torch.cuda.get_device_properties = lambda device: SimpleNamespace(multi_processor_count=132)

    for dtype in ("float32", "bfloat16"):
        for size in (448, 1_408):
            launches, kept = [], []
            # A bucket of rows of all lengths, one of a short row, and what a group that begins holds against the host's.
            for length in (100_000, 500):
                for kind in {getattr(torch, dtype), torch.float32}:
                    plan = {"dtype": kind, "coordinates_per_packet": size, "device": "cpu"}
                    encoder, decoder, tensor = Encoder([length], **plan), Decoder([length], **plan), torch.zeros(length, dtype=kind)
                    encoder.bind([tensor])
                    decoder.bind([tensor])
                    kept.append(tensor)
                    launches += [encoder.run, decoder.run]
                    if kind == torch.float32:
                        launches.append(lambda decoder=decoder: decoder.run(accumulate=True))
            check = Encoder([1 << 12], device="cpu", planes=8)
            check.bind([torch.zeros(1 << 12)])
            launched = all_asked([*launches, check.run])
            warmed = all_asked([lambda one=one: one.compiled(90) for one in _compiled.variants_of([dtype], [size])])
            driver.set_active(here)
            print(dtype, size, len(launched), launched == warmed)
"""


def test_what_is_warmed_is_what_ranks_ask_tritons_cache_for_and_nothing_else() -> None:
    assert compiling(LAUNCHED).splitlines() == ["float32 448 4 True", "float32 1408 3 True", "bfloat16 448 6 True", "bfloat16 1408 5 True"]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("mtu", [576, 1_500, 9_000])
def test_packets_of_a_job_are_as_long_as_warm_takes_them(mtu: int, sealed: bool) -> None:
    with trimwire.Group("127.0.0.1", paths=1) as group:
        group.connect(0, [group.address], seed=5, mtu=mtu, seal_key=b"0123456789abcdef" if sealed else None)
        for planes in range(1, 11):
            size = _native.coordinates_per_packet(planes, mtu, sealed)
            assert group._native_group().coordinates_per_packet(planes) == size
            # IPv6's and UDP's headers, and the tags behind the signs, the bit-planes and the end.
            filled = max(planes, 8)
            longest = [40 + 8 + _rows.packet_bytes(n, filled) + sealed * 8 * (2 + (filled > 8)) for n in (size, size + 32)]
            assert longest[0] <= mtu < longest[1] or size == 8_160


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "COMMAND"),
        (["warn"], "choose from '?warm'?"),
        (["warm", "--dtype", "float64"], "float64.*choose from '?float32'?, '?float16'?, '?bfloat16'?"),
        (["warm", "--planes", "11"], "--planes.*11"),
        (["warm", "--mtu", "100"], "--mtu: '100'; valid are 576 to 9216"),
        (["warm", "--capability", "sm_90"], "--capability: 'sm_90'; valid are 8.0 and later, as 9.0"),
        (["warm", "--capability", "7.5"], "--capability: '7.5'; valid are 8.0"),
    ],
)
def test_wrong_options_are_refused_with_those_that_are_valid(given: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(given)
    assert refused.value.code == 2
    assert re.search(text, capsys.readouterr().err)
