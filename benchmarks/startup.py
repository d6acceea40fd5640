"""Start-up: how long ResNet-50 (224 x 224) takes to compile: without caches, with cached kernels, with an executable.

    python benchmarks/startup.py [--quick] [--json FILE]

Each measurement is a process of its own. Compiling is ``prepareDevice``: from the graph to a loaded engine. The last
row compares what a training process of the MLP holds at most with what its memory plan says.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from time import perf_counter

import numpy as np
from ending import clean_up_when_told, finished
from support.rounds import Row

HERE = Path(__file__).resolve()
LIMITS = {"cold": 10.0, "kernels kept": 10.0, "executable kept": 1.0}


def compile_once(model: str) -> float:
    """Seconds of ``prepareDevice`` in this process, for the model in a file."""
    import ipu_emu.popart as popart

    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472})
    ids = json.loads(Path(f"{model}.json").read_text())
    optimizer = popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)})
    session = popart.TrainingSession(model, popart.DataFlow(1, [ids["loss"]]), ids["loss"], optimizer, device)
    start = perf_counter()
    session.prepareDevice()
    return perf_counter() - start


def memory() -> tuple[float, float]:
    """(most megabytes held by this process after some steps of the MLP, megabytes of its memory plan)."""
    import ipu_emu.popart as popart
    from ipu_emu import models

    model = models.mlp((784, 4096, 4096, 10), batch=32)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472})
    flow = popart.DataFlow(1, [model.loss])
    session = popart.TrainingSession(model.proto, flow, model.loss, popart.ConstSGD(0.1), device)
    data = {model.data: np.zeros((32, 784), np.float32), model.labels: np.zeros(32, np.int32)}
    del model
    session.prepareDevice()
    session.weightsFromHost()
    for _ in range(3):
        session.run(popart.PyStepIO(data, session.initAnchorArrays()))
    plan = sum(session.executable.plan.sizes.values())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, plan / 1e6


def in_process(arguments: list[str], **variables: str) -> list[float]:
    command = [sys.executable, str(HERE), *arguments]
    done = finished(command, timeout=300, env=os.environ | variables)
    if done.returncode:
        raise SystemExit(f"startup.py: {' '.join(command)} failed:\n{done.stderr}")
    return [float(word) for word in done.stdout.split()[-2:]]


def write_model(path: str) -> None:
    from ipu_emu import models

    model = models.resnet50(batch=1)
    Path(path).write_bytes(model.proto)
    Path(f"{path}.json").write_text(json.dumps({"loss": model.loss}))


def rows(rounds: int) -> list[Row]:
    times: dict[str, list[float]] = {name: [] for name in LIMITS}
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/resnet50.onnx"
        in_process(["--write", model])
        for number in range(rounds):
            kept = {
                "IPU_EMU_KERNEL_CACHE": f"{folder}/kernels{number}",
                "NUMBA_CACHE_DIR": f"{folder}/numba{number}",
            }
            times["cold"].append(in_process(["--compile", model], **kept)[1])
            times["kernels kept"].append(in_process(["--compile", model], **kept)[1])
            executables = kept | {"POPART_CACHE_DIR": f"{folder}/executables"}
            in_process(["--compile", model], **executables)
            times["executable kept"].append(in_process(["--compile", model], **executables)[1])
    made = []
    for name, values in times.items():
        ours, limit = statistics.median(values), LIMITS[name]
        made.append(Row(f"compile ResNet-50, {name}", "s", ours, {"limit": limit}, limit / ours))
    held, plan = in_process(["--memory"])
    limit = 1.3 * plan + 250
    return [*made, Row(f"memory of an MLP with a plan of {plan:.0f} MB", "MB", held, {"limit": limit}, limit / held)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile times of ResNet-50, and memory.")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--compile", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--write", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    clean_up_when_told()
    if args.write:
        write_model(args.write)
        print(0, 0)
    elif args.compile:
        print(0, compile_once(args.compile))
    elif args.memory:
        print(*memory())
    else:
        found = rows(1 if args.quick else 3)
        for line in found:
            print(line)
        if args.json:
            args.json.write_text(json.dumps([asdict(line) for line in found], indent=2) + "\n")


if __name__ == "__main__":
    main()
