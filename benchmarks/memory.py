"""How much recomputation, offloading and sharding reduce the memory of a step: planned and measured.

    python benchmarks/memory.py [--quick] [--json FILE]

Activations: a transformer of 12 layers (GPT-2, 256 wide, 256 long), in a separate process for each option. The plan
is that of the transient region; measured is the anonymous memory of the process after three steps, less that before
the engine was created and less the persistent regions of the plan; Streaming Memory is not anonymous. States: Adam
for 4 million weights in 4 processes of one replica; measured are their resident pages after three steps. All numbers
are percent of the value without the option.
"""

from __future__ import annotations

import argparse
import json
import mmap
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from support.ending import clean_up_when_told, finished
from support.rounds import Row

from ipu_emu import models, popart
from ipu_emu.graph import Role

_TIMEOUT = 280.0
OFF_CHIP = popart.TensorLocationSettings(popart.TensorLocation(popart.TensorStorage.OffChip))
SHARED = popart.TensorLocationSettings(
    popart.TensorLocation(popart.TensorStorage.OnChip, popart.ReplicatedTensorSharding.On)
)
#: Session options by the name of a way.
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recomputation": {"autoRecomputation": popart.RecomputationType.Standard},
    "activations off chip": {"activationTensorLocationSettings": OFF_CHIP},
    "states shared": {"optimizerStateTensorLocationSettings": SHARED},
}


def anonymous() -> int:
    """Bytes of anonymous memory that the process has in use."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


def resident(array: np.ndarray) -> int:
    """Bytes of ``array`` that are in memory, in whole pages."""
    first, last = array.ctypes.data // mmap.PAGESIZE, (array.ctypes.data + array.nbytes - 1) // mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        file.seek(8 * first)
        entries = np.frombuffer(file.read(8 * (last - first + 1)), np.uint64)
    return int((entries >> np.uint64(63)).sum()) * mmap.PAGESIZE


def run(session: Any, data: dict[str, np.ndarray]) -> int:
    """Return the anonymous memory of an engine after three steps."""
    before = anonymous()
    session.loadEngineAndConnectStreams()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    for _ in range(3):
        session.run(popart.PyStepIO(data, anchors))
    return anonymous() - before


def activations(way: str, quick: bool) -> dict[str, float]:
    """Bytes of activations of the transformer."""
    length = 64 if quick else 256
    model = models.gpt2(batch=4, layers=12, width=256, heads=4, length=length, context=length, vocabulary=512)
    options = popart.SessionOptions()
    for name, value in WAYS[way].items():
        setattr(options, name, value)
    flow, device = popart.DataFlow(1, [model.loss]), popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(model.proto, flow, model.loss, popart.ConstSGD(0.1), device, userOptions=options)
    session.prepareDevice(loadEngine=False)
    plan = session.executable.plan
    infos = {id: session.getInfo(id) for id in (model.data, model.labels)}
    used = run(session, {id: np.zeros(info.shape(), info.data_type_lcase()) for id, info in infos.items()})
    always = sum(size for region, size in plan.sizes.items() if region != "transient")
    return {"plan": plan.sizes["transient"], "measured": used - always + plan.sizes.get("streamed", 0)}


def states(way: str, quick: bool) -> dict[str, float]:
    """Bytes of the states of Adam in this instance of a job."""
    import popdist_py.popart

    width = 512 if quick else 2048
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [1, width]))
    w = builder.addInitializedInputTensor(np.ones((width, width), np.float32))
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.matmul([x, w])], 1.0)
    options = popart.SessionOptions()
    popdist_py.popart.configureSessionOptions(options)
    for name, value in WAYS[way].items():
        setattr(options, name, value)
    adam = popart.Adam({"defaultLearningRate": (0.1, True)})
    device = popdist_py.popart.getDevice(1)
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, [loss]), loss, adam, device, userOptions=options
    )
    session.prepareDevice(loadEngine=False)
    run(session, {x: np.zeros((1, width), np.float32)})
    variables = session.executable.graph.with_role(Role.STATE)
    held = sum(resident(session.engine.view(tensor.id)) for tensor in variables)
    session.close()
    sizes = {"plan": sum(tensor.nbytes for tensor in variables), "measured": held}
    return sizes if popdist_py.getInstanceIndex() == 0 else {}


def told(case: str, way: str, *, quick: bool, launcher: tuple[str, ...] = ()) -> dict[str, float]:
    """The result of a separate process."""
    command = [*launcher, sys.executable, __file__, "--case", case, way, *(["--quick"] if quick else [])]
    done = finished(command, timeout=_TIMEOUT)
    if done.returncode:
        raise SystemExit(done.stderr)
    line = next(line for line in done.stdout.splitlines() if '"plan"' in line)
    sizes: dict[str, float] = json.loads(line[line.index("{") :])
    return sizes


def rows(quick: bool) -> list[Row]:
    job = ("poprun-py", "--num-instances", "4", "--num-replicas", "4")
    cases = [
        ("activations of 12 layers, recomputation", "activations", "recomputation", (), 40.0),
        ("activations of 12 layers, off chip", "activations", "activations off chip", (), 40.0),
        ("optimiser states per process, shared by 4 replicas", "states", "states shared", job, 27.0),
    ]
    table = []
    for name, case, way, launcher, wanted in cases:
        plain, other = (told(case, variant, quick=quick, launcher=launcher) for variant in ("plain", way))
        for kind in ("plan", "measured"):
            ours = 100 * other[kind] / plain[kind]
            table.append(Row(f"{name}, {kind}", "%", ours, {"wanted": wanted}, wanted / ours))
            print(f"{table[-1].case:64} {other[kind] / 1e6:8.1f} of {plain[kind] / 1e6:8.1f} MB  {ours:5.1f} %")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller models")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        case, way = options.case
        sizes = {"activations": activations, "states": states}[case](way, options.quick)
        if sizes:
            print(json.dumps(sizes), flush=True)
        return
    clean_up_when_told()
    table = rows(options.quick)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in table], indent=1))


if __name__ == "__main__":
    main()
