"""Functions: a decorator for functions whose code is compiled once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipu_emu.session.options.without_effect import without_effect

__all__ = ["function", "outlined_function"]


@without_effect("unique_sharding", "keep_input_layouts", "name")
def outlined_function(
    func: Callable[..., Any] | None = None,
    unique_sharding: bool = False,
    keep_input_layouts: Any = None,
    name: str | None = None,
) -> Any:
    """Decorate a function whose calls may share code; results do not depend on it."""
    return (lambda inner: inner) if func is None else func


function = outlined_function
