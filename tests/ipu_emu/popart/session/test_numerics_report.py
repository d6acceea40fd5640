"""NumericsReport: relative errors of the changes of weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ipu_emu import popart


def model(path: Path, **weights: np.ndarray) -> str:
    builder = popart.Builder()
    for name, value in weights.items():
        builder.addInitializedInputTensor(value, name)
    builder.saveModelProto(str(path))
    return str(path)


def test_relative_errors(tmp_path: Path) -> None:
    a, b = np.array([1.0, 2.0], np.float32), np.array([1.0, 4.0], np.float32)
    files = [model(tmp_path / f"{i}.onnx", w=w) for i, w in enumerate((np.zeros(2, np.float32), a, 0 * b, b))]
    report = popart.NumericsReport(*files)
    expected = 4 / (np.sqrt(5) * np.sqrt(17) + 1e-8)
    assert report.getRelativeErrors() == {"w": pytest.approx(expected, rel=1e-6)}
    assert report.report("w").startswith("|dA - dB|^2 / (|dA||dB| + 1e-8)  = 0.43")
    assert report.fullReport().count("\n") == 0
    with pytest.raises(popart.popart_exception, match=r"^No report available for v$"):
        report.report("v")


def test_models_must_have_the_same_initializers(tmp_path: Path) -> None:
    first = model(tmp_path / "one.onnx", w=np.zeros(2, np.float32))
    two = model(tmp_path / "two.onnx", w=np.zeros(2, np.float32), v=np.zeros(2, np.float32))
    with pytest.raises(popart.popart_exception, match=r"^GraphProtos have different number of initializers$"):
        popart.NumericsReport(first, first, first, two)
