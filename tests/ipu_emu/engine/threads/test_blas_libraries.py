"""BLAS libraries: those of this process are found once, and set to one thread by each engine."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from ipu_emu import popart
from ipu_emu.engine.threads import blas_libraries as module
from ipu_emu.engine.threads.blas_libraries import blas_libraries
from tests.ipu_emu.helpers.sessions import infer


def run() -> None:
    """An engine that multiplies matrices."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo(np.float32, [2, 2]))
    y = builder.aiOnnx.matmul([x, x])
    infer(builder, popart.DataFlow(1, [y]), {x: np.eye(2, dtype=np.float32)})


def test_they_are_looked_for_again_when_a_module_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    search = module.ThreadpoolController
    monkeypatch.setattr(module, "ThreadpoolController", lambda: searches.append(1) or search())
    blas_libraries.cache_clear()
    run()
    run()
    assert len(searches) == 1
    monkeypatch.setitem(sys.modules, "another_blas", ModuleType("another_blas"))
    run()
    assert len(searches) == 2


def test_each_engine_sets_them_to_one_thread() -> None:
    run()
    for library in blas_libraries(len(sys.modules)):
        library.set_num_threads(2)
    run()
    assert {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"} == {1}
