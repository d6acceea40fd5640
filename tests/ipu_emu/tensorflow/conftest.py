"""TensorFlow: absent in most environments and slow to import, so it is imported once per worker, on demand."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

_NEEDS = ("tensorflow", "tf_keras")
_ABSENT = [name for name in _NEEDS if find_spec(name) is None]


@pytest.fixture(scope="session")
def tensorflow() -> Any:
    """``tensorflow.compat.v1``, with the emulator's modules of ``tensorflow.python.ipu`` in ``.ipu``."""
    if _ABSENT:
        pytest.skip(f"{', '.join(_ABSENT)} is absent; scripts/test --with-tensorflow installs it")
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # its kernels refuse some shapes that plain ones take
    gc.disable()  # what modules make stays
    import_module("ipu_emu.tensorflow.install")
    tf, ipu = import_module("tensorflow"), import_module("tensorflow.python.ipu")
    gc.collect()
    gc.freeze()
    gc.enable()
    return SimpleNamespace(tf=tf.compat.v1, v2=tf, ipu=ipu)


@pytest.fixture(autouse=True)
def infeeds_end() -> Iterator[None]:
    """Fail a test that leaves a thread taking elements of a data set."""
    yield
    left = [worker for worker in threading.enumerate() if worker.name == "infeed"]
    if left:
        gc.collect()
        deadline = time.monotonic() + 5
        for thread in left:
            thread.join(max(deadline - time.monotonic(), 0))
        assert not [worker for worker in left if worker.is_alive()], "the threads of infeeds are left"


@pytest.fixture
def tf(tensorflow: Any) -> Iterator[Any]:
    """``tensorflow.compat.v1`` with a fresh graph and an unconfigured system."""
    from ipu_emu.tensorflow.run import configured_system

    with tensorflow.tf.Graph().as_default():
        yield tensorflow.tf
    configured_system.configure(configured_system.ConfiguredSystem())


@pytest.fixture
def ipu(tensorflow: Any) -> Any:
    return tensorflow.ipu


@pytest.fixture
def configure(ipu: Any) -> Callable[..., None]:
    """Configure a device of some IPUs, with other attributes by their dotted names (dots as ``__``)."""

    def apply(ipus: int = 1, **attributes: Any) -> None:
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = ipus
        for name, value in attributes.items():
            *parents, last = name.split("__")
            place = config
            for parent in parents:
                place = getattr(place, parent)
            setattr(place, last, value)
        config.configure_ipu_system()

    return apply


@pytest.fixture
def run(tf: Any, ipu: Any) -> Callable[..., Any]:
    """Run a function as a program on values; return its results."""

    def call(function: Callable[..., Any], *values: Any, session: Any = None) -> Any:
        holders = [tf.placeholder(value.dtype, value.shape) for value in values]
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            operation = ipu.ipu_compiler.compile(function, holders)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            return session.run(operation, dict(zip(holders, values, strict=True)))

    return call
