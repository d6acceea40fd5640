"""ProgramRecord: the profiles that a traced process writes of one of its programs, one for each phase."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.program.clock.pricing import Pricing
from ipu_emu.program.memory_plan import ipu_of, is_off_chip
from ipu_emu.program.weight_copies import WeightCopy
from ipu_emu.session.program_profile import program_profile
from popdist_py import trace
from popdist_py.environment import EXECUTABLE_CACHE_PATH
from popdist_py.files.atomic_write import replace_file
from popdist_py.files.bounded_read import read_file
from popdist_py.trace import Category, Recorder, Span
from popdist_py.trace.records import VERSION


class ProgramRecord:
    """The profile of a step, and of each kind of copies of its weights to the host; shown as ``name``.

    ``executable`` returns the file of the program. ``offset`` is the number of the first local replica; only the
    process with offset 0 writes the profile of the step (the same for all processes of a job) and writes next to that
    file.
    """

    def __init__(
        self, recorder: Recorder, step: ModelledStep, name: str, executable: Callable[[], Path | None], offset: int
    ) -> None:
        self._recorder, self._step, self._name, self._offset = recorder, step, name, offset
        self._executable = executable
        self._file = _ProfileFile()
        self._files: dict[str, _ProfileFile] = {}
        self._copies: dict[str, dict[WeightCopy, int]] = {}

    @classmethod
    def of(
        cls, step: ModelledStep, name: str, *, executable: Callable[[], Path | None] = lambda: None, offset: int = 0
    ) -> ProgramRecord | None:
        """Write the profile of a step; None if this process records no trace."""
        recorder = trace.recorder()
        if recorder is None:
            return None
        record = cls(recorder, step, name, executable, offset)
        record.write()
        return record

    def write(self) -> None:
        """Write the profile of the step, if it is not yet where its executable is now."""
        executable = self._file_of_program()
        if self._offset or self._file.is_beside(executable):
            return
        with trace.span("profile of the program", Category.COMPILATION):
            self._file.write(program_profile(self._step, self._name), executable)

    def copying(self, what: str, category: Category, copy: WeightCopy) -> Span:
        """A span for a copy to the host, one of those that ``what`` consists of."""
        numbers = self._copies.setdefault(what, {})
        number = numbers.get(copy)
        if number is None:
            ipu, memory = _place_of(self._step, copy.tensor)
            about = {"tensor": copy.tensor, "replica": self._offset + copy.replica, "ipu": ipu, "memory": memory}
            number = self._recorder.name("copy to the host", category, phase=what, bytes=copy.nbytes, **about)
            numbers[copy] = number
        return self._recorder.span(number)

    def copied(self, what: str) -> None:
        """All copies of ``what`` were made: the first time, write their profile."""
        if what in self._files or what not in self._copies:
            return
        self._files[what] = file = _ProfileFile(what)
        with trace.span("profile of the program", Category.COMPILATION):
            profile = _copies_profile(
                self._step, f"{self._name}: {what}", [*self._copies.get(what, ())], self._offset
            )
            file.write(profile, None if self._offset else self._file_of_program())

    def _file_of_program(self) -> Path | None:
        return None if self._offset else self._executable()


#: The phase of an application in which weights are read back.
_CHECKPOINTING = "checkpointing"


class _Place(NamedTuple):
    """The IPU of a replica that owns a tensor, and the memory in which it is."""

    ipu: int
    memory: str


def _place_of(step: ModelledStep, tensor: str) -> _Place:
    """Who owns a tensor."""
    region = step.executable.plan.placements[tensor].region
    return _Place(max(ipu_of(region), 0), "Streaming Memory" if is_off_chip(region) else "tile memory")


def _copies_profile(step: ModelledStep, name: str, copies: Sequence[WeightCopy], offset: int) -> dict[str, Any]:
    """The profile of these copies, shown as ``name``; the first local replica is ``offset``.

    IPUs have such a program in addition to that of a step: a list of transfers, each after a sync with the host.
    Tensors, replicas and bytes are those that the engine copied; the times are modelled.
    """
    pricing, tensors = Pricing(step.executable, step.machine), step.executable.graph.tensors
    rows = []
    for copy in copies:
        place = _place_of(step, copy.tensor)
        sync, moving = pricing.host_sync(), copy.nbytes / step.machine.host_rate
        rows.append(
            {
                "tensor": copy.tensor,
                "role": tensors[copy.tensor].role.value,
                "replica": offset + copy.replica,
                "ipu": place.ipu,
                "memory": place.memory,
                "bytes": copy.nbytes,
                "modelled_seconds": sync + moving,
                "modelled_sync_seconds": sync,
            }
        )
    return {
        "version": VERSION,
        "name": name,
        "phase": _CHECKPOINTING,
        "bytes": sum(copy.nbytes for copy in copies),
        "modelled_seconds": sum(float(row["modelled_seconds"]) for row in rows),
        "copies": rows,
    }


class _ProfileFile:
    """The file of a program's profile of one ``phase``; it moves when the executable gets a file.

    The trace lists the profiles next to executables that belong to its run, with checksums, as a later run may
    replace them. The folder of executables of a launched job may be deleted at its end, so a profile there has a copy
    next to the trace.
    """

    def __init__(self, phase: str = "") -> None:
        self._suffix = f"{phase and '.' + phase.replace(' ', '-')}{trace.PROFILE_SUFFIX}"
        self._written: Path | None = None

    def is_beside(self, executable: Path | None) -> bool:
        """Whether the profile is next to the file of the executable."""
        wanted = self._beside(executable)
        return self._written is not None and self._written.is_file() and wanted in (None, self._written)

    def write(self, profile: Mapping[str, Any], executable: Path | None) -> None:
        """Write the profile, and remove an earlier one next to the trace; do nothing without a trace."""
        recorder = trace.recorder()
        if recorder is None:
            return
        data = json.dumps(profile).encode()
        wanted, own = self._beside(executable), Path(recorder.path.removesuffix(trace.SUFFIX))
        fault = None if wanted is None else _fault(wanted, data)
        path = wanted
        if path is None or fault or _is_of_the_job(path):
            beside_trace = Path(f"{own}.{recorder.serial('profile')}{self._suffix}")
            failed = _fault(beside_trace, data)
            if path is None or fault:
                path, fault = beside_trace, failed
        if fault:
            trace.instant("the profile of the program cannot be written", why=fault)
            return
        if path == wanted:
            recorder.define({trace.PROFILE: {"path": str(path), "sha256": sha256(data).hexdigest()}})
            if self._written is not None and self._written.parent == own.parent:
                with suppress(OSError):
                    self._written.unlink()
        self._written = path

    def _beside(self, executable: Path | None) -> Path | None:
        if executable is None or not executable.is_file():
            return None
        return Path(f"{os.path.abspath(executable)}{self._suffix}")


def _is_of_the_job(path: Path) -> bool:
    """Whether a file is in the folder of executables that the launcher names."""
    folder = os.environ.get(EXECUTABLE_CACHE_PATH)
    return bool(folder) and path.parent == Path(os.path.abspath(folder or "."))


def _fault(path: Path, data: bytes) -> str:
    """Write a file, unless it has these bytes; return why that failed, or ""."""
    with suppress(OSError):
        if read_file(path, len(data)) == data:
            return ""
    try:
        replace_file(path, data, mode=0o600, follow=False)
    except OSError as error:
        return str(error.strerror)
    return ""
