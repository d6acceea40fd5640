"""Gradient capture: gradients of tensors inside a model, which no optimiser applies."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tensorflow.python.eager import backprop
from tensorflow.python.ops import array_ops, custom_gradient

from ipu_emu.tensorflow.trace.frontend_state import frontend_state

__all__ = ["GradientCaptureContext", "GradientCaptureTape", "capture_upstream_gradients"]


class GradientCaptureContext:
    """Collects the gradients of the tensors that are captured in its ``with`` block, as they are computed."""

    def __init__(self) -> None:
        self._captured: OrderedDict[str, Any] = OrderedDict()

    @property
    def captured_gradients(self) -> OrderedDict[str, Any]:
        """The gradients by tag, in the order in which they were computed."""
        return self._captured

    def __enter__(self) -> GradientCaptureContext:
        frontend_state().captures.append(self._captured)
        return self

    def __exit__(self, *error: object) -> None:
        frontend_state().captures.remove(self._captured)


class GradientCaptureTape(backprop.GradientTape):  # type: ignore[misc]
    """A tape that captures gradients as a ``GradientCaptureContext`` does."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._context = GradientCaptureContext()

    @property
    def captured_gradients(self) -> OrderedDict[str, Any]:
        """The gradients by tag, in the order in which they were computed."""
        return self._context.captured_gradients

    def __enter__(self) -> GradientCaptureTape:
        self._context.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._context.__exit__()


def capture_upstream_gradients(tensor: Any, tag: str | None = None) -> Any:
    """Return ``tensor``; the enclosing context collects its gradient under ``tag``."""
    captures = frontend_state().captures
    if not captures:
        raise ValueError(
            "capture_upstream_gradients was called outside of a GradientCaptureContext or a GradientCaptureTape"
        )
    captured = captures[-1]

    @custom_gradient.custom_gradient  # type: ignore[untyped-decorator]
    def passed(x: Any) -> tuple[Any, Any]:
        def gradient(dy: Any) -> Any:
            copy = array_ops.identity(dy)
            captured[tag or f"gradient_{len(captured)}"] = copy
            return copy

        return array_ops.identity(x), gradient

    return passed(tensor)
