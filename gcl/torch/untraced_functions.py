"""Untraced functions: torch.compile does not look into them, as into those of back ends that are written in C++."""

from __future__ import annotations

from types import FunctionType

from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

__all__ = ["leave_untraced"]

_SKIP = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)  # also what they call


def leave_untraced(*classes: type) -> None:
    """Let torch.compile run the methods of ``classes`` as they are, instead of compiling them.

    PyTorch calls them from C++ in the middle of compiled functions. Unlike ``torch.compiler.disable``, this neither
    puts a frame between nor imports the compiler, which takes seconds.
    """
    for owner in classes:
        for member in vars(owner).values():
            if isinstance(member, FunctionType):
                set_code_exec_strategy(member.__code__, _SKIP)
