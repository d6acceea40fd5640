"""Compiled program: a step that was compiled, or loaded from the cache, and fits its target; and its readers."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ipu_emu.compiler.cache.executable_cache import cache_key, cached_file, compiled_once
from ipu_emu.compiler.options import CompileOptions
from ipu_emu.compiler.pipeline import STEP_GRAPH, CompileState, lowered, run_passes
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph
from ipu_emu.hardware import GENERATIONS, Connection, Device, DeviceKind, SelectionOrder, System
from ipu_emu.hardware.host_processor import check_host_processor
from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.program.executable import Executable, ProgramReport
from ipu_emu.session.footprint import check_memory
from ipu_emu.session.memory_advice import MemoryAdvice
from popdist_py.trace import Category, span


@dataclass(frozen=True)
class Target:
    """``ipus`` of ``device`` per replica; ``local`` replicas of this process from ``offset`` on, of ``total``.

    ``io_tiles`` of each IPU exchange data with the host while the others compute. ``order`` is that of the IPUs of a
    replica on the device.

    Raise UnsupportedError on a host whose processor cannot run kernels, before anything is compiled, and
    EmulatorError for replicas of an IPU Model.
    """

    device: Device
    ipus: int = 1
    local: int = 1
    offset: int = 0
    total: int = 1
    io_tiles: int = 0
    order: SelectionOrder = SelectionOrder.ZIGZAG

    def __post_init__(self) -> None:
        check_host_processor()
        if self.total > 1 and self.device.kind is DeviceKind.IPU_MODEL:
            raise EmulatorError(
                f"{self.total} replicas on an IPU Model, which does not support replication; use IPUs of the "
                "emulated system, or 1 replica"
            )

    @classmethod
    def in_system(
        cls,
        ipus: int,
        *,
        local: int,
        offset: int,
        total: int,
        io_tiles: int = 0,
        order: SelectionOrder = SelectionOrder.ZIGZAG,
        version: str = "",
        model: bool = False,
    ) -> Target:
        """Return IPUs of the emulated system (IPU_EMU_SYSTEM), or offline ones of the generation ``version``.

        With ``model`` they are an IPU Model of that system's generation.
        """
        generation = GENERATIONS[version] if version else System.from_environ(os.environ).generation
        attached = DeviceKind.IPU_MODEL if model else DeviceKind.IPU
        kind, connection = (DeviceKind.OFFLINE, Connection.NEVER) if version else (attached, Connection.ALWAYS)
        device = Device(kind, 0, ipus * local, generation.tiles, generation.version, connection)
        return cls(device, ipus, local, offset, total, io_tiles, order)


@dataclass(frozen=True)
class CompiledProgram:
    """``step``: the compiler's state with the complete graph of a step; ``file``: the executable in the cache."""

    step: CompileState
    executable: Executable
    target: Target
    file: Path | None = None

    @cached_property
    def modelled(self) -> ModelledStep:
        """The modelled time of a step."""
        to = self.target
        return ModelledStep(self.executable, to.device, to.total, to.ipus, to.io_tiles, to.order)

    @property
    def report(self) -> ProgramReport:
        """Program, memory in bytes, and operations of a step."""
        return ProgramReport.of(self.executable, self.target.local)


def step_graph(graph: Graph, options: CompileOptions) -> CompileState:
    """Run the passes up to the complete graph of a step; raise EmulatorError for a model that cannot run."""
    return run_passes(CompileState(graph, options), stop_after=STEP_GRAPH)


def key_of(step: CompileState) -> str:
    """Return the key of the executable in the cache.

    Training options are part of the graph that it hashes; the sync pattern does not change the program.
    """
    return cache_key(step.graph, replace(step.options, training=None, sync="Full"), step.gradients)


@span("compile", Category.COMPILATION)
def compile_program(
    state: CompileState,
    target: Target,
    advice: MemoryAdvice,
    *,
    cache: str | None = None,
    loaded: Executable | None = None,
    forward: bool = False,
) -> CompiledProgram:
    """Compile unless it is ``loaded`` or in the folder ``cache``; raise OutOfMemoryError if it does not fit.

    ``state`` is that before the first pass, or the graph of a step. With ``forward`` its forward pass is a second
    program of the same variables, which takes memory too.
    """
    step = run_passes(state, stop_after=STEP_GRAPH)
    key = "" if cache is None else key_of(step)
    if loaded is not None:
        executable = loaded
    else:
        compiled = lowered(step) if cache is None else compiled_once(cache, step.graph, key, lambda: lowered(step))
        executable = replace(compiled, sync=step.options.sync)
    forward_program = lowered(step.forward_only) if forward else None
    check_memory(
        executable,
        target.device,
        forward=forward_program,
        remedies=lambda now: advice.remedies(step, target.device, now, forward=forward),
    )
    return CompiledProgram(step, executable, target, None if cache is None else cached_file(cache, key))
