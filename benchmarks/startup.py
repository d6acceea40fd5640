"""Start-up: the time to compile real networks: without caches, with cached kernels, with an executable.

    python benchmarks/startup.py [--quick] [--json FILE]

Each measurement is a separate process: ResNet-50 (224 x 224), and BERT-base (128 tokens, float16), for training.
Compiling is ``prepareDevice``: from the graph to a loaded engine; its processor time, which other work on the machine
changes least, is beside its wall time. The last rows compare the most memory that a process holds in some steps of
training with what its memory plan says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from support.ending import clean_up_when_told, finished
from support.rounds import Row, report

HERE = Path(__file__).resolve()
NETWORKS = {"resnet50": "ResNet-50", "bert-base": "BERT-base"}
DTYPES: dict[str, Any] = {"resnet50": np.float32, "bert-base": np.float16}
LIMITS = {"cold": 3.0, "kernels kept": 3.0, "executable kept": 1.0}


def session_of(model: str) -> Any:
    """The training session of the model in a file."""
    import ipu_emu.popart as popart

    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 1472})
    loss = json.loads(Path(f"{model}.json").read_text())["loss"]
    optimizer = popart.SGD({"defaultLearningRate": (0.1, False), "defaultMomentum": (0.9, True)})
    return popart.TrainingSession(model, popart.DataFlow(1, [loss]), loss, optimizer, device)


def compile_once(model: str) -> tuple[float, float]:
    """Seconds of processor time and of wall time of ``prepareDevice`` in this process, for the model in a file."""
    session = session_of(model)
    processor, start = process_time(), perf_counter()
    session.prepareDevice()
    return process_time() - processor, perf_counter() - start


def memory(model: str) -> tuple[float, float]:
    """(most megabytes held by this process after some steps of training, megabytes of its memory plan)."""
    import ipu_emu.popart as popart

    session = session_of(model)
    session.prepareDevice()
    session.weightsFromHost()
    inputs = json.loads(Path(f"{model}.json").read_text())["inputs"]
    infos = {id: session.getInfo(id) for id in inputs}
    data = {id: np.zeros(info.shape(), info.data_type_lcase()) for id, info in infos.items()}
    for _ in range(3):
        session.run(popart.PyStepIO(data, session.initAnchorArrays()))
    plan = sum(session.executable.plan.sizes.values())
    # Not ru_maxrss, which is the parent's where that is larger.
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) * 1024 / 1e6, plan / 1e6


def in_process(arguments: list[str], **variables: str) -> list[float]:
    command = [sys.executable, str(HERE), *arguments]
    done = finished(command, timeout=300, env=os.environ | variables)
    if done.returncode:
        raise SystemExit(f"startup.py: {' '.join(command)} failed:\n{done.stderr}")
    return [float(word) for word in done.stdout.split()[-2:]]


def write_model(name: str, path: str) -> None:
    from ipu_emu import models

    model = models.mlp((784, 4096, 4096, 10), batch=32) if name == "mlp" else models.named(name, dtype=DTYPES[name])
    Path(path).write_bytes(model.proto)
    inputs = [model.data, model.labels, *model.others]
    Path(f"{path}.json").write_text(json.dumps({"loss": model.loss, "inputs": inputs}))


def compile_rows(name: str, model: str, folder: str, rounds: int) -> list[Row]:
    times: dict[str, list[list[float]]] = {kind: [] for kind in LIMITS}
    for number in range(rounds):
        caches = {
            "IPU_EMU_KERNEL_CACHE": f"{folder}/kernels-{name}-{number}",
            "NUMBA_CACHE_DIR": f"{folder}/numba-{name}-{number}",
        }
        times["cold"].append(in_process(["--compile", model], **caches))
        times["kernels kept"].append(in_process(["--compile", model], **caches))
        executables = caches | {"POPART_CACHE_DIR": f"{folder}/executables"}
        in_process(["--compile", model], **executables)
        times["executable kept"].append(in_process(["--compile", model], **executables))
    results = []
    for kind, both in times.items():
        processor, ours = (statistics.median(values) for values in zip(*both, strict=True))
        peers = {"limit": LIMITS[kind], "processor time": processor}
        results.append(Row(f"compile {NETWORKS[name]}, {kind}", "s", ours, peers, LIMITS[kind] / ours))
    return results


def rows(rounds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for name in (*NETWORKS, "mlp"):
            model = f"{folder}/{name}.onnx"
            in_process(["--write", name, model])
            if name in NETWORKS:
                yield from compile_rows(name, model, folder, rounds)
            held, plan = in_process(["--memory", model])
            limit = 1.2 * plan + 200
            case = f"memory of {NETWORKS.get(name, 'an MLP')} with a plan of {plan:.0f} MB"
            yield Row(case, "MB", held, {"limit": limit}, limit / held)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile times of ResNet-50 and BERT-base, and memory.")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--compile", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, metavar=("NAME", "MODEL"), help=argparse.SUPPRESS)
    parser.add_argument("--memory", metavar="MODEL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    clean_up_when_told()
    if args.write:
        write_model(*args.write)
        print(0, 0)
    elif args.compile:
        print(*compile_once(args.compile))
    elif args.memory:
        print(*memory(args.memory))
    else:
        report(rows(1 if args.quick else 3), args.json)


if __name__ == "__main__":
    main()
