"""Checks: combinations of modules and options that are rejected, before compilation or after tracing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ipu_emu.poptorch.enums import OutputMode
from ipu_emu.poptorch.errors import Error, refusal
from ipu_emu.poptorch.options.options import Options


def checked_options(model: Any, options: Any, *, training: bool) -> Options:
    """Return the options, new ones for None; raise TypeError if they are not Options, or ``model`` no module."""
    name = "trainingModel" if training else "inferenceModel"
    if not isinstance(model, torch.nn.Module):
        described = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise TypeError(f"poptorch.{name} takes a torch.nn.Module, and got {described}")
    _check_module(model)
    options = Options() if options is None else options
    if not isinstance(options, Options):
        raise TypeError(
            f"poptorch.{name} takes poptorch.Options(), and got a {type(options).__name__} as its options"
        )
    return options


def _check_module(model: torch.nn.Module) -> None:
    """Raise poptorch.Error for parts of a module that cannot be recorded."""
    for path, part in model.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            where = f"{path} of the module" if path else "The module"
            raise refusal(
                f"{where} is a torch.jit.ScriptModule, whose ops cannot be recorded; use its nn.Module instead"
            )
    for path, tensor in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise refusal(f"{path} of the module has no shape before a first call; call the module once on the host")
        if tensor.is_complex():
            raise refusal(
                f"{path} of the module is complex, which IPUs do not support; keep two real tensors instead"
            )


def check_inference(options: Options) -> None:
    """Raise poptorch.Error for options that inference does not support."""
    if options.Training.gradient_accumulation == 1:
        return
    more = ""
    if options._execution_strategy.pipelined:
        more = " Use poptorch.Options().deviceIterations to process multiple batches in a pipeline."
    raise refusal(
        "You must set poptorch.Options().Training.gradientAccumulation to 1 or leave it as its default value "
        "(1) when running a poptorch.inferenceModel()." + more
    )


def check_buffers(module: torch.nn.Module, changed: Sequence[str], options: Options) -> None:
    """Raise poptorch.Error if forward changes buffers that replicas share, other than running statistics."""
    norms = {
        f"{path}.{name}".lstrip(".")
        for path, submodule in module.named_modules()
        if isinstance(submodule, torch.nn.modules.batchnorm._NormBase)
        for name in submodule._buffers
    }
    replicas = options.replication_factor * options.Distributed.numProcesses
    if set(changed) <= norms or replicas == 1 or not options.broadcast_buffers:
        return
    raise Error(
        "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers becoming "
        "out of sync between replicas, you can disable buffer broadcasting using "
        "poptorch.Options.broadcastBuffers(False)."
    )


def check_overlap(overlaps: Sequence[str], options: Options, ipus: int) -> None:
    """Raise poptorch.Error if forward overlaps its "input" or "output" in a way that the options do not allow."""
    if not overlaps:
        return
    if options._execution_strategy.pipelined and ipus > 1:
        raise Error(
            "Overlapped IO is not supported with poptorch.PipelinedExecution. Please switch to "
            "poptorch.ShardedExecution."
        )
    if not options.TensorLocations.num_io_tiles:
        raise Error(
            "No IO tiles allocated. You must allocate at least 32 IO tiles using "
            "poptorch.Options().TensorLocations.numIOTiles."
        )
    if "output" in overlaps and options.output_mode not in (OutputMode.All, OutputMode.Sum):
        raise Error(
            "Unsupported output mode for overlapped IO. Please use poptorch.OutputMode.All or "
            "poptorch.OutputMode.Sum with poptorch.Options().outputMode"
        )
