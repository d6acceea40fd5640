"""Measured job: the job of a measured program, from the executable that it compiled, predicted on a Pod."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ipu_emu.compiler.cache.executable_cache import load_executable
from ipu_emu.errors import EmulatorError
from ipu_emu.graph import Graph, Role, StepPhase
from ipu_emu.hardware import System
from ipu_emu.predict.calibration.profile import shipped
from ipu_emu.predict.job import Job, smallest_pod
from ipu_emu.predict.networks.graph_network import graph_network
from ipu_emu.predict.prediction import predict
from ipu_emu.predict.scaling import ScalePoint, scale_points
from ipu_emu.program.executable import Executable

_IPUS = (1, 2, 4, 8, 16, 32, 64)


def on_pods(folder: Path, program: str, *, strong: bool) -> list[ScalePoint]:
    """Predictions of the program with executables in ``folder`` at 1 to 64 IPUs; EmulatorError if there are none.

    ``strong``: micro-batches get smaller with more replicas, down to a sample; else they stay.
    """
    executables = [load_executable(path) for path in folder.glob("*.ipuexe")]
    if not executables:
        raise EmulatorError("the program compiled nothing for IPUs that could be kept")
    job, profile = _job(max(executables, key=_size), program), shipped()
    sized = [
        replace(
            job,
            replicas=ipus // job.ipus,
            batch=max(1, job.batch * job.ipus // ipus) if strong else job.batch,
            system=smallest_pod(ipus, job.system),
        )
        for ipus in _IPUS
        if ipus >= job.ipus
    ]
    return scale_points([predict(job, profile) for job in sized])


def _size(executable: Executable) -> tuple[bool, int]:
    """Order of executables: training before inference, then the samples of a replica."""
    trains = any(op.phase is StepPhase.UPDATE for op in executable.graph.ops)
    return trains, _batch(executable) * executable.step.accumulation


def _batch(executable: Executable) -> int:
    return next((tensor.shape[0] for tensor in executable.inputs if tensor.shape), 1)


def _job(executable: Executable, program: str) -> Job:
    """The job of one replica, for a network that is the forward part of the graph."""
    graph, batch = executable.graph, _batch(executable)
    forward = Graph(dict(graph.tensors), [op for op in graph.ops if op.phase is StepPhase.FORWARD], dict(graph.data))
    weights, states = (graph.with_role(role) for role in (Role.WEIGHT, Role.STATE))
    per_weight = round(sum(t.nelms for t in states) / max(1, sum(t.nelms for t in weights)))
    return Job(
        program,
        System.named("pod16"),
        ipus=1 + max(op.place.ipu for op in graph.ops),
        batch=batch,
        accumulation=executable.step.accumulation,
        training=len(forward.ops) < len(graph.ops),
        dtype="float16" if any(t.dtype.itemsize == 2 for t in weights) else "float",
        optimiser=("sgd", "momentum", "adam")[min(per_weight, 2)],
        own_network=graph_network(forward, program, batch),
    )
