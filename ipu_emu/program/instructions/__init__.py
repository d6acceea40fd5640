"""Instruction: one action of all local replicas in a step; a program is a tuple of instructions.

The program of one batch of two micro-batches on several replicas, for example:

    repeat 1 batch
      repeat 2 micro-batches
        HostLoad input
        Compute Conv:0 = Conv(input, weights)
        ...
        AccumulateGradient Accum___weights += Gradient___weights
        HostStore loss
      AllReduce add FLOAT
      WeightUpdate UpdatedVar___weights = SgdPlain(weights, Accum___weights, ...)

With a pipeline in place of the inner loop:

      pipeline popart, 8 micro-batches
        stage 0 on IPU 0
          HostLoad input
          ...
        stage 1 on IPU 1
          IpuCopy Conv:0/ipu1 = IpuCopy(Conv:0)
          ...

A ``Leaf`` contains no other instructions; ``Repeat``, ``Preload`` and ``Pipeline`` do. The attributes of an
instruction describe it; a reader of programs has a table with a row for each class of instructions (see ``row``). A
new instruction is a class in this folder, its name in ``INSTRUCTIONS``, and a row per reader.
"""

from ipu_emu.program.instructions.host_io import HostLoad, HostStore, Overlap, host_transfers
from ipu_emu.program.instructions.instruction import Instruction, Leaf, counted_leaves, leaves, listing, of_type, walk
from ipu_emu.program.instructions.instruction_table import INSTRUCTIONS, row
from ipu_emu.program.instructions.loops import Counter, Pipeline, PipelineStage, Preload, Repeat
from ipu_emu.program.instructions.micro_batches import (
    AccumulateAnchor,
    AccumulateGradient,
    Accumulation,
    CountMicroBatch,
    DrawKey,
)
from ipu_emu.program.instructions.op_instructions import (
    AllReduce,
    Compute,
    IpuCopy,
    OpInstruction,
    RemoteLoad,
    RemoteStore,
    ReplicaCollective,
    ShardCollectives,
    WeightUpdate,
)

__all__ = [
    "INSTRUCTIONS", "AccumulateAnchor", "AccumulateGradient", "Accumulation", "AllReduce", "Compute",
    "CountMicroBatch", "Counter", "DrawKey", "HostLoad", "HostStore", "Instruction", "IpuCopy", "Leaf",
    "OpInstruction", "Overlap", "Pipeline", "PipelineStage", "Preload", "RemoteLoad", "RemoteStore", "Repeat",
    "ReplicaCollective", "ShardCollectives", "WeightUpdate", "counted_leaves", "host_transfers", "leaves", "listing",
    "of_type", "row", "walk",
]  # fmt: skip
