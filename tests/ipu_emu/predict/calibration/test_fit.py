"""Fit: the shipped calibration follows from the shipped rows, and predicts rows that are left out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ipu_emu.errors import EmulatorError
from ipu_emu.hardware import System
from ipu_emu.predict.calibration.fit import fitted, profile_of, step_seconds
from ipu_emu.predict.calibration.profile import PARAMETERS, SHIPPED_ROWS, Profile, load, shipped
from ipu_emu.predict.calibration.rows import Row, read_rows
from ipu_emu.predict.job import Job
from ipu_emu.predict.model import StepModel, placed

ROWS = read_rows(SHIPPED_ROWS.read_text(), "rows.csv")


@pytest.fixture(scope="module")
def fitted_profile() -> Profile:
    return profile_of(ROWS, "shipped")


def test_the_shipped_profile_is_that_of_the_shipped_rows(fitted_profile: Profile) -> None:
    assert np.allclose(fitted_profile.values(), shipped().values(), rtol=1e-4)
    assert np.allclose(fitted_profile.covariance, shipped().covariance, rtol=1e-2, atol=1e-8)
    assert fitted_profile.spread == pytest.approx(shipped().spread, rel=1e-3)


def test_errors_of_the_fit_and_of_rows_that_were_left_out(fitted_profile: Profile) -> None:
    errors = np.abs(list(fitted_profile.residuals.values()))
    assert len(errors) == 13
    assert len(fitted_profile.parameters) == 6
    assert errors.mean() <= 0.015
    assert errors.max() <= 0.045
    assert fitted_profile.leave_one_out["mean"] <= 0.035
    assert fitted_profile.leave_one_out["most"] <= 0.08
    assert len(fitted_profile.leave_one_out["errors"]) == 13


def test_without_the_only_row_of_several_domains_gateways_are_nominal(fitted_profile: Profile) -> None:
    assert "gateway_share" in fitted_profile.leave_one_out["needs"]["ResNet-50 v1.1 POD128"]
    others = fitted([row for row in ROWS if "POD128" not in row.name])
    assert dict(zip(PARAMETERS, others.values, strict=True))["gateway_share"] == 1


def test_rows_of_one_host_do_not_determine_waits() -> None:
    fit = fitted([row for row in ROWS if row.job.host_count == 1])
    known = dict(zip(PARAMETERS, fit.identified, strict=True))
    assert not known["host_wait"]
    assert dict(zip(PARAMETERS, fit.values, strict=True))["host_wait"] == pytest.approx(0.01)


def test_shares_are_shares(fitted_profile: Profile) -> None:
    assert all(parameter.identified for parameter in fitted_profile.parameters)
    assert all(
        0 < parameter.value <= 1 for parameter in fitted_profile.parameters if parameter.name.endswith("share")
    )


def test_undetermined_parameters_keep_their_nominal_value() -> None:
    """Rows of one domain do not determine GW-Links, rows of ResNet do not determine products."""
    fit = fitted([row for row in ROWS if row.job.model == "resnet50" and row.job.replicas < 128])
    known = dict(zip(PARAMETERS, fit.identified, strict=True))
    values = dict(zip(PARAMETERS, fit.values, strict=True))
    assert known["convolution_share"]
    for name in ("gateway_share", "product_share"):
        assert not known[name]
        assert values[name] == 1


def test_known_parameters_are_found_again() -> None:
    true = np.array([0.4, 0.5, 0.6, 0.1, 0.4, 0.8])
    rows = [replace(row, seconds=step_seconds(placed(row.job), true)) for row in ROWS]
    fit = fitted(rows)
    assert np.all(np.abs(np.log(fit.values / true)) < np.sqrt(np.diag(fit.covariance)))
    assert np.allclose(fit.values[:3], true[:3], rtol=0.01)


def test_copies_count_once() -> None:
    """A row that is repeated five times has the weight of one."""
    assert np.allclose(fitted([*ROWS, *[ROWS[2]] * 4]).values, fitted(ROWS).values, rtol=1e-6)


def test_a_throughput_is_a_measurement_too() -> None:
    text = "model,replicas,batch,accumulation,samples_per_second\nresnet50,16,20,10,29543\n"
    (row,) = read_rows(text, "rows.csv")
    assert row.seconds == pytest.approx(0.10832, rel=1e-3)
    assert row.job.system.ipus == 16


def test_rows_of_throughputs_and_layers() -> None:
    bert = next(row for row in ROWS if row.job.ipus == 4)
    assert bert.job.layers == ((3, 3), (7, 7), (7, 7), (7, 7))
    assert bert.job.global_batch == 3072
    assert bert.job.off_chip == bert.job.shared == ("states",)


LINE = "model,replicas,batch,accumulation,step_seconds\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model,batch\n", "has no column replicas"),
        (LINE, "has no rows"),
        (LINE.replace("model,", "model,colour,"), "unknown column colour"),
        ("model,replicas,batch,accumulation\n", "has no measurement"),
        (LINE + "resnet50,16,twenty,10,0.1\n", "line 2: batch 'twenty' is not valid"),
        (LINE + "resnet50,16,20,10,0\n", "line 2: step_seconds '0' is not valid"),
        (LINE + "resnet50,16,20,10,\n", "line 2: there is no measurement"),
        (LINE + "resnet50,16,20,,0.1\n", "line 2: accumulation is empty"),
        (LINE + "alexnet,16,20,10,0.1\n", "line 2: there is no network 'alexnet'"),
        (LINE + "resnet50,-1,20,10,0.1\n", "line 2: replicas -1 is not possible"),
        (LINE + "resnet50,16,20,10,0.1,7\n", "line 2: more cells than the first line has columns"),
        (LINE.replace("batch", "model"), "has the column model 2 times"),
        (LINE + "resnet50,\u0661\u0666,20,10,0.1\n", "line 2: replicas '\u0661\u0666' is not valid"),
        (LINE + "resnet50,1_6,20,10,0.1\n", "line 2: replicas '1_6' is not valid"),
        (LINE + "resnet50,16,20,10,\u0661\n", "line 2: step_seconds '\u0661' is not valid"),
        (
            LINE + "resnet50,16,20,10,1e-300\n",
            "'1e-300' is not valid; give a number for which a step takes 1e-09",
        ),
        (LINE.replace("step_", "samples_per_").replace("seconds", "second") + "resnet50,16,20,10,1e300\n", "1e+09"),
    ],
)
def test_mistakes_in_rows(text: str, said: str) -> None:
    with pytest.raises(EmulatorError, match=re.escape(said)):
        read_rows(text, "rows.csv")


SHIPPED: dict[str, Any] = shipped().dump()


def with_covariance(row: int, column: int, value: float) -> dict[str, Any]:
    lines = [list(line) for line in SHIPPED["covariance"]]
    lines[row][column] = value
    return SHIPPED | {"covariance": lines}


def with_value(value: float) -> dict[str, Any]:
    return SHIPPED | {"parameters": [{**SHIPPED["parameters"][0], "value": value}, *SHIPPED["parameters"][1:]]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it is not JSON"),
        ("\xff", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ([1], "it is not JSON object"),
        ({}, "its schema is not 'ipu-emu calibration 1'"),
        ({"schema": ["ipu-emu calibration 1"]}, "its schema is not"),
        ({"schema": SHIPPED["schema"]}, "it has no rows"),
        (SHIPPED | {"colour": 1}, "it has an unknown part 'colour'"),
        (SHIPPED | {"rows": "13"}, "rows are not as calibrate writes them"),
        (SHIPPED | {"spread": True}, "spread is not as"),
        (SHIPPED | {"spread": float("nan")}, "spread is not as"),
        (SHIPPED | {"models": "resnet50"}, "models are not as"),
        (SHIPPED | {"residuals": [1]}, "residuals are not as"),
        (SHIPPED | {"leave_one_out": 3}, "leave_one_out is not as"),
        (SHIPPED | {"covariance": [[1, 2]]}, "covariance is not as"),
        (SHIPPED | {"covariance": [[float("inf")] * 6] * 6}, "covariance is not as"),
        (SHIPPED | {"spread": -1}, "spread is not as"),
        (with_covariance(1, 0, 1e30), "its covariance and the values and sigmas of its parameters disagree"),
        (with_covariance(0, 0, -1), "disagree"),
        (with_covariance(0, 1, 0.5), "disagree"),
        (with_covariance(0, 0, 1.0), "disagree"),
        (with_value(5), "disagree"),
        (with_value(1e-300), "disagree"),
        (SHIPPED | {"parameters": [1]}, "parameters are not as"),
        (SHIPPED | {"parameters": [{"x": 1}] * 6}, "parameters are not as"),
        (with_value(-1), "not as"),
        (
            SHIPPED | {"parameters": [{**SHIPPED["parameters"][0], "value": "1"}, *SHIPPED["parameters"][1:]]},
            "not as",
        ),
    ],
)
def test_files_that_are_no_calibration(tmp_path: Path, content: Any, said: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="latin-1")
    with pytest.raises(EmulatorError) as raised:
        load(path)
    text = str(raised.value)
    assert text.startswith(f"--calibration {path} is not a calibration: ")
    assert said in text
    assert text.endswith(f"; make one with ipu-emu calibrate ROWS.csv -o {path}")


def test_a_missing_calibration_is_reported() -> None:
    with pytest.raises(EmulatorError, match="cannot be read"):
        load("/nonexistent/profile.json")


def test_equal_rows_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(model: StepModel, values: NDArray[np.float64]) -> float:
        calls.append(1)
        return step_seconds(model, values)

    monkeypatch.setattr("ipu_emu.predict.calibration.fit.step_seconds", counted)
    line = "resnet50,16,20,10,0.12\n"
    profile_of(read_rows(LINE + line, "one.csv"), "one")
    alone = len(calls)
    assert profile_of(read_rows(LINE + 2000 * line, "many.csv"), "many").rows == 2000
    assert len(calls) == 2 * alone


def test_one_row_is_enough_to_correct_one_share() -> None:
    row = Row("one", Job("resnet50", System.named("pod16"), replicas=16, batch=20, accumulation=10), 0.12)
    profile = profile_of([row], "one.csv")
    assert step_seconds(placed(row.job), profile.values()) == pytest.approx(0.12, rel=0.02)
    assert not profile.leave_one_out
