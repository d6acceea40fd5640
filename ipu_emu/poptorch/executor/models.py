"""Models: the functions that create executors, from a module or from a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipu_emu.poptorch.enums import ConnectionType
from ipu_emu.poptorch.executor.executor import PoplarExecutor
from ipu_emu.poptorch.executor.saved_program import read_program
from ipu_emu.poptorch.options.options import Options


def trainingModel(model: Any, options: Options | None = None, optimizer: Any = None) -> PoplarExecutor:
    """Wrap ``model``, whose forward computes a loss, to train on emulated IPUs."""
    return PoplarExecutor(model, options, training=True, optimizer=optimizer)


def inferenceModel(model: Any, options: Options | None = None) -> PoplarExecutor:
    """Wrap ``model`` to run on emulated IPUs."""
    return PoplarExecutor(model, options, training=False)


def load(filename: str, edit_opts_fn: Callable[[Options], None] | None = None) -> PoplarExecutor:
    """Return the module in a file, wrapped, with its program; loaded wrappers are not linked to others."""
    content = read_program(filename)
    if content["model"] is None:
        raise AssertionError(
            f"{filename} is a valid PopTorch file but was created with 'export_model=False', which means you need to "
            "re-create the model using inferenceModel or trainingModel, and then call loadExecutable"
        )
    options = content["options"].clone()
    options.connectionType(ConnectionType.Always)
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    executor = PoplarExecutor(content["model"], options, training=content["training"], optimizer=content["optimizer"])
    executor.restore(content)
    return executor
