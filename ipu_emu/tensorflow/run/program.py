"""Program: a compiled function: runs its sections one after the other on the values of TensorFlow's variables.

TensorFlow's variables are the master copy: a run copies the values of those that it uses to the device, and those
that it changes back.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event, RLock
from time import perf_counter
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ipu_emu.compiler.traced_training import TRACE_FOLDER, to_bytes
from ipu_emu.errors import ArgumentError, EmulatorError
from ipu_emu.hostio.traced_weight_copies import TracedWeightCopies
from ipu_emu.hostio.weights_digest import is_reported
from ipu_emu.program.executable import Executable
from ipu_emu.session.loaded_program import LoadedProgram
from ipu_emu.session.options.engine_options import REPORT, REPORT_FOLDER, STREAMING_FOLDER, engine_options
from ipu_emu.tensorflow.importer.section_import import ImportedSection, SectionWork, import_section
from ipu_emu.tensorflow.importer.values import id_of, on_device
from ipu_emu.tensorflow.run.argument_checks import check_program
from ipu_emu.tensorflow.run.compiling import (
    compile_section,
    compile_state,
    rows_of,
    runs_of,
)
from ipu_emu.tensorflow.run.configured_system import DeviceShare, has_remote_memory, is_attached, share_of
from ipu_emu.tensorflow.run.environment import flags, warn_of_flags
from ipu_emu.tensorflow.run.feeding import RunData, StopRequested
from ipu_emu.tensorflow.run.measured_runs import MeasuredRuns, is_synthetic
from ipu_emu.tensorflow.run.section_work import divided_work
from ipu_emu.tensorflow.run.variables import HostVariables, read_variable, write_variable
from ipu_emu.tensorflow.trace.frontend_state import seed
from ipu_emu.tensorflow.trace.function_trace import FunctionTrace
from popdist_py.files.atomic_write import replace_file
from popdist_py.trace import Category, span

#: The most versions of a program that are kept, one for each count of mini-batches.
_MOST_LOADED = 8


class Loaded:
    """A compiled section that is loaded on a device."""

    def __init__(self, imported: ImportedSection, program: LoadedProgram) -> None:
        assert program.engine is not None
        self.imported, self.program, self.engine = imported, program, program.engine
        self.rows = rows_of(program.compiled)
        step = program.compiled.executable.step
        elements = step.batches * step.accumulation * step.replicas * runs_of(imported)
        self.measured = MeasuredRuns(imported, elements)


class Program:
    """A program, compiled at its first run; ``results``: the tensors of the trace that a run returns."""

    def __init__(self, trace: FunctionTrace, results: Sequence[Any], operations: Sequence[Any] = ()) -> None:
        self.trace, self.results = trace, list(results)
        self.work: list[SectionWork] = divided_work(trace, [*results, *operations])
        self.stop = Event()
        #: Called while the program runs with the arrays of each element that it enqueues.
        self.enqueued: Callable[[list[NDArray[Any]]], None] | None = None
        self._lock = RLock()
        self._loaded: dict[tuple[int, ...], list[Loaded]] = {}
        self._seed: int | None = None
        self._share: DeviceShare | None = None
        self._known: dict[str, NDArray[Any]] = {}
        self._seeded = 0
        #: The values of the variables that runs have changed, by name, if their digest is reported.
        self.written: dict[str, NDArray[Any]] = {}

    # Building

    @property
    def shards(self) -> int:
        """The number of IPUs of a replica that the program requests."""
        counts = [max(ipus) + 1 for _, _, ipus in self.trace.shards if ipus]
        for part in self.work:
            if part.section.pipeline is not None:
                mapping = part.section.pipeline.call.mapping
                counts += [max(ipus) + 1 for ipus in mapping]
        return max(counts, default=1)

    @property
    def share(self) -> DeviceShare:
        """How the program uses its device."""
        if self._share is None:
            assert self.trace.device is not None
            self._share = share_of(self.trace.device, self.shards)
        return self._share

    def imported(self) -> list[ImportedSection]:
        """Import all sections; raise the errors that depend on the configuration or on the content of stages."""
        self._check_pipelines()
        sections = []
        for part in self.work:
            section = import_section(
                self.trace, part, self._known, replicas=self.share.total, norm_group=norm_group(self.share)
            )
            self._known |= {name: value for name, value in section.exports.items() if not isinstance(value, str)}
            sections.append(section)
        return sections

    def _check_pipelines(self) -> None:
        sections = [(part.section, part.section.pipeline.call) for part in self.work if part.section.pipeline]
        check_program([call for _, call in sections])
        for section, call in sections:
            count = call.gradient_accumulation_count
            late = section.count is not None and isinstance(count, int)
            configured = replace(
                call,
                allow_recompute=self.share.option("allow_recompute", False),
                io_tiles=self.share.option("io_tiles.num_io_tiles", 0) > 0,
                remote_memory=has_remote_memory(self.share.system),
                gradient_accumulation_count=partial(int, count) if late else count,
                late=True,
            )
            configured.check_compiled()
            if late:
                configured.slots()

    def _load(self, counts: tuple[int, ...] = ()) -> list[Loaded]:
        """The loaded sections for these ``counts`` of mini-batches, which a run may set; each is compiled once."""
        if counts not in self._loaded:
            if len(self._loaded) >= _MOST_LOADED:
                self._unload(next(iter(self._loaded)))
            if os.environ.get(TRACE_FOLDER):
                self._write_traces(Path(os.environ[TRACE_FOLDER]))
            self._loaded[counts] = [self._loaded_section(part, number) for number, part in enumerate(self.imported())]
        return self._loaded[counts]

    def _write_traces(self, folder: Path) -> NoReturn:
        """Write the input of the compiler to files for ``ipu-emu compile``, and end the program."""
        for number, imported in enumerate(self.imported()):
            state = compile_state(imported, self.share)
            (folder / f"{number:03}").write_bytes(to_bytes(state))
        raise SystemExit(0)

    def _loaded_section(self, imported: ImportedSection, number: int) -> Loaded:
        share, options = self.share, engine_options()
        warn_of_flags()
        _warn_of_drift(imported, share)
        synthetic = is_synthetic() and bool(imported.infeeds)
        compiled = compile_section(imported, share, synthetic=synthetic)
        if options.get(REPORT) == "true":
            _write_report(compiled.executable, options.get(REPORT_FOLDER, "."), f"program_{number}")
        folder = options.get(STREAMING_FOLDER)
        program = LoadedProgram(compiled, f"program_{number}", folder=folder, watch=_watches(share))
        program.load()
        return Loaded(imported, program)

    def listings(self) -> list[str]:
        """The texts of the executables that have been made."""
        with self._lock:
            return [str(section.engine.executable) for sections in self._loaded.values() for section in sections]

    def _unload(self, counts: tuple[int, ...]) -> None:
        for section in self._loaded.pop(counts, ()):
            section.program.close()

    def _counts(self, inputs: Mapping[str, NDArray[Any]]) -> tuple[int, ...]:
        """Set the counts of mini-batches that are inputs of the program; return them."""
        counts = []
        for part in self.work:
            section = part.section
            if section.kind != "pipeline" or section.count is None:
                continue
            if section.count.name not in inputs:
                raise EmulatorError(
                    "gradient_accumulation_count is computed by the program; pass it as one of the inputs of compile"
                )
            assert section.pipeline is not None
            call = section.pipeline.call
            count = int(inputs[section.count.name])
            section.pipeline = replace(section.pipeline, call=replace(call, gradient_accumulation_count=count))
            section.accumulation = count * call.batch_serialization_iterations
            if section.outfeed is not None:
                section.outfeed.added = count
            counts.append(count)
        return tuple(counts)

    # Running

    def _set_seed(self) -> None:
        """Start counting steps anew if the seed of random numbers has been set since the last run."""
        value, times = seed()
        if times == self._seeded:
            return
        self._seeded, self._seed = times, value
        for sections in self._loaded.values():
            for section in sections:
                section.engine.seed, section.engine.steps = value, 0

    def run_with(self, variables: HostVariables, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Run with TensorFlow's variables, and ``inputs``; return the results. An error unloads the program."""
        try:
            results, changed = self.run({**variables.inputs, **inputs}, variables.to_device())
        except BaseException:
            self.close()
            variables.forget()
            raise
        variables.to_host(changed)
        return results

    def run(
        self, inputs: Mapping[str, NDArray[Any]], variables: dict[str, NDArray[Any]]
    ) -> tuple[list[NDArray[Any]], dict[str, NDArray[Any]]]:
        """Run with ``inputs`` by the names of tensors of the trace; return the results and the changed variables.

        A variable that is not in ``variables`` keeps the values that it has on the device, one for each replica.
        Without a device only compile, and return zeros.
        """
        with self._lock:
            self._set_seed()
            loaded = self._load(self._counts(inputs))
            if not is_attached(self.share.system):
                return self._zeros(loaded), {}
            if self._seed is not None:
                for section in loaded:
                    section.engine.seed = self._seed
            values: dict[str, NDArray[Any]] = dict(inputs) | self._known
            changed: dict[str, NDArray[Any]] = {}
            for section in loaded:
                started = perf_counter()
                current = variables | changed
                changed |= self._run_section(section, values, current)
                self._log(section, perf_counter() - started)
            if is_reported():
                self.written |= changed
            return [self._result(tensor, values) for tensor in self.results], changed

    def _zeros(self, loaded: list[Loaded]) -> list[NDArray[Any]]:
        """Zeros as results and as elements of the outfeeds; raise ArgumentError if the connection type is NEVER."""
        if self.share.system.config.device_connection.type.name == "NEVER":
            raise ArgumentError(
                "The program is compiled and cannot run: the system is configured for compilation only "
                "(device_connection.type NEVER); use DeviceConnectionType.ALWAYS to run it"
            )
        values: dict[str, NDArray[Any]] = {}
        for section in loaded:
            rows = self._rows(section, runs_of(section.imported))
            for array in rows.values():
                array[...] = 0
            work = section.imported.section
            self._deliver(section, rows, values, work.batches * work.accumulation)
        return [np.zeros(tensor.shape.as_list(), tensor.dtype.as_numpy_dtype) for tensor in self.results]

    def _log(self, loaded: Loaded, seconds: float) -> None:
        """Print modelled cycles if TF_POPLAR_FLAGS requests them."""
        if "log_cycle_count" in flags():
            cycles = loaded.program.compiled.modelled.cycles() * runs_of(loaded.imported)
            print(f"modelled cycles: {cycles}, wall time: {seconds:.3f} s", file=sys.stderr)

    def _result(self, tensor: Any, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        if tensor.name not in values:
            raise EmulatorError(
                f"The program returns {tensor.name}, which it does not compute; return another tensor"
            )
        return np.asarray(values[tensor.name], tensor.dtype.as_numpy_dtype)

    def _run_section(
        self, loaded: Loaded, values: dict[str, NDArray[Any]], variables: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        imported, engine = loaded.imported, loaded.engine
        tensors = engine.executable.graph.tensors
        with span("weights to the device", Category.WEIGHTS):
            for id, tensor in imported.inputs.items():
                if id in tensors:
                    engine.write(id, on_device(np.asarray(values[tensor.name])))
            for name, initial in imported.carried:
                write_variable(engine, name, np.asarray(values[initial.name]), imported.axes.get(id_of(name)))
            for name in imported.variables:
                if name in variables:
                    write_variable(engine, name, variables[name], imported.axes.get(id_of(name)))
        loaded.measured.run(engine, lambda: self._steps(loaded, values))
        phase = "weights to the host"
        with span(phase, Category.WEIGHTS), TracedWeightCopies(engine, phase, Category.WEIGHTS) as out:
            for number, carried in enumerate(imported.section.carried):
                name = f"carried/{number}"
                values[carried.end.name] = read_variable(engine, name, out, imported.axes.get(id_of(name)))
            return {
                name: read_variable(engine, name, out, imported.axes.get(id_of(name)))
                for name in imported.assigned
                if not name.startswith("carried/") and id_of(name) in tensors
            }

    def _steps(self, loaded: Loaded, values: dict[str, NDArray[Any]]) -> None:
        """Run the executable for all iterations of its section."""
        imported, engine = loaded.imported, loaded.engine
        runs = runs_of(imported)
        pulls = loaded.measured.pulls(imported.infeeds)
        if imported.section.kind == "while":
            self._while(loaded, pulls, values)
            return
        rows = self._rows(loaded, runs)
        data = RunData(pulls, rows, self.stop.is_set, self._teller(loaded, rows))
        try:
            for _ in range(runs):
                with span("step", Category.COMPUTE):
                    engine.run(data)
        except StopRequested:
            raise KeyboardInterrupt from None
        self._deliver(loaded, rows, values, imported.section.batches * imported.section.accumulation)

    def _teller(self, loaded: Loaded, rows: Mapping[str, NDArray[Any]]) -> Callable[[str], None] | None:
        """Return a function that passes the elements of the first outfeed to ``enqueued``."""
        tell, replicas = self.enqueued, self.share.local
        if tell is None or not loaded.imported.outfeeds:
            return None
        (outfeed, *_), told = loaded.imported.outfeeds, 0
        counts = {array: 0 for array in outfeed.arrays if isinstance(array, str)}

        def written(id: str) -> None:
            nonlocal told
            if id not in counts:
                return
            counts[id] += 1
            if min(counts.values()) < (told + 1) * replicas:
                return
            span = slice(told * replicas, (told + 1) * replicas)
            told += 1
            tell([
                np.asarray(rows[array][span] if isinstance(array, str) else np.stack([array] * replicas), kind)
                for array, kind in zip(outfeed.arrays, outfeed.dtypes, strict=True)
            ])  # fmt: skip

        return written

    def _rows(self, loaded: Loaded, runs: int) -> dict[str, NDArray[Any]]:
        tensors = loaded.engine.executable.graph.tensors
        anchors = loaded.engine.executable.anchors
        rows = {}
        for id, count in loaded.rows.items():
            tensor = tensors[id]
            repeated = runs if anchors[id].returns.name == "ALL" else 1
            make = np.zeros if is_synthetic() else np.empty  # a program on synthetic data stores nothing
            rows[id] = make((count * repeated, *tensor.shape), tensor.dtype.numpy)
        return rows

    def _while(self, loaded: Loaded, pulls: Any, values: dict[str, NDArray[Any]]) -> None:
        """Run iterations while the condition holds."""
        section, engine = loaded.imported.section, loaded.engine
        first, most = section.count
        going, count = bool(values[first.name]), 0
        while going and (most is None or count < most):
            rows = self._rows(loaded, 1)
            with span("step", Category.COMPUTE):
                engine.run(RunData(pulls, rows, self.stop.is_set))
            self._deliver(loaded, rows, values, 1)
            going, count = bool(values[section.condition.name]), count + 1

    def _deliver(
        self, loaded: Loaded, rows: Mapping[str, NDArray[Any]], values: dict[str, NDArray[Any]], enqueues: int
    ) -> None:
        """Pass rows to outfeeds, and exported tensors to the sections that read them."""
        replicas = self.share.local
        for outfeed in loaded.imported.outfeeds:
            arrays = []
            for array, kind in zip(outfeed.arrays, outfeed.dtypes, strict=True):
                if isinstance(array, str):
                    stacked = rows[array].astype(kind, copy=False)
                else:
                    micro_batches = loaded.imported.section.accumulation if outfeed.in_update else 1
                    every = outfeed.queue.keeps_all or outfeed.when is not None
                    count = enqueues // micro_batches * replicas if every else replicas
                    stacked = np.broadcast_to(np.asarray(array, kind), (count, *np.shape(array)))
                arrays.append(stacked.reshape(len(stacked) // replicas, replicas, *stacked.shape[1:]))
            if outfeed.when is not None:
                arrays = _chosen(arrays, rows[outfeed.when].reshape(-1, replicas))
            if outfeed.when is None or len(arrays[0]):
                outfeed.queue.put(arrays, replicas)
        for name, id in loaded.imported.exports.items():
            if isinstance(id, str):
                values[name] = rows[id][0]

    def close(self) -> None:
        """Leave the collectives, and free the memory of the device."""
        for counts in list(self._loaded):
            self._unload(counts)


def _chosen(arrays: list[NDArray[Any]], when: NDArray[Any]) -> list[NDArray[Any]]:
    """The elements that a branch enqueued; raise EmulatorError if only some replicas did."""
    if (when != when[:, :1]).any():
        raise EmulatorError(
            "An outfeed is enqueued in a branch that only some replicas take; enqueue it in all, or after the branch"
        )
    return [array[when[:, 0].astype(bool)] for array in arrays]


def _watches(share: DeviceShare) -> bool:
    """Whether a run stops at the first infinity or NaN."""
    return any(share.option(f"floating_point_behaviour.{name}", False) for name in ("inv", "div0", "oflo"))


def _warn_of_drift(imported: ImportedSection, share: DeviceShare) -> None:
    """Warn of replicas that train without reducing their gradients."""
    alone = all(imported.graph.tensors[gradient.total].group == (1, 1) for gradient in imported.gradients)
    if share.total > 1 and imported.gradients and alone:
        warnings.warn(
            f"{share.total} replicas train without reducing their gradients, so their weights drift apart, and the "
            "host keeps those of the first; wrap the optimizer in CrossReplicaOptimizer",
            stacklevel=2,
        )


def norm_group(share: DeviceShare) -> int:
    """The number of replicas that share statistics of batch normalisation; raise EmulatorError if it is invalid."""
    size = int(share.option("norms.experimental.distributed_batch_norm_replica_group_size", 1))
    if share.total % size:
        raise EmulatorError(
            f"The number of replicas ({share.total}) must be divisible by distributed_batch_norm_replica_group_size "
            f"({size}); use a size that divides it"
        )
    return size


def _write_report(executable: Executable, folder: str, name: str) -> None:
    """Write the program and its memory plan as text."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    replace_file(path / f"{name}.txt", str(executable).encode())
