"""Run PyTorch's own distributed tests, which are in its wheel, with one back end, and write the outcome of each.

    python torch_distributed_test.py BACKEND RANKS FILE.json [NAME ...]

Conditions of those tests that name gloo name gcl too, so that gcl runs what gloo runs; nothing else of them changes.
Ranks are forked, since a process that imports PyTorch takes seconds to start. NAME: only tests whose names begin so.
"""

import importlib.util
import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from types import ModuleType

REPLACED = [
    ('BACKEND != "gloo"', 'BACKEND not in ("gloo", "gcl")'),
    ('require_backend_is_available({"gloo"})', 'require_backend_is_available({"gloo", "gcl"})'),
    # which PyTorch allows only for gloo, by name
    ("dist.monitored_barrier(", "BARRIER("),
    ('BACKEND == "mpi" or BACKEND == "gloo"', 'BACKEND in ("mpi", "gloo", "gcl")'),
    ('BACKEND != "mpi", "Only MPI supports', 'BACKEND not in ("mpi", "gcl"), "Only MPI supports'),
    ("in [dist.Backend.NCCL, dist.Backend.GLOO]", 'in [dist.Backend.NCCL, dist.Backend.GLOO, "gcl"]'),
]
FEATURES = ("ddp", "gpu", "subgroup", "plugin")


def distributed_test() -> ModuleType:
    """PyTorch's module of tests, for the back end in the environment."""
    from torch.testing._internal.common_distributed import DistTestCases

    for feature in FEATURES:
        DistTestCases.backend_feature[feature].add("gcl")
    spec = importlib.util.find_spec("torch.testing._internal.distributed.distributed_test")
    source = Path(spec.origin).read_text()
    for old, new in REPLACED:
        source = source.replace(old, new)
    module = ModuleType(spec.name)
    module.__file__ = spec.origin
    sys.modules[spec.name] = module
    if os.environ["BACKEND"] == "gcl":
        from gcl.torch import monitored_barrier
    else:
        from torch.distributed import monitored_barrier
    module.__dict__["BARRIER"] = monitored_barrier
    exec(compile(source, spec.origin, "exec"), module.__dict__)
    return module


class Outcomes(unittest.TestResult):
    """The outcome of each test, and its seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[str, tuple[str, float, str]] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._since = time.monotonic()

    def _add(self, test: unittest.TestCase, outcome: str, text: str = "") -> None:
        name = test.id().rpartition(".")[2]
        self.table[name] = (outcome, round(time.monotonic() - self._since, 2), text)
        print(f"{outcome:7} {name} {self.table[name][1]}", flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._add(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._add(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        self._add(test, "failed", self._exc_info_to_string(err, test))

    def addError(self, test: unittest.TestCase, err: object) -> None:
        self._add(test, "failed", self._exc_info_to_string(err, test))


def main(backend: str, ranks: str, file: str, *names: str) -> None:
    """Run the tests and write {name: [outcome, seconds, text]}."""
    folder = tempfile.mkdtemp()
    os.environ.update(BACKEND=backend, WORLD_SIZE=ranks, TEMP_DIR=folder, OMP_NUM_THREADS="1")
    os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "60")
    if backend == "gcl":
        import gcl.torch  # noqa: F401  registers it
    import torch.multiprocessing

    module = distributed_test()

    class TestDistributed(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    globals()["TestDistributed"] = TestDistributed
    loader, outcomes = unittest.TestLoader(), Outcomes()
    suite = [
        TestDistributed(name)
        for name in loader.getTestCaseNames(TestDistributed)
        if not names or name.startswith(names)
    ]
    unittest.TestSuite(suite).run(outcomes)
    Path(file).write_text(json.dumps(outcomes.table, indent=1))
    counts = [outcome for outcome, *_ in outcomes.table.values()]
    print({outcome: counts.count(outcome) for outcome in sorted(set(counts))})


if __name__ == "__main__":
    main(*sys.argv[1:])
