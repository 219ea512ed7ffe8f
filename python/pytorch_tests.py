# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own tests of torch.distributed, with this backend as theirs: those that come with an installed PyTorch.

    python python/pytorch_tests.py                      # all that apply
    python python/pytorch_tests.py test_all_reduce      # those whose names begin so
    BACKEND=gloo python python/pytorch_tests.py         # the same with Gloo: what fails there, too, is no news
    AS_GLOO=1 python python/pytorch_tests.py            # this backend under Gloo's name, for tests that ask for it (from PyTorch 2.15 on)

Needs `pip install expecttest hypothesis`. Gates that name Gloo are opened for 'trimwire'. Ends with 1 where a test fails that is not in KNOWN.
"""

from __future__ import annotations

import os
import sys
import tempfile
import unittest

AS_GLOO = os.environ.get("AS_GLOO") == "1"
os.environ["BACKEND"] = "gloo" if AS_GLOO else os.environ.get("BACKEND", "trimwire")
os.environ.setdefault("WORLD_SIZE", "4")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="trimwire-pytorch-tests-"))
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch.multiprocessing  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402

import trimwire.torch  # noqa: E402

BACKEND = os.environ["BACKEND"]
for gated in common_distributed.DistTestCases.backend_feature.values():
    if "gloo" in gated:
        gated.add(BACKEND)

if AS_GLOO:
    import torch.distributed as dist

    dist.Backend._plugins["GLOO"] = dist.Backend._plugins["TRIMWIRE"]
    trimwire.torch._backend._others = set

from torch.testing._internal.distributed import distributed_test  # noqa: E402

#: Tests that fail, and why that is so.
KNOWN = {
    "test_backend_full_group": "asks for one of the names of PyTorch's own backends",
    "test_backend_group": "likewise",
    "test_nccl_high_priority_stream": "likewise",
    "test_isend_autograd_profiler": "asks for the profiler's ranges that Gloo makes, gloo:send",
    "test_isend_torch_profiler": "likewise",
    "test_sparse_all_reduce_sum": "sparse tensors do not travel",
    "test_monitored_barrier": "asks for Gloo's wording",
    "test_barrier_timeout": "asks for Gloo's wording",
    "test_coalescing_manager": "NCCL's",
}


class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """PyTorch's."""

    def setUp(self) -> None:
        super().setUp()
        # Copies of this process, which has imported PyTorch already.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def main() -> int:
    """Runs them, and tells."""
    names = [name for name in unittest.TestLoader().getTestCaseNames(Tests) if not sys.argv[1:] or any(name.startswith(prefix) for prefix in sys.argv[1:])]
    counts = {"pass": 0, "fail": 0, "known": 0, "skip": 0}
    for name in names:
        result = unittest.TestResult()
        unittest.TestSuite([Tests(name)]).run(result)
        failures = result.failures + result.errors
        said = "skip" if result.skipped else "pass" if not failures else "known" if any(name.startswith(known) for known in KNOWN) else "fail"
        counts[said] += 1
        if said != "skip":
            print(f"{said:5} {name}", flush=True)
        for _, text in failures:
            print("      " + text.strip().splitlines()[-1][:300], flush=True)
    print(f"{'trimwire as ' if AS_GLOO else ''}{BACKEND}, PyTorch {torch.__version__}, {os.environ['WORLD_SIZE']} ranks: {counts}")
    return 1 if counts["fail"] else 0


if __name__ == "__main__":
    sys.exit(main())
