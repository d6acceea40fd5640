"""Automatic differentiation: where contributions to a gradient are added."""

from __future__ import annotations

from collections import Counter

import pytest

from ipu_emu.cli.arguments.compile_model import CompileRequest
from ipu_emu.graph import StepPhase
from ipu_emu.program.instructions import IpuCopy, leaves


@pytest.mark.parametrize(("model", "ipus"), [("resnet8", 4), ("transformer", 2)])
def test_one_gradient_of_a_value_that_several_ops_of_the_next_ipu_read_is_copied_back(model: str, ipus: int) -> None:
    """Residual connections read a value twice; both contributions are added before they cross."""
    executable = CompileRequest(model, ipus=ipus).compiled_until("plan-memory").executable
    copies = [leaf.op for leaf in leaves(executable.program) if isinstance(leaf, IpuCopy)]
    made = Counter(op.phase for op in copies)
    assert made[StepPhase.BACKWARD] == made[StepPhase.FORWARD] == ipus - 1
