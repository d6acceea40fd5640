"""Library inputs: damaged models, executables, checkpoints, sample files, environments and emulator commands."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import warnings
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import click.testing
import numpy as np
import onnx

from gcl.errors import GclError
from gcl.scheduling.options import Options
from ipu_emu import popart
from ipu_emu.cli import main as ipu_emu_main
from ipu_emu.compiler.cache.executable_cache import from_bytes, load_executable, to_bytes
from ipu_emu.errors import EmulatorError, FeedError
from ipu_emu.hostio.checkpoint import CheckpointError, Checkpoints
from ipu_emu.hostio.checkpoint.manifest import Manifest
from ipu_emu.hostio.checkpoint.safetensors_file import read, write
from ipu_emu.hostio.data.data_modes import mode_of
from ipu_emu.hostio.data.sample_files import open_files
from ipu_emu.onnx.read import initializers
from ipu_emu.ops.codegen.llvm_compiler import KERNEL_CACHE
from popdist_py.environment import Environment
from popdist_py.errors import PopdistError
from tests.hostile.inputs.command_output import environment
from tests.hostile.inputs.mutations import ODD_WORDS, damaged, deep_json, odd_value, torn_word
from tests.hostile.kind import Trial
from tests.ipu_emu.compiler.cache.test_executable_cache import session
from tests.ipu_emu.helpers.resuming_job import Job
from tests.ipu_emu.onnx import test_malformed_models as malformed

__all__ = [
    "checkpoints",
    "emulator_commands",
    "executables",
    "external_data",
    "library_environments",
    "models",
    "safetensors_files",
    "sample_files",
]

_DATA = Path(__file__).parents[2] / "ipu_emu" / "onnx" / "data"


@contextmanager
def models() -> Iterator[Trial]:
    """Damaged ONNX models, as far as compiling them."""
    seeds = [malformed.GOOD, *(path.read_bytes() for path in sorted(_DATA.glob("*.onnx")))]

    def trial(dice: random.Random) -> list[str]:
        good = seeds[0] if dice.random() < 0.8 else dice.choice(seeds)
        if dice.random() < 0.5:
            data = damaged(good, dice)
        else:
            proto = onnx.load_model_from_string(good)
            for _ in range(dice.choice([1, 1, 2, 3])):
                dice.choice(malformed.MUTATIONS)(proto.graph, dice.choice(proto.graph.node), dice)
            data = proto.SerializeToString()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text = malformed.outcome(data)
        return [] if text and "Traceback" not in text else [f"the message is {text!r}"]

    yield trial


#: Parts of locations, in a folder with the file ``data``, the folder ``below``, and links inwards and outwards.
_PARTS = [
    "..",
    "..",
    ".",
    "below",
    "data",
    "private",
    "in",
    "out",
    "up",
    "around",
    "pipe",
    "",
    "\0",
    "\u00e9",
    "~",
    "{folder}",
]


@contextmanager
def external_data() -> Iterator[Trial]:
    """Locations, offsets and lengths of external data: what is read comes from the folder of the model."""
    with TemporaryDirectory() as outer, chdir(outer):
        folder = Path(outer, "model")
        (folder / "below").mkdir(parents=True)
        Path(outer, "private").write_bytes(np.full(64, -1, np.float32).tobytes())
        for file in (folder / "data", folder / "below" / "data"):
            file.write_bytes(np.ones(64, np.float32).tobytes())
        links = {"in": "below/data", "out": "../private", "up": "..", "around": "around"}
        for link, target in links.items():
            (folder / link).symlink_to(target)
        os.mkfifo(folder / "pipe")

        def trial(dice: random.Random) -> list[str]:
            words = [
                dice.choice(_PARTS).format(folder=dice.choice([outer, folder])) for _ in range(dice.randrange(1, 6))
            ]
            entries = {"location": dice.choice(["", "", "", "/", "/proc/self/cwd/"]) + "/".join(words)}
            numbers = ["0", "64", "252", "-4", "1e3", str(1 << 63), str(1 << 70), dice.choice(ODD_WORDS)]
            entries |= {key: dice.choice(numbers) for key in ("offset", "length") if dice.random() < 0.2}
            tensor = onnx.TensorProto(name="w", data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value.encode(errors="replace").decode())
            graph = onnx.helper.make_graph([], "g", [], [], [tensor])
            proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)])
            (folder / "model.onnx").write_bytes(proto.SerializeToString())
            os.chdir(folder)
            source = dice.choice([str(folder / "model.onnx"), "model.onnx", proto.SerializeToString()])
            try:
                value = initializers(source)["w"]
            except EmulatorError as error:
                return (
                    [] if "Initializer 'w'" in str(error) or "Unrecognised file name" in str(error) else [str(error)]
                )
            return [] if value == 1 else [f"{entries} was read, as {value}"]

        yield trial


@contextmanager
def executables() -> Iterator[Trial]:
    """Damaged executables: with a wrong checksum, and with one that fits."""
    trained, _ = session()
    trained.prepareDevice(loadEngine=False)
    original = to_bytes(trained.executable, "key")
    with TemporaryDirectory() as folder:
        file = Path(folder, "e.ipuexe")
        os.chmod(folder, 0o700)

        def trial(dice: random.Random) -> list[str]:
            sealed = dice.random() < 0.7
            body = damaged(original[40:], dice)
            data = original[:8] + sha256(body).digest() + body if sealed else damaged(original, dice)
            try:
                if dice.random() < 0.2:
                    file.write_bytes(data)
                    load_executable(file, "key")
                else:
                    from_bytes(data, "key")
            except EmulatorError:
                return []
            return [] if sealed or data == original else ["an executable with a wrong checksum was loaded"]

        yield trial


@contextmanager
def checkpoints() -> Iterator[Trial]:
    """Damaged folders of checkpoints: the newest undamaged one is restored, or there is one message."""
    with TemporaryDirectory() as folder, environment({}):
        good, used = Path(folder, "good"), Path(folder, "used")
        job, digests = Job(), dict[int, str]()
        digests[0] = job.digest()
        with Checkpoints(good, keep=3) as saved:
            for step in range(3):
                job.step(step)
                saved.save(job.session, step + 1, {"position": step + 1})
                digests[step + 1] = job.digest()

        def trial(dice: random.Random) -> list[str]:
            shutil.rmtree(used, ignore_errors=True)
            shutil.copytree(good, used)
            files = sorted(path for path in used.rglob("*") if path.is_file())
            harmed = dice.sample(files, dice.choice([1, 1, 2, 3]))
            for file in harmed:
                _harm(file, dice)
            changed = {file.relative_to(used) for file in harmed if _differs(file, good / file.relative_to(used))}
            named = f"harmed: {sorted(map(str, changed))}"
            undamaged = [step for step in digests if step and not any(f"{step:09}" in str(file) for file in changed)]
            forged = any(file.suffix == ".json" and _is_sealed(file) for file in harmed)
            try:
                with warnings.catch_warnings(record=True) as said, Checkpoints(used, keep=3) as restored:
                    warnings.simplefilter("always")
                    resumed = restored.restore(job.session)
            except CheckpointError as error:
                needless = undamaged and not forged and Path(".lock") not in changed
                return [] if str(error) and not needless else [named, f"the message is {error}"]
            step = resumed.step
            if not step or (not forged and step != max(undamaged, default=step)) or (step != 3 and not said):
                return [named, f"step {step} was restored, with {len(said)} warnings"]
            if job.digest() != digests.get(step) or (resumed.state != {"position": step} and not forged):
                return [named, f"step {step} was restored with other weights or the state {resumed.state}"]
            return []

        yield trial
        job.close()


def _differs(file: Path, original: Path) -> bool:
    return not file.is_file() or file.read_bytes() != original.read_bytes()


def _is_sealed(file: Path) -> bool:
    """Whether a manifest has a valid checksum, so that only its content can show that it was changed."""
    try:
        Manifest.decoded(file.read_bytes())
    except (OSError, ValueError) as error:
        return "checksum" not in str(error) and not isinstance(error, OSError)
    return True


def _harm(file: Path, dice: random.Random) -> None:
    match dice.randrange(6):
        case 0:
            file.unlink()
        case 1:
            file.unlink()
            file.mkdir()
        case 2:
            file.write_bytes(b"" if dice.random() < 0.5 else dice.randbytes(100))
        case 3 if file.suffix == ".json":
            file.write_bytes(_resealed(file.read_bytes(), dice))
        case _:
            file.write_bytes(damaged(file.read_bytes(), dice))


def _resealed(data: bytes, dice: random.Random) -> bytes:
    """A changed manifest with a valid checksum: most are refused because of their content."""
    content = json.loads(data)
    content.pop("sha256", None)
    content[dice.choice([*content, "more"])] = odd_value(dice)
    body = json.dumps(content).encode(errors="surrogateescape").removesuffix(b"}")
    return body + b',\n "sha256": "%s"\n}\n' % sha256(body).hexdigest().encode()


@contextmanager
def safetensors_files() -> Iterator[Trial]:
    with TemporaryDirectory() as folder:
        file = Path(folder, "a.safetensors")
        write(file, {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.ones(3, np.float16)})
        good = file.read_bytes()

        def trial(dice: random.Random) -> list[str]:
            data = damaged(good, dice)
            if dice.random() < 0.2:
                head = deep_json(dice.choice([10, 5_000, 100_000]), dice).encode()
                data = len(head).to_bytes(8, "little") + head + good[-60:]
            file.write_bytes(data)
            with suppress(ValueError):
                read(file)
            return []

        yield trial


@contextmanager
def sample_files() -> Iterator[Trial]:
    """Damaged .npy, .npz, Arrow and Parquet files, opened and read."""
    import pyarrow as arrow
    import pyarrow.parquet

    with TemporaryDirectory() as folder:
        rows = np.arange(24, dtype=np.float32).reshape(6, 4)
        good = {}
        for suffix, save in ((".npy", np.save), (".npz", np.savez), (".npz", np.savez_compressed)):
            stream = io.BytesIO()
            save(stream, rows)  # type: ignore[operator]
            good[f"{save.__name__}{suffix}"] = stream.getvalue()
        table = arrow.table({"x": list(rows), "y": arrow.array(range(6))})
        pyarrow.parquet.write_table(table, Path(folder, "t.parquet"))
        good["t.parquet"] = Path(folder, "t.parquet").read_bytes()
        with arrow.ipc.new_file(str(Path(folder, "t.arrow")), table.schema) as out:
            out.write_table(table)
        good["t.arrow"] = Path(folder, "t.arrow").read_bytes()

        def trial(dice: random.Random) -> list[str]:
            name = dice.choice(sorted(good))
            file = Path(folder, f"damaged{Path(name).suffix}")
            file.unlink(missing_ok=True)  # the one before is mapped still
            file.write_bytes(damaged(good[name], dice))
            try:
                content = open_files(file)
                for part in content.values() if isinstance(content, dict) else [content]:
                    np.asarray(part[0]).tobytes()
            except (FeedError, IndexError):  # IndexError: no rows
                pass
            return []

        yield trial


#: Variables that the libraries read, with a good value.
_VARIABLES = {
    "POPDIST_NUM_TOTAL_REPLICAS": "8",
    "POPDIST_NUM_LOCAL_REPLICAS": "2",
    "POPDIST_NUM_IPUS_PER_REPLICA": "2",
    "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
    "POPDIST_REPLICA_INDEX_OFFSET": "4",
    "POPDIST_LOCAL_INSTANCE_INDEX": "0",
    "POPDIST_OFFLINE_MODE": "0",
    "POPDIST_JOB": "77",
    "IPU_EMU_SYSTEM": "pod16",
    "IPU_EMU_DATA_MODE": "real",
    "IPU_EMU_CLAIMS": "/tmp",
    KERNEL_CACHE: "/tmp/kernels",
    "POPART_CACHE_DIR": "/tmp/executables",
    "POPLAR_TARGET_OPTIONS": '{"ipuLinkDomainSize": "64"}',
    "TF_POPLAR_FLAGS": "--use_synthetic_data",
    "GCL_OPTIONS": '{"method": "clockwise_ring", "syncful.useOptimisedLayout": false}',
    "GCL_NUM_IO_TILES": "32",
    "GCL_LOG_LEVEL": "INFO",
    "GCL_REAL_COLLECTIVES": "1",
    "GCL_TRANSPORT": "auto",
}


@contextmanager
def library_environments() -> Iterator[Trial]:
    """Every reader of variables either understands them, or raises an error of its package."""
    yield _library_environment


def _library_environment(dice: random.Random) -> list[str]:
    values = {}
    for name in dice.sample(sorted(_VARIABLES), dice.randrange(1, 6)):
        words = torn_word(_VARIABLES[name], dice) if dice.random() < 0.5 else [dice.choice(ODD_WORDS)]
        if name.endswith("OPTIONS") and dice.random() < 0.6:
            key = dice.choice(["method", "useOptimisedLayout", "ipuLinkDomainSize", "maxBytesPerTile", "syncful"])
            deep = deep_json(dice.choice([10, 5_000, 50_000]), dice)
            words = [dice.choice([deep, json.dumps({key: odd_value(dice)})])]
        values[name] = " ".join(words).replace("\0", "").encode(errors="replace").decode()
    with environment(values):
        for reader in (
            lambda: Environment.from_environ(os.environ),
            lambda: Options.from_environ(os.environ),
            lambda: mode_of(os.environ),
            lambda: popart.DeviceManager().enumerateDevices(),
            lambda: popart.DeviceManager().createIpuModelDevice({"numIPUs": 1}),
        ):
            try:
                reader()  # type: ignore[no-untyped-call]
            except (PopdistError, GclError, EmulatorError) as error:
                if not str(error):
                    return [repr(values), f"{type(error).__name__} without a message"]
            except Exception as error:
                return [repr(values), f"{type(error).__name__}: {error}"]
    return []


#: Good command lines of ipu-emu that are quick.
_COMMANDS = [
    line.split()
    for line in (
        "info",
        "info --system bow-pod64",
        "schedule --kind grouped --stages 4 --count 8",
        "schedule --kind popart --stages 2 --count 4",
        "schedule --kind interleaved --stages 3 --count 6",
        "models",
        "memory mlp",
        "memory mlp --system pod4",
        "clock mlp --system bow-pod16",
        "compile mlp --stop-after lower",
        "compile --list",
        "hostio --help",
        "--help",
    )
]


@contextmanager
def emulator_commands() -> Iterator[Trial]:
    runner = click.testing.CliRunner()

    def trial(dice: random.Random) -> list[str]:
        line = list(dice.choice(_COMMANDS))
        for _ in range(dice.choice([1, 1, 2])):
            at = dice.randrange(len(line) + 1)
            line[at : at + 1] = torn_word(line[at] if at < len(line) else "--", dice)
        with environment({}), runner.isolated_filesystem():
            done = runner.invoke(ipu_emu_main, line, prog_name="ipu-emu")
        ours = done.exception is None or isinstance(done.exception, SystemExit)
        if ours and done.exit_code in (0, 2) and done.output and "Traceback" not in done.output:
            return []
        return [f"ipu-emu {line!r}", f"code {done.exit_code}, {done.exception!r}, {done.output[-500:]!r}"]

    yield trial
