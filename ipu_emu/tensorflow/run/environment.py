"""Environment: the flags in TF_POPLAR_FLAGS."""

from __future__ import annotations

import os
import warnings

from ipu_emu.session.options.without_effect import say_without_effect
from popdist_py.messages.suggestion import did_you_mean

#: The flags of TF_POPLAR_FLAGS that have an effect, and the others.
_READ = (
    "executable_cache_path",
    "log_cycle_count",
    "synthetic_data_categories",
    "use_ipu_model",
    "use_synthetic_data",
)
_WITHOUT_EFFECT = (
    "add_all_reduce_copies", "disable_graph_outlining", "dump_schedule_as_dot", "dump_text_reports_to_dir",
    "fallback_scheduler", "help", "max_compilation_threads", "max_infeed_threads", "null_data_feed",
    "save_interval_report", "save_vertex_graph", "show_progress_bar", "synthetic_data_initializer",
    "tensor_map_file_path", "while_loop_brute_force_max_trip_count",
)  # fmt: skip


def flags() -> dict[str, str]:
    """The flags in TF_POPLAR_FLAGS."""
    values = {}
    for part in os.environ.get("TF_POPLAR_FLAGS", "").split():
        name, _, value = part.lstrip("-").partition("=")
        values[name] = value
    return values


def uses_ipu_model() -> bool:
    """Whether programs run on an IPU Model."""
    return "use_ipu_model" in flags()


def warn_of_flags() -> None:
    """Warn of flags that do not exist, and of those without effect."""
    say_without_effect("Flags of TF_POPLAR_FLAGS", [f"--{name}" for name in flags() if name in _WITHOUT_EFFECT])
    unknown = [name for name in flags() if name not in (*_READ, *_WITHOUT_EFFECT)]
    if unknown:
        listed = ", ".join(f"--{name}" for name in unknown)
        meant = did_you_mean(unknown[0], (*_READ, *_WITHOUT_EFFECT))
        warnings.warn(f"TF_POPLAR_FLAGS has flags that do not exist and are ignored: {listed}{meant}", stacklevel=2)
