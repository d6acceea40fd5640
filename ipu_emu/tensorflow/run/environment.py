"""Environment: the settings in TF_POPLAR_FLAGS and POPLAR_ENGINE_OPTIONS."""

from __future__ import annotations

import json
import os
import warnings

from popdist_py.messages.suggestion import did_you_mean

__all__ = ["engine_options", "flags", "warn_of_unknown_flags"]

#: The flags of TF_POPLAR_FLAGS. Those that configure the compiler or its output have no effect here.
_FLAGS = (
    "add_all_reduce_copies",
    "disable_graph_outlining",
    "dump_schedule_as_dot",
    "dump_text_reports_to_dir",
    "executable_cache_path",
    "fallback_scheduler",
    "help",
    "log_cycle_count",
    "max_compilation_threads",
    "max_infeed_threads",
    "null_data_feed",
    "save_interval_report",
    "save_vertex_graph",
    "show_progress_bar",
    "synthetic_data_categories",
    "synthetic_data_initializer",
    "tensor_map_file_path",
    "use_ipu_model",
    "use_synthetic_data",
    "while_loop_brute_force_max_trip_count",
)


def flags() -> dict[str, str]:
    """The flags in TF_POPLAR_FLAGS."""
    values = {}
    for part in os.environ.get("TF_POPLAR_FLAGS", "").split():
        name, _, value = part.lstrip("-").partition("=")
        values[name] = value
    return values


def warn_of_unknown_flags() -> None:
    """Warn of flags that do not exist."""
    unknown = [name for name in flags() if name not in _FLAGS]
    if unknown:
        listed = ", ".join(f"--{name}" for name in unknown)
        meant = did_you_mean(unknown[0], _FLAGS)
        warnings.warn(f"TF_POPLAR_FLAGS has flags that do not exist and are ignored: {listed}{meant}", stacklevel=2)


def engine_options() -> dict[str, str]:
    """The options in POPLAR_ENGINE_OPTIONS; warn once if they are not valid JSON."""
    text = os.environ.get("POPLAR_ENGINE_OPTIONS", "")
    if not text:
        return {}
    try:
        return {str(name): str(value) for name, value in json.loads(text).items()}
    except (ValueError, AttributeError):
        straight = text.replace("\u201c", '"').replace("\u201d", '"')
        if straight != text:
            try:
                options = json.loads(straight)
            except ValueError:
                options = None
            if isinstance(options, dict):
                warnings.warn("POPLAR_ENGINE_OPTIONS has curly quotes, which are read as straight ones", stacklevel=2)
                return {str(name): str(value) for name, value in options.items()}
        warnings.warn(f"POPLAR_ENGINE_OPTIONS is not a JSON object and is ignored: {text}", stacklevel=2)
        return {}
