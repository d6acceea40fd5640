"""ProgramRecord: the profiles that a traced process writes of one of its programs, one for each phase."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ipu_emu.program.clock.copies_profile import copies_profile, place_of
from ipu_emu.program.clock.modelled_step import ModelledStep
from ipu_emu.program.clock.profile_file import ProfileFile
from ipu_emu.program.clock.program_profile import program_profile
from ipu_emu.program.weight_copies import WeightCopy
from popdist_py import trace
from popdist_py.trace import Category, Recorder, Span

__all__ = ["ProgramRecord"]


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
        self._file = ProfileFile()
        self._files: dict[str, ProfileFile] = {}
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
            ipu, memory = place_of(self._step, copy.tensor)
            about = {"tensor": copy.tensor, "replica": self._offset + copy.replica, "ipu": ipu, "memory": memory}
            number = self._recorder.name("copy to the host", category, phase=what, bytes=copy.nbytes, **about)
            numbers[copy] = number
        return self._recorder.span(number)

    def copied(self, what: str) -> None:
        """All copies of ``what`` were made: the first time, write their profile."""
        if what in self._files or what not in self._copies:
            return
        self._files[what] = file = ProfileFile(what)
        with trace.span("profile of the program", Category.COMPILATION):
            profile = copies_profile(self._step, f"{self._name}: {what}", [*self._copies.get(what, ())], self._offset)
            file.write(profile, None if self._offset else self._file_of_program())

    def _file_of_program(self) -> Path | None:
        return None if self._offset else self._executable()
