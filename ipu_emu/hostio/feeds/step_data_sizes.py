"""Step data sizes: the check of step data before the first step of a session (PopART 3.4, stepio_size_assertion.cpp).

Only numbers of elements are compared, not shapes.
"""

from __future__ import annotations

from ipu_emu.errors import SessionError
from ipu_emu.graph import Tensor
from ipu_emu.hostio.feeds.array_feed import ArrayFeed
from ipu_emu.program.anchors import Anchor, Return
from ipu_emu.program.executable import Executable

__all__ = ["check_sizes"]


def check_sizes(feed: ArrayFeed, executable: Executable, broadcast: frozenset[str]) -> None:
    """Raise SessionError for the first array that does not have the number of elements of a step."""
    step = executable.step
    everything = step.batches * step.accumulation * step.replicas
    for id in feed.inputs:
        _check_input_known(id, executable)
    # The array of a weight may be given like that of an input: it is checked, but not read.
    weights = [executable.graph.tensors[id] for id in feed.inputs if executable.graph.tensors[id].role.is_variable]
    for tensor in (*executable.inputs, *weights):
        needed = tensor.nelms * everything // (step.replicas if tensor.id in broadcast else 1)
        received = feed.input_elements(tensor.id)
        if received != needed:
            raise SessionError(_text("input", tensor, needed, received, executable, None))
    for id, anchor in executable.anchors.items():
        tensor = executable.graph.tensor(id)
        needed = tensor.nelms * everything // step.divisor(anchor)
        received = feed.output_elements(id)
        if received != needed:
            raise SessionError(_text("output", tensor, needed, received, executable, anchor))


def _check_input_known(id: str, executable: Executable) -> None:
    tensors = executable.graph.tensors
    if id not in tensors:
        raise SessionError(
            f"Testing that the buffer provided by user for input Tensor {id} has the correct number of elements, "
            f"But there is no Tensor named {id} in the Ir's main Graph, and it does not exist in the original ONNX "
            "Model."
        )
    if tensors[id].role.value not in ("input", "weight"):
        raise SessionError(
            f"The tensor '{id}' has been provided as one of the inputs to the stepIO, but it is not registered as "
            "one of the inputs to the model. Please check this tensor and your stepIO."
        )


def _text(
    direction: str, tensor: Tensor, needed: int, count: int, executable: Executable, anchor: Anchor | None
) -> str:
    step = executable.step
    lines = [
        f"Unexpected number of {direction} elements for Tensor {tensor.id}. Expected {needed}, but received {count}.",
        "To disable this check at your own risk, use IStepIO::enableRuntimeAsserts.",
        "This with, ",
        f"   replication  factor = {step.replicas}",
        f"   accumulation factor = {step.accumulation}",
        f"   batches per step    = {step.batches}",
        f"   Tensor nelms        = {tensor.nelms}",
    ]
    if anchor is not None:
        lines.append(f"The anchor return type is  {anchor.returns.value}")
        if anchor.returns is Return.EVERY_N:
            lines.append(f"The return period is {anchor.period}")
    return "\n".join(lines)
