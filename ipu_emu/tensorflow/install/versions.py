"""Versions: the versions of TensorFlow that are supported, and the error if it is missing or unsuitable."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

#: TensorFlow's versions from the first (included) to the last (excluded) that are known to work.
OLDEST, TOO_NEW = (2, 18), (2, 22)
#: Names that only Keras 3 has.
_OF_KERAS_3 = frozenset(
    {"distribution", "dtype_policies", "device", "KerasTensor", "ops", "quantizers", "random", "remat", "tree"}
)
_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"
#: The first version that does not log every error of a session's run, with the traceback of the emulator's function.
_QUIET = (2, 21)
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_HOW = "pip install tensorflow-cpu==2.21.0 && pip install --no-deps tf_keras==2.21.0"


def installed_version() -> str | None:
    """Return the version of the installed TensorFlow, or None."""
    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def check_versions() -> None:
    """Raise ModuleNotFoundError unless a suitable TensorFlow is installed; choose Keras 2 if both are installed."""
    installed = installed_version()
    if installed is None:
        raise ModuleNotFoundError(
            f"tensorflow.python.ipu needs TensorFlow, which is not installed; run: {_HOW}", name="tensorflow"
        )
    numbers = tuple(int(part) for part in installed.split(".")[:2])
    if not OLDEST <= numbers < TOO_NEW:
        oldest, newest = f"{OLDEST[0]}.{OLDEST[1]}", f"{TOO_NEW[0]}.{TOO_NEW[1] - 1}"
        raise ModuleNotFoundError(
            f"tensorflow.python.ipu works with TensorFlow {oldest} to {newest}, found {installed}; run: {_HOW}",
            name="tensorflow",
        )
    if numbers < _QUIET:
        os.environ.setdefault(_LOG_LEVEL, "1")  # no informational messages
    _choose_keras()


def _choose_keras() -> None:
    """Make ``tf.keras`` Keras 2; raise ModuleNotFoundError if it is absent or Keras 3 is loaded."""
    try:
        version("tf_keras")
    except PackageNotFoundError:
        raise ModuleNotFoundError(
            f"tensorflow.python.ipu needs Keras 2 (tf_keras), which is not installed; run: {_HOW}", name="tf_keras"
        ) from None
    if "tensorflow" in sys.modules and os.environ.get(_LEGACY_KERAS) not in ("1", "true", "True"):
        raise ModuleNotFoundError(
            f"tensorflow was imported before the emulator, and so with Keras 3; set {_LEGACY_KERAS}=1, or import "
            "ipu_emu.tensorflow.install first",
            name="tensorflow",
        )
    os.environ[_LEGACY_KERAS] = "1"


def check_keras(name: str) -> None:
    """Raise ModuleNotFoundError for a module or a name that only Keras 3 has."""
    if name.split(".")[0] in _OF_KERAS_3:
        raise ModuleNotFoundError(
            f"keras.{name} belongs to Keras 3, but models for the IPU use Keras 2; use "
            f"TensorFlow's own function instead of keras.{name}, or leave it to the data set",
            name=f"keras.{name}",
        )


def first_version() -> None:
    """Make ``import tensorflow`` the API of TensorFlow 1, without the behaviour of TensorFlow 2."""
    check_versions()
    tensorflow = import_module("tensorflow")
    old = import_module("tensorflow.compat.v1")
    old.disable_v2_behavior()
    for name in ("python", "__path__", "compiler", "core"):
        if not hasattr(old, name) or name == "__path__":
            setattr(old, name, getattr(tensorflow, name, None))
    sys.modules["tensorflow"] = old
