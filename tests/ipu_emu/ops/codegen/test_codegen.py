"""Generated kernels: products, convolutions, formulas and rows against numpy and PyTorch; their cache on disk."""

from __future__ import annotations

import math
import os
import pwd
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu.ops.codegen import llvm_compiler, row_passes
from ipu_emu.ops.codegen.compiled_call import relocation
from ipu_emu.ops.codegen.gemm import gemm, gemm_workspace
from ipu_emu.ops.codegen.row_passes import Operand, RowPass, bound_rows
from ipu_emu.ops.core.row_kernels import norm, norm_grad, softmax, softmax_grad
from tests.helpers.mpi_jobs import PROGRAMS
from tests.programs.ipu_emu import one_kernel

SIZES = (1, 2, 7, 8, 9, 16, 31, 32, 33, 40, 64, 97, 100, 128)


def stored(random: Any, shape: tuple[int, ...], turned: bool, dtype: Any) -> np.ndarray:
    """Random values, with the last two axes in either order in memory."""
    values = random.random(shape) - 0.5
    if turned:
        return np.swapaxes(np.ascontiguousarray(np.swapaxes(values, -1, -2), dtype), -1, -2)
    return np.ascontiguousarray(values, dtype)


def name_of(dtype: Any) -> str:
    return str(np.dtype(dtype))


both_types = pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=name_of)
#: Compiling the kernels of new shapes takes most of the time: more shapes with --full.
some_seeds = pytest.mark.parametrize(
    "seed", [pytest.param(seed, id=f"seed-{seed}", marks=[pytest.mark.full] * (seed > 1)) for seed in range(4)]
)


@both_types
@some_seeds
def test_products_of_any_shape_and_order(dtype: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(40):
        lead = tuple(int(n) for n in random.integers(1, 4, random.integers(0, 3)))
        m, k, n = (int(random.choice(SIZES)) for _ in range(3))
        a = stored(random, (*lead, m, k), bool(random.integers(2)), dtype)
        b = stored(random, (*lead, k, n), bool(random.integers(2)), dtype)
        y = stored(random, (*lead, m, n), bool(random.integers(2)), dtype)
        wide = bool(random.integers(2))
        bias = random.random(n if wide else m).astype(np.float32) if random.integers(2) else None
        sizes = gemm_workspace(m, k, n, int(np.prod(lead)), half=dtype == np.float16)
        for call in gemm(a, b, y, [np.full(size, np.nan, np.float32) for size in sizes], bias, wide=wide):
            call()
        want = a.astype(np.float64) @ b.astype(np.float64)
        if bias is not None:
            want += bias if wide else bias[:, None]
        tolerance = 1e-5 if dtype == np.float32 else 2e-3
        np.testing.assert_allclose(y, want, atol=tolerance * np.abs(want).max(), err_msg=f"{lead} {m} {k} {n}")


@pytest.mark.parametrize("n", [1024, 96], ids=["rows-of-a-page", "short-rows"])
@pytest.mark.parametrize("m", [17, 70, 90])
def test_products_in_place_and_in_panels_have_the_same_bits(m: int, n: int) -> None:
    """Depths are added up in their order, also if a few are taken at a time; half of these sizes are in panels."""
    random, k = np.random.default_rng(m), 150
    a, y = random.random((m, k), np.float32), np.full((m, n), np.nan, np.float32)
    matrix = random.random((k, n), np.float32)
    scratch = [np.full(size, np.nan, np.float32) for size in gemm_workspace(m, k, n, 1, half=False)]
    results = []
    for b in (matrix, np.asfortranarray(matrix)):
        for call in gemm(a, b, y, scratch):
            call()
        results.append(y.copy())
    exact = a.astype(np.float64) @ matrix.astype(np.float64)
    np.testing.assert_allclose(results[0], exact, rtol=1e-5)
    if m >= 24:
        np.testing.assert_array_equal(*results)


@both_types
@pytest.mark.parametrize("wide", [True, False], ids=["bias-per-column", "bias-per-row"])
def test_sums_of_no_products_are_the_bias(dtype: Any, wide: bool) -> None:
    a, b = np.zeros((20, 0), dtype), np.zeros((0, 24), dtype)
    bias = np.arange(24 if wide else 20, dtype=np.float32)
    scratch = [np.zeros(size, np.float32) for size in gemm_workspace(20, 0, 24, 1, half=dtype == np.float16)]
    for addend in (None, bias):
        y = np.full((20, 24), 7, dtype)
        for call in gemm(a, b, y, scratch, addend, wide=wide):
            call()
        want = 0 if addend is None else bias if wide else bias[:, None]
        np.testing.assert_array_equal(y, np.broadcast_to(np.asarray(want, dtype), y.shape))


@pytest.mark.parametrize("source", [np.float32, np.float16], ids=name_of)
@pytest.mark.parametrize("target", [np.float32, np.float16], ids=name_of)
def test_copies_change_order_and_type(source: Any, target: Any) -> None:
    values = np.random.default_rng(0).random((3, 5, 7, 33)).astype(source)
    for order in ((0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)):
        out = np.zeros([values.shape[axis] for axis in order], target).transpose(np.argsort(order))
        relocation(values, out)()
        np.testing.assert_array_equal(out, values.astype(target))


FUNCTIONS = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "neg": np.negative,
    "abs": np.abs,
    "relu": lambda x: np.where(x < 0, 0, x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_numpy(name: str) -> None:
    x = np.concatenate([np.linspace(-90, 90, 100_003), np.linspace(-2, 2, 10_001), [0.0, np.inf, -np.inf, np.nan]])
    x = np.abs(x).astype(np.float32) if name == "sqrt" else x.astype(np.float32)
    y = np.zeros_like(x)
    full = Operand("full")
    bound_rows([full, full], [RowPass((("load", 0), (name, 0), ("store", 1, 1)))], [x, y], 1, x.size)()
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(y, want, rtol=5e-7, atol=1e-37)


def over_all_floats(step: int) -> np.ndarray:
    """Every ``step``-th float32 by its bits: denormals, infinities and NaN of many kinds are among them."""
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754943e-38, 88.72283, 88.72284, -103.97]
    )
    bits = np.arange(0, 1 << 32, step, np.uint64).astype(np.uint32)
    dense = np.linspace(-110, 95, 50_001)
    return np.concatenate([bits.view(np.float32), dense.astype(np.float32), special.astype(np.float32)])


def error_function(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


#: The exact function, and the bound in ulp that ops.codegen.functions.float32_math states.
ACCURACY: dict[str, tuple[Any, float]] = {
    "exp": (np.exp, 1.1),
    "log": (np.log, 0.83),
    "tanh": (np.tanh, 1.3),
    "erf": (error_function, 1.1),
}


@pytest.mark.parametrize("name", ACCURACY)
def test_functions_are_as_accurate_as_stated(name: str) -> None:
    exact, bound = ACCURACY[name]
    x = over_all_floats(60_013)
    y = np.zeros_like(x)
    full = Operand("full")
    bound_rows([full, full], [RowPass((("load", 0), (name, 0), ("store", 1, 1)))], [x, y], 1, x.size)()
    with np.errstate(all="ignore"):
        want = exact(x.astype(np.float64))
        rounded = want.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(want))
    np.testing.assert_array_equal(y[np.isinf(rounded)], rounded[np.isinf(rounded)])
    np.testing.assert_array_equal(np.signbit(y[x == 0]), np.signbit(rounded[x == 0]))
    finite = np.isfinite(rounded)
    distance = np.abs(y[finite].astype(np.float64) - want[finite]) / np.spacing(np.abs(rounded[finite]))
    assert distance.max() <= bound


@pytest.mark.parametrize(("name", "bound"), [("sigmoid", 2.5), ("softplus", 3.1)])
def test_functions_of_falling_exponentials_are_as_accurate_as_stated(name: str, bound: float) -> None:
    x = over_all_floats(60_013)
    y = np.zeros_like(x)
    full = Operand("full")
    bound_rows([full, full], [RowPass((("load", 0), (name, 0), ("store", 1, 1)))], [x, y], 1, x.size)()
    exact = x.astype(np.float64)
    with np.errstate(all="ignore"):
        small = np.exp(-np.abs(exact))
        want = np.where(exact < 0, small, 1) / (1 + small)
        want = want if name == "sigmoid" else np.maximum(exact, 0) + np.log1p(small)
        distance = np.abs(y - want) / np.spacing(np.abs(want).astype(np.float32))
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    assert y[x == np.inf] == (1 if name == "sigmoid" else np.inf)
    normal = np.isfinite(x) & (x >= -87.33)
    assert distance[normal].max() <= bound
    assert ((y[x < -87.34] >= 0) & (y[x < -87.34] < 1.2e-38)).all()


def test_gelu_is_as_accurate_as_stated() -> None:
    x = np.concatenate([over_all_floats(60_013), np.linspace(-6.5, 6.5, 100_003, dtype=np.float32)])
    y, slope = np.zeros_like(x), np.zeros_like(x)
    full = Operand("full")
    instructions = (("load", 0), ("gelu_erf", 0), ("store", 1, 1), ("gelu_erf_slope", 0), ("store", 2, 3))
    bound_rows([full] * 3, [RowPass(instructions)], [x, y, slope], 1, x.size)()
    exact = x.astype(np.float64)
    with np.errstate(all="ignore"):
        share = np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)), otypes=[np.float64])(exact)
        steep = share + exact * np.exp(-exact * exact / 2) / math.sqrt(2 * math.pi)
        want, finite = exact * share, np.isfinite(x)
        off = np.abs(y - want) / np.spacing(np.abs(want).astype(np.float32))
    assert np.isnan(y[np.isnan(x)]).all()
    assert y[x == np.inf] == np.inf
    assert off[finite & (x >= -1)].max() <= 3
    assert off[(x < -1) & (x >= -6)].max() <= 64
    assert np.abs(y)[finite & (x < -6)].max() <= 1e-8
    assert np.abs(slope - steep)[finite].max() <= 4e-7


@pytest.mark.torch
@both_types
@pytest.mark.parametrize(
    ("rows", "columns"),
    [(1, 1), (5, 10), (33, 128), (3, 1000)],
)
def test_softmax_and_normalisation_are_those_of_pytorch(dtype: Any, rows: int, columns: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; scripts/test --with-torch adds it")
    random = np.random.default_rng(rows)
    x, g = (random.standard_normal((rows, columns)).astype(dtype) for _ in range(2))
    data, slope = torch.tensor(x.astype(np.float32), requires_grad=True), torch.tensor(g.astype(np.float32))
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == np.float32 else {"rtol": 4e-3, "atol": 4e-3}

    y, dx = np.zeros_like(x), np.zeros_like(x)
    softmax(x, y, rows, columns)()
    softmax_grad(g, y, dx, rows, columns)()
    want = data.softmax(1)
    want.backward(slope)
    np.testing.assert_allclose(y, want.detach(), **tolerance)
    np.testing.assert_allclose(dx, data.grad, **tolerance)

    if columns == 1:
        return
    for per, count in (("row", rows), ("column", columns)):
        scale, bias = (random.random(count).astype(dtype) for _ in range(2))
        mean, variance, inverse = (np.zeros(rows, np.float32) for _ in range(3))
        means = {"mean": mean, "inverse": inverse}
        norm(per, rows, columns, 1e-5, x=x, scale=scale, bias=bias, y=y, variance=variance, **means)()
        dscale, dbias = (np.zeros(count, np.float32) for _ in range(2))
        norm_grad(per, rows, columns, g=g, x=x, scale=scale, dx=dx, dscale=dscale, dbias=dbias, **means)()
        shape = (-1, 1) if per == "row" else (1, -1)
        s, b = (torch.tensor(v.astype(np.float32), requires_grad=True) for v in (scale, bias))
        data.grad = None
        want = torch.nn.functional.layer_norm(data, (columns,)) * s.view(shape) + b.view(shape)
        want.backward(slope)
        for ours, theirs in ((y, want.detach()), (dx, data.grad), (dscale, s.grad), (dbias, b.grad)):
            np.testing.assert_allclose(ours, theirs, **tolerance)


PROGRAM = PROGRAMS / "ipu_emu/one_kernel.py"


def compiled_in_a_process(folder: str) -> int:
    """The number of kernels that a process compiles."""
    environment = os.environ | {"IPU_EMU_KERNEL_CACHE": folder}
    done = subprocess.run(
        [sys.executable, PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=250
    )
    count, total = done.stdout.split()
    assert float(total) == 30
    return int(count)


def compiled_anew(folder: str, said: str = "", operator: str = "add") -> int:
    """The same in this process, with all kernels forgotten; check that it warns of ``said`` once."""
    compiled: list[str] = []
    parse = llvm_compiler.llvm.parse_assembly

    def counted(text: str) -> Any:
        compiled.append(text)
        return parse(text)

    library = llvm_compiler.Library()
    for memo in (llvm_compiler.writable, llvm_compiler.warn_once):
        memo.cache_clear()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        patch.setenv("IPU_EMU_KERNEL_CACHE", folder)
        patch.setattr(llvm_compiler.llvm, "parse_assembly", counted)
        patch.setattr(llvm_compiler.Library, "shared", lambda: library)
        patch.setattr(row_passes, "row_kernel", row_passes.row_kernel.__wrapped__)
        assert one_kernel.combined(operator).sum() == {"add": 30, "mul": 55}[operator]
    assert [said in str(warning.message) for warning in warned] == [True] * bool(said)
    return len(compiled)


def test_kernels_are_compiled_once_on_a_machine_and_never_from_a_torn_file(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    assert compiled_in_a_process(str(folder)) == 1
    assert compiled_anew(str(folder)) == 0
    (kernel,) = folder.iterdir()
    content = kernel.read_bytes()
    kernel.write_bytes(content[:-7])
    assert compiled_anew(str(folder)) == 1
    assert kernel.read_bytes() == content
    (tmp_path / "file").write_bytes(b"")
    assert compiled_anew(str(tmp_path / "file" / "kernels")) == 1
    assert compiled_anew("") == 1


def test_a_kernel_with_the_name_of_another_is_not_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    assert compiled_anew(str(folder)) == 1
    (kernel,) = folder.iterdir()
    content = kernel.read_bytes()
    assert compiled_anew(str(folder), operator="mul") == 1
    (other,) = set(folder.iterdir()) - {kernel}
    other.rename(kernel)
    assert compiled_anew(str(folder)) == 1
    assert kernel.read_bytes() == content


def test_a_user_without_a_home_has_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "IPU_EMU_KERNEL_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.chdir(tmp_path)
    llvm_compiler.writable.cache_clear()
    assert llvm_compiler.kernel_folder() is None
    assert list(tmp_path.iterdir()) == []  # least of all one that is called ~


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to others")
def test_code_that_others_may_have_written_is_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    assert compiled_anew(str(folder)) == 1
    (kernel,) = folder.iterdir()
    assert kernel.stat().st_mode & 0o777 == 0o600
    for spoil in (lambda: os.chown(kernel, 65534, -1), lambda: kernel.chmod(0o666)):
        spoil()
        assert compiled_anew(str(folder), "a compiled kernel is not used") == 1
        assert (kernel.stat().st_uid, kernel.stat().st_mode & 0o777) == (0, 0o600)
    (tmp_path / "mine").write_bytes(kernel.read_bytes())
    kernel.unlink()
    kernel.symlink_to(tmp_path / "mine")
    assert compiled_anew(str(folder)) == 1
    assert not kernel.is_symlink()
    for owner, mode in ((65534, 0o755), (0, 0o1777)):
        os.chown(folder, owner, -1)
        folder.chmod(mode)
        before = kernel.stat()
        assert compiled_anew(str(folder), "compiled kernels are not cached in") == 1
        assert kernel.stat() == before


def test_an_unknown_processor_is_refused_with_those_that_are_known() -> None:
    environment = os.environ | {"IPU_EMU_PROCESSOR": "pentium"}
    command = [sys.executable, "-m", "ipu_emu", "clock", "mlp"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 2
    assert "IPU_EMU_PROCESSOR=pentium" in run.stderr
    assert "x86-64-v3" in run.stderr
    assert "Traceback" not in run.stderr
