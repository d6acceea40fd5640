"""Sources of kernels: they call neither BLAS nor libm, nor functions of numpy that depend on the processor.

So do the sources of what runs kernels, of collectives, and of what makes data and initial weights. Uses that were
reviewed are listed, with the reason why their results are defined.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.numerics.processor_dependent_calls import calls_in

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *(f"ipu_emu/{name}" for name in ("compiler", "engine", "graph", "hostio", "models", "onnx", "ops")),
    *("gcl/core", "gcl/kernels", "gcl/literal", "gcl/reduce", "gcl/scheduling/program", "gcl/transport"),
)

#: Reviewed uses, a line each (file: use, how often if not once), by the reason why they are not a matter of the
#: processor.
REVIEWED = {
    "a product of integers, which is exact": """
        ipu_emu/ops/codegen/gemm.py: np.matmul
        ipu_emu/ops/elementwise/powers.py: np.power
        ipu_emu/ops/products/quantization.py: @, 3 times""",
    "running sums, which numpy adds in their order": """
        ipu_emu/compiler/placement/balance.py: np.cumsum""",
    "arithmetic of integers, most of them sizes": """
        ipu_emu/compiler/lowering/lowered_step.py: self.sum
        ipu_emu/engine/replicas/local_replicas.py: np.cumsum
        ipu_emu/hostio/data/sample_structure.py: np.prod
        ipu_emu/ops/codegen/functions/float64_math.py: (-1) ** (n // 2), 2 times
        ipu_emu/ops/image/grid_sample.py: _TAPS[str(node.attribute('mode', 'linear'))] ** (node.input(0).rank - 2)
        ipu_emu/ops/normalisation/batch_norm.py: np.prod
        ipu_emu/ops/products/determinant.py: (n - k) ** 2
        ipu_emu/ops/products/quantization.py: np.matmul
        ipu_emu/ops/products/spline_convolution.py: (degree + 1) ** places.shape[1]
        ipu_emu/ops/reduction/sorting.py: np.prod
        gcl/core/coalescing.py: np.cumsum
        gcl/core/coalescing.py: np.prod""",
    "a sum of integers or truth values, which is exact": """
        ipu_emu/graph/narrowing.py: np.isinf(array).sum
        ipu_emu/graph/narrowing.py: np.isinf(result).sum
        ipu_emu/ops/core/axis_sums.py: np.add.reduce
        ipu_emu/ops/random/distributions.py: below.sum""",
    "in ascending order, as each result needs the one before": """
        ipu_emu/ops/data_movement/padding.py: np.add.at
        ipu_emu/ops/indexing/gather_scatter.py: np.add.at, 2 times
        ipu_emu/ops/random/distributions.py: np.add.accumulate
        ipu_emu/ops/reduction/axis_reductions.py: np.cumprod, 2 times
        ipu_emu/ops/reduction/sorting.py: np.add.accumulate, 2 times
        ipu_emu/ops/reduction/sorting.py: np.multiply.accumulate""",
    "one product for each result": """
        ipu_emu/ops/pooling/lp_pooling.py: np.multiply.outer
        ipu_emu/ops/pooling/max_average_pooling.py: np.outer""",
    "recorded by the numpy tracer, which multiplies by gemm and sums by axis_sum": """
        ipu_emu/ops/core/numpy_tracer.py: np.matmul
        ipu_emu/ops/recurrence/recurrent_cells.py: @, 13 times
        ipu_emu/ops/recurrence/recurrent_cells.py: by_peepholes.sum
        ipu_emu/ops/recurrence/recurrent_cells.py: recurrent.sum""",
    "a generator whose integers are defined, of which functions of the emulator make normal numbers": """
        ipu_emu/hostio/data/data_modes.py: np.random, 4 times
        ipu_emu/models/network.py: np.random
        ipu_emu/ops/random/normal_numbers.py: np.random""",
    "a generator of integers, permutations and uniform numbers, or one for functions of a user": """
        ipu_emu/hostio/data/preparation.py: np.random, 2 times
        ipu_emu/hostio/data/sample_order.py: np.random, 2 times
        ipu_emu/hostio/step_runner.py: np.random""",
    "text on a terminal": """
        ipu_emu/ops/control/abort_and_print.py: 10.0 ** (-(self.digits - 1))""",
}


def test_the_sources_of_kernels_call_only_functions_with_defined_results() -> None:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    counts = Counter(f"{path.relative_to(ROOT)}: {use}" for path in files for use in calls_in(path))
    uses = {use if count == 1 else f"{use}, {count} times" for use, count in counts.items()}
    reviewed = {line.strip() for lines in REVIEWED.values() for line in lines.strip().splitlines()}
    assert uses - reviewed == set(), "use a kernel with a defined order, or review these"
    assert reviewed - uses == set(), "these are no longer used"


@pytest.mark.parametrize(
    ("source", "use"),
    [
        ("y = np.matmul(a, b)", "np.matmul"),
        ("y = np.vecdot(a, b)", "np.vecdot"),
        ("y = a @ b", "@"),
        ("a @= b", "@"),
        ("step = partial(np.add.reduce, x)", "np.add.reduce"),
        ("np.add.at(x, i, g)", "np.add.at"),
        ("y = np.linalg.det(x)", "np.linalg"),
        ("y = losses.mean()", "losses.mean"),
        ("y = random.standard_normal(3)", "random.standard_normal"),
        ("y = x ** p", "x ** p"),
        ("x **= 2", "x **= 2"),
        ("from numpy import exp", "np.exp"),
        ("from math import ceil, erf", "math.erf"),
        ("y = math.log(x)", "math.log"),
        ('k.intrinsic("exp", x)', "llvm.exp"),
        ('k.intrinsic("fmuladd", a, b, c)', "llvm.fmuladd"),
        ('y = (x * 2.0).intrinsic("log")', "llvm.log"),
    ],
)
def test_a_new_use_is_noticed(source: str, use: str, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(source)
    assert list(calls_in(tmp_path / "kernel.py")) == [use]


@pytest.mark.parametrize(
    "source",
    [
        "np.add(x, y, out)",
        "np.maximum.reduce(x)",
        "np.sqrt(x)",
        "y = 2**31 + 10**6",
        "y = 2.0**n",
        "total = sum(sizes)",
        'k.intrinsic("fma", a, b, c)',
        "from math import prod, sqrt, fsum",
        "y = operands.index(x)",
    ],
)
def test_exact_functions_are_free(source: str, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(source)
    assert list(calls_in(tmp_path / "kernel.py")) == []
