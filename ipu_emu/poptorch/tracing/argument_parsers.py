"""Argument parsers: objects of a user's types with tensors in them, as arguments and as results of a module."""

from __future__ import annotations

from typing import Any

from ipu_emu.poptorch.errors import refusal


class ICustomArgParser:
    """Extracts the tensors from an object of a user-defined type, and replaces them."""

    def yieldTensors(self, struct: Any) -> Any:
        """Yield the tensors of ``struct`` in a fixed order."""
        raise NotImplementedError

    def reconstruct(self, original_structure: Any, tensor_iterator: Any) -> Any:
        """Return an object like ``original_structure`` with the next tensors of ``tensor_iterator``."""
        raise NotImplementedError


PARSERS: dict[type, ICustomArgParser] = {}


def registerCustomArgParser(arg_type: type, parser: ICustomArgParser) -> None:
    """Allow objects of ``arg_type`` as arguments and results."""
    if not isinstance(parser, ICustomArgParser):
        raise refusal("The parser must be an instance of poptorch.ICustomArgParser")
    PARSERS[arg_type] = parser
