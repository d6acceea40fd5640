"""Checkpoints: save a training session while it runs, and resume from the newest complete checkpoint.

    with Checkpoints("runs/digits", keep=3) as checkpoints:
        resumed = checkpoints.restore(session)
        for step in range(resumed.step, 1000):
            session.run(data(step))
            checkpoints.save(session, step + 1, state={"loss": loss})

All instances make the same calls. ``save`` copies the values and returns; a thread writes them. A program that is
killed at any time and restarted (``poprun-py --max-restarts``) resumes from the newest complete checkpoint, on any
number of instances, and ends with bitwise the same weights as a run without interruption.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import popdist_py
from gcl.drawing.units import counted
from ipu_emu.hostio.checkpoint.background_writer import Writer
from ipu_emu.hostio.checkpoint.checkpoint_folder import CheckpointError, Folder
from ipu_emu.hostio.checkpoint.manifest import MOST_BYTES, PROGRAM, RANDOM, Manifest
from ipu_emu.hostio.checkpoint.safetensors_file import read
from ipu_emu.hostio.checkpoint.session_state import Trainable, groups_of, joined, mismatches, shares, stateful
from ipu_emu.hostio.traced_weight_copies import TracedWeightCopies
from popdist_py import trace
from popdist_py.messages.user_warning import warn_user

#: The most differences between a checkpoint and a model that an error message lists.
_MAX_LISTED = 5
#: Levels of lists and dicts in the state of a program.
_MOST_LEVELS = 100
#: The most characters of an error message that instances exchange.
_TEXT_LENGTH = 400


@dataclass(frozen=True)
class Resumed:
    """Where a run resumes: ``step`` and ``state`` as saved; 0 and an empty state for a new run."""

    step: int = 0
    state: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""


class Checkpoints:
    """The checkpoints of a job in ``folder``, which all hosts must share; the newest ``keep`` are kept.

    ``timeout``: seconds that instance 0 waits for the parts of the others.
    """

    def __init__(self, folder: str | Path, *, keep: int = 3, timeout: float = 300.0) -> None:
        if keep < 1:
            raise CheckpointError(f"keep = {keep}: keep at least 1 checkpoint")
        self._instance, self._instances = popdist_py.getInstanceIndex(), popdist_py.getNumInstances()
        self._folder = Folder(Path(folder).absolute())
        self._on_first(self._folder.open)
        self._writer = Writer(self._folder, self._instance, self._instances, keep=keep, timeout=timeout)
        self._copies: dict[str, NDArray[Any]] = {}

    # Saving

    @trace.span("save a checkpoint", trace.Category.CHECKPOINT)
    def save(self, session: Trainable, step: int, state: Mapping[str, Any] | None = None) -> None:
        """Write the state of ``session`` after ``step`` steps; ``state`` is plain data of the program.

        Return when the values are copied. First wait for the previous checkpoint; raise CheckpointError on all
        instances if it could not be written.
        """
        state = _plain(state or {})
        step = _whole(step)
        self.wait()
        self._on_first(lambda: self._folder.begin(step))
        engine = session.engine
        entries = shares(engine, self._instance, self._instances)
        with TracedWeightCopies(engine, "save a checkpoint", trace.Category.CHECKPOINT) as out:
            for entry in entries:
                value = engine.view(entry.id, entry.replica)
                copy = self._copies.get(entry.key)
                if copy is None or (copy.shape, copy.dtype) != (value.shape, value.dtype):
                    copy = self._copies[entry.key] = np.empty(value.shape, value.dtype)
                out.copy(entry.id, entry.replica, copy)
        content = {PROGRAM: state, RANDOM: [engine.seed, engine.steps]}
        arrays = {entry.key: self._copies[entry.key] for entry in entries}
        self._writer.begin(Manifest(step, content, {}, groups_of(engine), engine.replicas.total), arrays)

    @property
    def writing(self) -> bool:
        """Whether this instance is still writing the last checkpoint."""
        return self._writer.busy

    def wait(self) -> None:
        """Wait until the last checkpoint is complete; raise CheckpointError on all instances if writing failed."""
        failed = self._first_text(self._writer.part_written())
        if failed:
            self._writer.cancel()
        outcome = self._writer.outcome()
        failed = failed or self._first_text(outcome)
        if failed:
            raise CheckpointError(
                f"a checkpoint could not be written: {failed}; earlier checkpoints are intact. Free space, or choose "
                "another folder"
            )

    # Restoring

    @trace.span("restore a checkpoint", trace.Category.CHECKPOINT)
    def restore(self, session: Trainable) -> Resumed:
        """Load the newest complete checkpoint into ``session``, whose device is prepared; step 0 if there is none.

        Skip damaged ones with a warning. Raise CheckpointError for a checkpoint of another model or number of
        replicas, and if all are damaged.
        """
        self.wait()
        chosen: list[str] = []
        self._on_first(lambda: chosen.append(self._newest()))
        name = chosen[0] if chosen else ""
        if self._instances > 1:
            name = popdist_py.broadcast(name, 0)
        if not name:
            return Resumed()
        path, engine = self._folder.path / name, session.engine
        try:
            manifest = self._folder.manifest(name)
            arrays: dict[str, NDArray[Any]] = {}
            for file in manifest.files:
                arrays |= read(path / file)
            values = joined(arrays, manifest.groups)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from None
        if manifest.replicas != engine.replicas.total:
            raise CheckpointError(
                f"checkpoint {path} is of {counted(manifest.replicas, 'replica')}, and this job has "
                f"{engine.replicas.total}; start it with --num-replicas {manifest.replicas}, or use another folder"
            )
        wrong = mismatches(values, stateful(engine), groups_of(engine))
        if wrong:
            raise CheckpointError(
                f"checkpoint {path} is of another model: {_listed(wrong)}. Use the model that was saved, or another "
                "folder"
            )
        session.restore(values)
        engine.seed, engine.steps = manifest.state[RANDOM]
        return Resumed(manifest.step, manifest.state[PROGRAM], name)

    def _newest(self) -> str:
        """Return the name of the newest complete checkpoint, '' if there is none."""
        faults: list[str] = []
        names = self._folder.names()
        latest, problem = self._folder.latest()
        if latest and latest not in names:
            problem = f"it names {latest}, which is missing"
        for name, manifest in self._folder.verified(names):
            if isinstance(manifest, Manifest):
                if problem:
                    warn_user(f"{self._folder.path / 'latest'} cannot be used: {problem}; {name} is used")
                for fault in faults:
                    warn_user(f"checkpoint {fault}; {name} is used instead")
                return name
            faults.append(f"{name} is skipped: {manifest}")
        if faults:
            raise CheckpointError(
                f"no checkpoint in {self._folder.path} can be used: {_listed(faults)}. Repair them, or use another "
                "folder"
            )
        return ""

    # Ending

    def close(self) -> None:
        """Wait for the last checkpoint, and unlock the folder."""
        try:
            self.wait()
        finally:
            self._end()

    def _end(self) -> None:
        self._writer.close()
        self._folder.close()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:  # other instances may never reach their wait
            self._end()

    # Instances

    def _on_first(self, call: Callable[[], object]) -> None:
        """Run ``call`` on instance 0; all instances raise the CheckpointError that it raises."""
        failed = ""
        if self._instance == 0:
            try:
                call()
            except CheckpointError as error:
                failed = str(error)
            except OSError as error:
                failed = f"checkpoints cannot be written to {self._folder.path}: {error.strerror}"
        failed = self._first_text(failed)
        if failed:
            raise CheckpointError(failed)

    def _first_text(self, mine: str) -> str:
        """Return the first non-empty ``text`` among those of all instances."""
        if self._instances == 1:
            return mine
        texts = popdist_py.allGather(np.array(mine[:_TEXT_LENGTH], f"U{_TEXT_LENGTH}"))
        return next((str(text) for text in texts if text), "")


def _listed(faults: Sequence[str]) -> str:
    return "; ".join(
        [*faults[:_MAX_LISTED], *([f"and {len(faults) - _MAX_LISTED} more"] if len(faults) > _MAX_LISTED else [])]
    )


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the program's state; raise CheckpointError if it cannot be written as JSON."""
    try:
        text = json.dumps(state)
        copy: dict[str, Any] = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"state may contain numbers, strings, lists and dicts ({error}); keep arrays in the model or in files"
        ) from None
    if len(text) > MOST_BYTES // 2:  # the manifest has a line for each value
        raise CheckpointError(f"state has {len(text):,} characters; keep this much data in separate files")
    if _depth(copy) > _MOST_LEVELS:
        raise CheckpointError(f"state has lists or dicts in more than {_MOST_LEVELS} levels; make it flatter")
    return copy


def _depth(state: Mapping[str, Any]) -> int:
    """Return the number of levels of lists and dicts."""
    depth, level = 0, list[Any]([state])
    while level:
        depth += 1
        inner = [v for node in level for v in (node.values() if isinstance(node, Mapping) else node)]
        level = [value for value in inner if isinstance(value, list | dict)]
    return depth


def _whole(step: object) -> int:
    try:
        number = operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0:
        raise CheckpointError(f"step = {step!r}: give the number of steps that are done, 0 or more")
    return number
