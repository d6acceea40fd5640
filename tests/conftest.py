"""What all tests start from."""

import signal


def pytest_configure() -> None:
    """Undo what ``nohup`` and a shell's ``&`` do: jobs that tests interrupt must not inherit that they ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
