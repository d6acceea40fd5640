"""External variables: the variables of a session whose values are in separate files next to its model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

import popdist_py
from ipu_emu.compiler.rewriting.reserved_prefixes import without_prefix
from ipu_emu.errors import SessionError
from ipu_emu.graph.external_data import Places, append_external, overwrite_external, places_beside

__all__ = ["ExternalVariables"]


class ExternalVariables:
    """Initializers of the model at ``places``, and their optimiser states, which are appended to the same files.

    Instances share the files: instance 0 appends the states; the others write them into their models.
    """

    def __init__(self, places: Places, variables: Mapping[str, NDArray[Any]]) -> None:
        self._places = dict(places)
        if not places or popdist_py.getReplicaIndexOffset():
            return
        for file in dict.fromkeys(place.file for place in places.values()):
            states = [id for id in variables if id not in places and _is_in(file, without_prefix(id), places)]
            self._places |= append_external({id: variables[id] for id in states}, states, file)

    def write(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Overwrite the values in the files."""
        overwrite_external(values, {id: place for id, place in self._places.items() if id in values})

    def seen_from(self, model: str) -> Places:
        """The places relative to the file ``model``."""
        return places_beside(model, self._places)

    def move(self, old: str, new: str) -> None:
        """Move the file ``old`` to ``new``; raise SessionError if it has no variables or cannot be moved."""
        if not any(_same(place.file, old) for place in self._places.values()):
            raise SessionError(f"No ONNX model initializers have external location set to '{old}'")
        for file, fault in ((old, "does not exist"), (new, "already exists")):
            if os.path.exists(file) != (file == old):
                raise SessionError(
                    f"Updating externally saved tensor location from file '{old}' to file '{new}', but file '{file}' "
                    f"{fault}"
                )
        try:
            shutil.move(old, new)
        except OSError as error:
            raise SessionError(
                f"Cannot move the externally saved tensors from '{old}' to '{new}': {error.strerror}; name a file "
                "that can be written"
            ) from error
        for id, place in self._places.items():
            if _same(place.file, old):
                self._places[id] = replace(place, file=new)


def _is_in(file: str, weight: str, places: Places) -> bool:
    return weight in places and places[weight].file == file


def _same(one: str, other: str) -> bool:
    return os.path.abspath(one) == os.path.abspath(other)
