"""Fixtures and options for all tests."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.parameter_names import parameter_name

pytest_plugins = ["tests.helpers.kept_errors"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run whole products of parameters, not samples of them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests with the mark ``full``, unless asked for with ``--full``; begin with the longest.

    Otherwise one worker may still have several long tests left when all others have finished.
    """
    items.sort(key=lambda item: not item.nodeid.startswith("tests/hostile/"))
    if not config.getoption("--full"):
        left_out = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True)
def signals_stay() -> Iterator[None]:
    """Fail a test that leaves a signal handler installed, because later tests interrupt themselves with Ctrl-C."""
    before = [signal.getsignal(number) for number in _SIGNALS]
    yield
    after = [signal.getsignal(number) for number in _SIGNALS]
    if after != before:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)
        pytest.fail(f"the handlers of {_SIGNALS} were {before}, and the test left {after}")


@pytest.fixture
def full(pytestconfig: pytest.Config) -> bool:
    """Whether whole products of parameters are run."""
    return bool(pytestconfig.getoption("--full"))


def pytest_collection_finish() -> None:
    """Freeze the objects that exist after collection, so that the collector only scans those that tests create.

    Also limit PyTorch to one thread: on a busy machine its threads spend most of their time waiting for each other.
    """
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    gc.enable()
    gc.collect()
    gc.freeze()
    # With the default threshold of 700 new objects, the collector takes a twentieth of the time of tests that
    # compile.
    gc.set_threshold(10_000, 20, 20)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a test's parameters by their content instead of their position."""
    return parameter_name(val)


def pytest_configure(config: pytest.Config) -> None:
    """Undo what ``nohup`` and a shell's ``&`` do: jobs that tests interrupt must not inherit that they ignore it."""
    gc.disable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Its duration shows how busy the machine is.
    examples = 300 if config.getoption("--full") else 100
    settings.register_profile(
        "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples
    )
    settings.load_profile("busy")
    # Emulated IPUs belong to one process at a time, so each test run, and each of its workers, has separate Pods.
    os.environ["IPU_EMU_CLAIMS"] = tempfile.mkdtemp(prefix="ipu-emu-claims-")


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ.pop("IPU_EMU_CLAIMS", ""), ignore_errors=True)
