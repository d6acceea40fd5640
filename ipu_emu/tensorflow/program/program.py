"""Program: what a compiled function does in a run: its sections one after the other, on the values of TensorFlow.

TensorFlow's variables are the master copy: a run copies the values of those that it uses to the device, and those
that it changes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event, RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipu_emu.engine import Engine, Replicas
from ipu_emu.errors import EmulatorError
from ipu_emu.tensorflow.importer.values import Variable, on_device
from ipu_emu.tensorflow.program.compiling import Compiled, compile_section, engine_options, flags, runs_of
from ipu_emu.tensorflow.program.feeding import RunData, StopRequested
from ipu_emu.tensorflow.program.section_import import ImportedSection, SectionPlan, import_section, plan_sections
from ipu_emu.tensorflow.system import DeviceShare, share_of
from ipu_emu.tensorflow.tracing.trace import Trace

__all__ = ["Loaded", "Program"]


class Loaded:
    """A section that is compiled and loaded."""

    def __init__(self, imported: ImportedSection, compiled: Compiled, engine: Engine) -> None:
        self.imported, self.compiled, self.engine = imported, compiled, engine


class Program:
    """``results`` are the tensors of the trace that a run returns; compiled when it runs first."""

    def __init__(self, trace: Trace, results: Sequence[Any], operations: Sequence[Any] = ()) -> None:
        self.trace, self.results = trace, list(results)
        self.plans: list[SectionPlan] = plan_sections(trace, [*results, *operations])
        self.stop = Event()
        self.cycles: int | None = None
        self._lock = RLock()
        self._loaded: list[Loaded] | None = None
        self._share: DeviceShare | None = None
        self._known: dict[str, NDArray[Any]] = {}
        self._seeded = 0

    # Building

    @property
    def shards(self) -> int:
        """The IPUs of a replica that the program asks for."""
        found = [max(ipus) + 1 for _, _, ipus in self.trace.shards if ipus]
        for plan in self.plans:
            if plan.section.pipeline is not None:
                mapping = plan.section.pipeline.call.mapping
                found += [max(ipus) + 1 for ipus in mapping]
        return max(found, default=1)

    @property
    def share(self) -> DeviceShare:
        """How the program uses its device."""
        if self._share is None:
            self._share = share_of(self.trace.device, self.shards)
        return self._share

    def imported(self) -> list[ImportedSection]:
        """Import all sections."""
        made = []
        for plan in self.plans:
            one = import_section(
                self.trace, plan, self._known, replicas=self.share.total, norm_group=norm_group(self.share)
            )
            self._known |= {name: value for name, value in one.exports.items() if not isinstance(value, str)}
            made.append(one)
        return made

    def _load(self) -> list[Loaded]:
        if self._loaded is None:
            made = []
            for imported in self.imported():
                synthetic = "use_synthetic_data" in flags() and bool(imported.infeeds)
                compiled = compile_section(imported, self.share, synthetic=synthetic)
                share = self.share
                replicas = Replicas(local=share.local, offset=share.offset, total=share.total)
                folder = engine_options().get("streamingMemory.folder")
                made.append(Loaded(imported, compiled, Engine(compiled.executable, replicas, folder=folder)))
            self._loaded = made
        return self._loaded

    # Variables

    def variables(self) -> list[Variable]:
        """All variables that the program uses, without those of its loops."""
        found: dict[str, Variable] = {}
        for one in self._load():
            found |= {name: v for name, v in one.imported.variables.items() if not name.startswith("carried/")}
        return list(found.values())

    # Running

    def seed(self, value: int, times: int) -> None:
        """Set the seed of random numbers where it was set for the ``times``-th time since."""
        with self._lock:
            if times == self._seeded:
                return
            self._seeded = times
            for one in self._load():
                one.engine.seed, one.engine.steps = value, 0

    def run(
        self, inputs: Mapping[str, NDArray[Any]], variables: dict[str, NDArray[Any]]
    ) -> tuple[list[NDArray[Any]], dict[str, NDArray[Any]]]:
        """Run with ``inputs`` by the names of tensors of the trace; return the results and the changed variables."""
        with self._lock:
            loaded = self._load()
            self.stop.clear()
            values: dict[str, NDArray[Any]] = dict(inputs) | self._known
            changed: dict[str, NDArray[Any]] = {}
            for one in loaded:
                current = variables | changed
                changed |= self._run_section(one, values, current)
            return [self._result(tensor, values) for tensor in self.results], changed

    def _result(self, tensor: Any, values: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        if tensor.name not in values:
            raise EmulatorError(
                f"The program returns {tensor.name}, which it does not compute; return another tensor"
            )
        return np.asarray(values[tensor.name], tensor.dtype.as_numpy_dtype)

    def _run_section(
        self, one: Loaded, values: dict[str, NDArray[Any]], variables: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        imported, engine = one.imported, one.engine
        tensors = engine.executable.graph.tensors
        for id, tensor in imported.inputs.items():
            if id in tensors:
                engine.write(id, on_device(np.asarray(values[tensor.name])))
        for name, initial in imported.carried:
            if f"variable/{name}" in tensors:
                engine.write(f"variable/{name}", on_device(np.asarray(values[initial.name])))
        for name in imported.variables:
            if not name.startswith("carried/") and f"variable/{name}" in tensors:
                engine.write(f"variable/{name}", on_device(variables[name]))
        self._steps(one, values)
        for number, carried in enumerate(imported.section.carried):
            values[carried.end.name] = engine.read(f"variable/carried/{number}")
        return {
            name: engine.read(f"variable/{name}")
            for name in imported.assigned
            if not name.startswith("carried/") and f"variable/{name}" in tensors
        }

    def _steps(self, one: Loaded, values: dict[str, NDArray[Any]]) -> None:
        """Run the executable as often as its section says."""
        imported, engine = one.imported, one.engine
        runs = runs_of(imported)
        pulls = [(queue.next_element, ids) for queue, ids in imported.infeeds]
        if imported.section.kind == "while":
            self._while(one, pulls, values)
            return
        rows = self._rows(one, runs)
        data = RunData(pulls, rows, self.stop.is_set)
        try:
            for _ in range(runs):
                engine.run(data)
        except StopRequested:
            raise KeyboardInterrupt from None
        self._deliver(one, rows, values, imported.section.batches * imported.section.accumulation)

    def _rows(self, one: Loaded, runs: int) -> dict[str, NDArray[Any]]:
        tensors = one.engine.executable.graph.tensors
        anchors = one.engine.executable.anchors
        made = {}
        for id, count in one.compiled.rows.items():
            tensor = tensors[id]
            repeated = runs if anchors[id].returns.name == "ALL" else 1
            made[id] = np.empty((count * repeated, *tensor.shape), tensor.dtype.numpy)
        return made

    def _while(self, one: Loaded, pulls: Any, values: dict[str, NDArray[Any]]) -> None:
        """Run one iteration after the other for as long as the condition holds."""
        section, engine = one.imported.section, one.engine
        first, most = section.count
        going, count = bool(values[first.name]), 0
        while going and (most is None or count < most):
            rows = self._rows(one, 1)
            engine.run(RunData(pulls, rows, self.stop.is_set))
            self._deliver(one, rows, values, 1)
            going, count = bool(values[section.condition.name]), count + 1

    def _deliver(
        self, one: Loaded, rows: Mapping[str, NDArray[Any]], values: dict[str, NDArray[Any]], enqueues: int
    ) -> None:
        """Give rows to outfeeds, and exported tensors to whoever reads them."""
        replicas = self.share.local
        for outfeed in one.imported.outfeeds:
            arrays = []
            for given, kind in zip(outfeed.arrays, outfeed.dtypes, strict=True):
                if isinstance(given, str):
                    found = rows[given].astype(kind, copy=False)
                else:
                    count = enqueues * replicas if outfeed.queue.keeps_all else replicas
                    found = np.broadcast_to(np.asarray(given, kind), (count, *np.shape(given)))
                arrays.append(found.reshape(-1, replicas, *found.shape[1:]))
            outfeed.queue.put(arrays, replicas)
        for name, id in one.imported.exports.items():
            if isinstance(id, str):
                values[name] = rows[id][0]

    def close(self) -> None:
        """Leave the collectives, and free the memory of the device."""
        for one in self._loaded or ():
            one.engine.close()
        self._loaded = None


def norm_group(share: DeviceShare) -> int:
    """How many replicas share the statistics of a batch normalisation; raise EmulatorError if it does not fit."""
    experimental = getattr(getattr(share.system.config, "norms", None), "experimental", None)
    size = int(getattr(experimental, "distributed_batch_norm_replica_group_size", 1) or 1)
    if share.total % size:
        raise EmulatorError(
            f"The number of replicas ({share.total}) must be divisible by distributed_batch_norm_replica_group_size "
            f"({size}); use a size that divides it"
        )
    return size
