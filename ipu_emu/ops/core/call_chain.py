"""Call chain: several prepared calls as one."""

from __future__ import annotations

from ipu_emu.ops.core.op_definition import Call

__all__ = ["CallChain", "call_chain"]


class CallChain:
    """One call that runs all ``steps`` in order."""

    def __init__(self, steps: tuple[Call, ...]) -> None:
        self.steps = steps

    def __call__(self) -> None:
        for step in self.steps:
            step()


def call_chain(*steps: Call) -> CallChain:
    """One call that runs ``steps`` in order; chains among them are flattened."""
    return CallChain(
        tuple(call for step in steps for call in (step.steps if isinstance(step, CallChain) else (step,)))
    )
