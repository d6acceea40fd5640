"""Versions of TensorFlow: those that are supported, the errors for others, and what is set before the import."""

import os
import sys

import pytest

from ipu_emu.tensorflow.install import versions


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Simulate that nothing is imported yet, and that Keras 2 is installed."""
    monkeypatch.setattr(versions, "version", lambda name: "2.0")
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    return monkeypatch


@pytest.mark.parametrize(("number", "level"), [("2.18.0", "1"), ("2.20.1", "1"), ("2.21.0", None)])
def test_an_old_version_does_not_log_the_errors_that_are_raised(
    fresh: pytest.MonkeyPatch, number: str, level: str | None
) -> None:
    fresh.setattr(versions, "installed_version", lambda: number)
    versions.check_versions()
    assert os.environ.get("TF_CPP_MIN_LOG_LEVEL") == level
    assert os.environ["TF_USE_LEGACY_KERAS"] == "1"


def test_the_log_level_of_the_user_is_kept(fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(versions, "installed_version", lambda: "2.18.0")
    fresh.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    versions.check_versions()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (None, "needs TensorFlow, which is not installed; run: pip install tensorflow-cpu=="),
        ("2.17.1", r"works with TensorFlow 2\.18 to 2\.21, found 2\.17\.1; run: pip install"),
        ("2.22.0", r"works with TensorFlow 2\.18 to 2\.21, found 2\.22\.0; run: pip install"),
    ],
)
def test_another_version_is_refused(fresh: pytest.MonkeyPatch, number: str | None, message: str) -> None:
    fresh.setattr(versions, "installed_version", lambda: number)
    with pytest.raises(ModuleNotFoundError, match=message):
        versions.check_versions()
