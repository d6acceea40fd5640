"""program: what a Pod does in a step, as plain data, and where everything lies in memory."""

from ipu_emu.program.executable import Executable
from ipu_emu.program.instructions import (
    AccumulateAnchor,
    AccumulateGradient,
    AllReduce,
    Compute,
    Counter,
    CountMicroBatch,
    DrawKey,
    HostLoad,
    HostStore,
    Instruction,
    IpuCopy,
    Pipeline,
    PipelineStage,
    Repeat,
    WeightUpdate,
)
from ipu_emu.program.memory import MemoryPlan, Placement

__all__ = [
    "AccumulateAnchor",
    "AccumulateGradient",
    "AllReduce",
    "Compute",
    "CountMicroBatch",
    "Counter",
    "DrawKey",
    "Executable",
    "HostLoad",
    "HostStore",
    "Instruction",
    "IpuCopy",
    "MemoryPlan",
    "Pipeline",
    "PipelineStage",
    "Placement",
    "Repeat",
    "WeightUpdate",
]
