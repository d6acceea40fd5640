"""External variables: the variables of a session whose values are in separate files next to its model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from ipu_emu.compiler.rewriting.reserved_prefixes import without_prefix
from ipu_emu.errors import SessionError
from ipu_emu.onnx.external_data import Places, change_external, inside, relative_places, separate, write_external
from ipu_emu.onnx.write import OnnxTemplate, write_model

#: The ending of the file with data that cannot be where they were.
_ENDING = ".data"


class ExternalVariables:
    """Writes the model of ``template``, whose initializers at ``places`` and their states are in separate files."""

    def __init__(self, template: OnnxTemplate, places: Places) -> None:
        self._template, self._places = template, dict(places)

    def save(self, file: str, data: Mapping[str, NDArray[Any]], variables: Mapping[str, NDArray[Any]]) -> None:
        """Write the model with its ``data`` and the values of ``variables`` to ``file``.

        External data in its folder are replaced; others, which it cannot refer to, are written to a file beside it.
        """
        values, folder = self._template.initializers(data, variables), os.path.dirname(os.path.abspath(file))
        stay = separate({id: place for id, place in self._places.items() if inside(place.file, folder)})
        new = [id for id in values if id not in stay and (id in self._places or without_prefix(id) in self._places)]
        change_external(values, stay)
        written = write_external(values, new, os.fspath(file) + _ENDING, follow=False) if new else {}
        write_model(file, self._template.serialised(values, relative_places(file, {**stay, **written})))

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
                self._places[id] = replace(place, file=os.path.realpath(new))


def _same(file: str, other: str) -> bool:
    return file == os.path.realpath(other)
