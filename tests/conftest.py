"""What all tests start from."""

import os
import shutil
import signal
import tempfile

from hypothesis import HealthCheck, settings


def pytest_configure() -> None:
    """Undo what ``nohup`` and a shell's ``&`` do: jobs that tests interrupt must not inherit that they ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # How long it takes says how busy the machine is.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")
    # Emulated IPUs belong to one process at a time: each run of tests, and each of its workers, has Pods of its own.
    os.environ["IPU_EMU_CLAIMS"] = tempfile.mkdtemp(prefix="ipu-emu-claims-")


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ.pop("IPU_EMU_CLAIMS", ""), ignore_errors=True)
