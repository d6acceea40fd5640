"""Errors: poptorch.Error with its message, type and location, and its two kinds of device errors."""

from __future__ import annotations


class Error(Exception):
    """An error of PopTorch; ``type`` names its source, ``location`` where it was raised."""

    def __init__(self, message: str = "", type: str = "poptorch_cpp_error", location: str = "") -> None:
        self.message, self.type, self.location = message, type, location
        super().__init__(f"In {location}: '{type}': {message}" if location else f"'{type}': {message}")


class RecoverableError(Error):
    """An error of the device after which the program can continue if ``recovery_action`` is taken."""

    def __init__(self, message: str = "", recovery_action: str = "IPU_RESET") -> None:
        super().__init__(message, "poplar_recoverable_runtime_error")
        self.recovery_action = recovery_action


class UnrecoverableError(Error):
    """An error of the device after which it must not be used."""


class ConfigFileError(Exception):
    """A line of an options file is not an option."""


def refusal(message: str) -> Error:
    """Return an error that was found in Python code."""
    return Error(message, "poptorch_py_error")
