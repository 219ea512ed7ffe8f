# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of torch.distributed, with this backend as theirs: those that come with an installed PyTorch, or files of its repository.

    python python/pytorch_tests.py                      # all that apply
    python python/pytorch_tests.py test_all_reduce      # those whose names begin so
    BACKEND=gloo python python/pytorch_tests.py         # the same with Gloo: what fails there, too, is no news
    AS_GLOO=1 python python/pytorch_tests.py            # this backend under Gloo's name, for tests that ask for it (from PyTorch 2.15 on)
    AS_GLOO=1 python python/pytorch_tests.py pytorch/test/distributed/test_c10d_gloo.py test_allreduce

Needs `pip install expecttest hypothesis`. Gates that name Gloo are opened for 'trimwire'. Says how many seconds each took. Ends with 1 where a test fails that is not in KNOWN.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
import types
import unittest
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

AS_GLOO = os.environ.get("AS_GLOO") == "1"
os.environ["BACKEND"] = "gloo" if AS_GLOO else os.environ.get("BACKEND", "trimwire")
os.environ.setdefault("WORLD_SIZE", "4")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="trimwire-pytorch-tests-"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYTORCH_PRINT_REPRO_ON_FAILURE", "0")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402

import trimwire.torch  # noqa: E402

BACKEND = os.environ["BACKEND"]
for gated in common_distributed.DistTestCases.backend_feature.values():
    if "gloo" in gated:
        gated.add(BACKEND)

if AS_GLOO:
    dist.Backend._plugins["GLOO"] = dist.Backend._plugins["TRIMWIRE"]
    trimwire.torch._backend._others = set
    _gloo = dist.ProcessGroupGloo

    class AsGloo:
        """Makes groups of this backend for those who make one of Gloo's."""

        _Options, create_device, create_default_device = _gloo._Options, _gloo.create_device, _gloo.create_default_device

        def __new__(cls, store: dist.Store, rank: int, world: int, options: Any = None, **_: Any) -> Any:
            timeout = getattr(options, "_timeout", dist.default_pg_timeout)
            about = {"store": store, "group_rank": rank, "group_size": world, "timeout": timeout, "group_id": "as gloo", "global_ranks_in_group": []}
            return trimwire.torch._backend._create(types.SimpleNamespace(**about), None)

    dist.ProcessGroupGloo = AsGloo
    trimwire.torch._backend.ProcessGroupTrimwire.create_device = staticmethod(_gloo.create_device)

from torch.testing._internal.distributed import distributed_test  # noqa: E402

#: Tests that fail, by patterns of their names, and why that is so.
KNOWN = {
    "test_backend*_group": "asks for one of the names of PyTorch's own backends",
    "test_nccl_high_priority_stream": "likewise",
    "test_init_process_group_for_all_backends": "likewise",
    "test_isend_*_profiler": "asks for the profiler's ranges that Gloo makes, gloo:send",
    "test_*sparse_*": "sparse tensors do not travel",
    "test_monitored_barrier*": "asks for Gloo's wording",
    "test_barrier_timeout*": "likewise",
    "test_*_checks": "asks for Gloo's wording and kinds of errors, of calls that PyTorch's functions do not make",
    "test_allreduce_basics*": "gives several tensors of a rank to one call of a group, which PyTorch's functions do not",
    "test_allgather_basics*": "likewise",
    "test_allgather_noncontiguous_input": "likewise",
    "test_broadcast_basics*": "likewise",
    "test_gloo_barrier_device_ids": "asks that device_ids be refused",
    "test_coalescing_manager*": "NCCL's",
}


def _fork(self: Any) -> None:
    # Copies of this process, which has imported PyTorch already.
    self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """PyTorch's."""

    def setUp(self) -> None:
        super().setUp()
        _fork(self)


def tests_of(files: list[str]) -> list[unittest.TestCase]:
    """Those of files, or those of the installed PyTorch."""
    loader = unittest.TestLoader()
    if not files:
        return [Tests(name) for name in loader.getTestCaseNames(Tests)]
    common_distributed.MultiProcessTestCase._spawn_processes = _fork
    suites = []
    for file in files:
        sys.path.insert(0, str(Path(file).parent))
        suites.append(loader.loadTestsFromModule(importlib.import_module(Path(file).stem)))
    return [test for suite in suites for of_class in suite for test in of_class]


def main() -> int:
    """Runs them, and tells."""
    files = [word for word in sys.argv[1:] if word.endswith(".py")]
    prefixes = tuple(word for word in sys.argv[1:] if word not in files) or ("",)
    # Tests of files have as many ranks as they like, and tell others so.
    where = ", ".join(Path(file).name for file in files) or f"{os.environ['WORLD_SIZE']} ranks"
    counts = {"pass": 0, "fail": 0, "known": 0, "skip": 0}
    for test in tests_of(files):
        name = test.id().rsplit(".", 1)[-1]
        if not name.startswith(prefixes):
            continue
        result, began = unittest.TestResult(), time.monotonic()
        unittest.TestSuite([test]).run(result)
        failures = result.failures + result.errors
        said = "skip" if result.skipped else "pass" if not failures else "known" if any(fnmatch(name, known) for known in KNOWN) else "fail"
        counts[said] += 1
        if said != "skip":
            print(f"{said:5} {time.monotonic() - began:6.1f} s  {test.id() if files else name}", flush=True)
        for _, text in failures:
            lines = text.strip().splitlines()
            print("      " + next((line for line in reversed(lines) if "Error: " in line), lines[-1])[:300], flush=True)
    print(f"{'trimwire as ' if AS_GLOO else ''}{BACKEND}, PyTorch {torch.__version__}, {where}: {counts}")
    return 1 if counts["fail"] else 0


if __name__ == "__main__":
    sys.exit(main())
