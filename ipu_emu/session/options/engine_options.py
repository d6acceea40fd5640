"""Engine options: the options of Poplar's engine, from POPLAR_ENGINE_OPTIONS and from a program."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from typing import Any

from ipu_emu.session.options.without_effect import say_without_effect

_VARIABLE = "POPLAR_ENGINE_OPTIONS"
#: The options that have an effect: a file for Streaming Memory (an extension), and a trace.
STREAMING_FOLDER, REPORT, REPORT_FOLDER = "streamingMemory.folder", "autoReport.all", "autoReport.directory"


def engine_options(own: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the options of the environment and those of the program, which override them.

    A warning names those without effect, and a variable that is not JSON.
    """
    options = _of_environment() | {str(name): str(value) for name, value in (own or {}).items()}
    say_without_effect("Engine options", options.keys() - {STREAMING_FOLDER, REPORT, REPORT_FOLDER})
    return options


def _of_environment() -> dict[str, str]:
    text = os.environ.get(_VARIABLE, "")
    if not text:
        return {}
    straight = text.replace("\u201c", '"').replace("\u201d", '"')
    try:
        options = json.loads(straight)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        warnings.warn(f"{_VARIABLE} is not a JSON object and is ignored: {text}", stacklevel=3)
        return {}
    if straight != text:
        warnings.warn(f"{_VARIABLE} has curly quotes, which are read as straight ones", stacklevel=3)
    return {str(name): _text(value) for name, value in options.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
