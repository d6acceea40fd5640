"""Executable cache: a loaded executable runs the same step; damaged and foreign files are not used."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import tracemalloc
import warnings
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from ipu_emu import models, popart
from ipu_emu.compiler.cache import executable_cache
from ipu_emu.compiler.cache.executable_cache import from_bytes, to_bytes
from ipu_emu.errors import EmulatorError
from ipu_emu.session import compiled_program
from ipu_emu.session.options.compile_options import cache_folder
from tests.ipu_emu.helpers.sessions import device, options


def session(rate: float = 0.1, widths: tuple[int, ...] = (6, 5, 3), seed: int = 0, **values: Any) -> Any:
    model = models.mlp(widths, batch=4, seed=seed)
    opts = options(**values)
    training = popart.TrainingSession(
        model.proto,
        popart.DataFlow(1, [model.loss]),
        model.loss,
        popart.ConstSGD(rate),
        device(opts),
        userOptions=opts,
    )
    return training, model


def losses(training: Any, model: models.Model) -> list[float]:
    training.weightsFromHost()
    anchors = training.initAnchorArrays()
    random = np.random.default_rng(1)
    data = {
        model.data: random.standard_normal((4, training.getInfo(model.data).shape()[1])).astype(np.float32),
        model.labels: np.array([0, 1, 2, 1], np.int32),
    }
    values = []
    for _ in range(3):
        training.run(popart.PyStepIO(data, anchors))
        values.append(float(anchors[model.loss]))
    return values


def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how often sessions compile."""
    count: list[int] = []
    lowered = compiled_program.lowered
    monkeypatch.setattr(compiled_program, "lowered", lambda step: (count.append(1), lowered(step))[1])
    return count


def run(**values: Any) -> list[float]:
    training, model = session(**values)
    training.prepareDevice()
    return losses(training, model)


def test_a_second_session_loads_and_computes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run()
    count = compiled(monkeypatch)
    monkeypatch.setenv("POPART_CACHE_DIR", str(tmp_path / "new"))
    assert [run(), run()] == [plain, plain]
    assert len(count) == 1
    assert len(list((tmp_path / "new").glob("*.ipuexe"))) == 1


def test_no_umask_makes_executables_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = compiled(monkeypatch)
    monkeypatch.setenv("POPART_CACHE_DIR", str(tmp_path / "new"))
    before = os.umask(0)
    try:
        with warnings.catch_warnings(action="error"):
            assert run() == run()
    finally:
        os.umask(before)
    assert len(count) == 1


def test_weights_belong_to_the_model_not_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(seed=7)
    count = compiled(monkeypatch)
    monkeypatch.setenv("POPART_CACHE_DIR", str(tmp_path))
    first = run(seed=0)
    assert run(seed=7) == plain != first
    assert len(count) == 1


@pytest.mark.parametrize("other", [{"rate": 0.2}, {"widths": (6, 4, 3)}, {"A": 2}], ids=str)
def test_other_graphs_and_options_have_other_keys(
    other: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPART_CACHE_DIR", str(tmp_path))
    for values in ({}, {}, other):
        session(**values)[0].prepareDevice(loadEngine=False)
    assert len(list(tmp_path.glob("*.ipuexe"))) == 2


@pytest.mark.filterwarnings("error")
def test_the_key_depends_on_all_that_scratch_sizes_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a plan of less scratch than the kernels of this machine use, they would overwrite other tensors."""
    read_bytes = Path.read_bytes

    def hashed(width: int, changed: str = "") -> bytes:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", lambda path: read_bytes(path) + b"#" * (path.name == changed))
            patch.setattr(executable_cache, "vector_width", lambda: width)
            return bytes(executable_cache.compiler_hash.__wrapped__())

    assert len({hashed(8), hashed(16), hashed(8, "gemm.py")}) == 3


def test_damaged_and_missing_files_are_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run()
    monkeypatch.setenv("POPART_CACHE_DIR", str(tmp_path))
    run()
    (path,) = tmp_path.glob("*.ipuexe")
    content = path.read_bytes()
    random = np.random.default_rng(0)
    for trial in range(12):
        torn = bytearray(content[: random.integers(len(content))] if trial % 3 else content)
        if trial % 3 == 0:
            torn[random.integers(len(torn))] ^= 1 << int(random.integers(8))
        path.write_bytes(bytes(torn) if trial % 3 < 2 else random.bytes(100))
        with pytest.warns(UserWarning, match="It is replaced") as warned:
            assert run() == plain
        assert len(warned) == 1
        assert path.read_bytes() == content


def test_a_foreign_head_with_a_good_checksum_is_refused() -> None:
    training, _ = session()
    training.prepareDevice(loadEngine=False)
    content = to_bytes(training.executable, "key")
    assert str(from_bytes(content, "key")) == str(training.executable)
    with pytest.raises(EmulatorError, match="another model"):
        from_bytes(content, "other")
    body = bytearray(content[40:])
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        changed = bytearray(body)
        for _ in range(3):
            changed[random.integers(8, len(changed))] = random.integers(256)
        try:
            from_bytes(content[:8] + sha256(changed).digest() + bytes(changed), "key")
        except EmulatorError:
            refused += 1
    assert refused > 100  # the others changed only names and numbers; none raised another error


def test_a_folder_that_cannot_be_made_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("POPART_CACHE_DIR", str(tmp_path / "file" / "folder"))
    with pytest.warns(UserWarning, match="Cannot save executables"):
        run()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to others")
def test_files_that_others_may_have_written_are_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(enableEngineCaching=True, cachePath=str(tmp_path / "cache"))
    (file,) = (tmp_path / "cache").glob("*.ipuexe")
    count = compiled(monkeypatch)
    for path, spoil, text in (
        (file, lambda: os.chown(file, 65534, -1), "belongs to user 65534, .* It is replaced"),
        (file, lambda: file.chmod(0o666), "other users may write to .* It is replaced"),
        (file.parent, lambda: file.parent.chmod(0o777), "Cannot save executables in .*: other users may write"),
    ):
        spoil()
        before = len(count)
        with pytest.warns(UserWarning, match=text):
            assert run(enableEngineCaching=True, cachePath=str(path if path.is_dir() else path.parent)) == plain
        assert len(count) == before + 1
    with pytest.raises(EmulatorError, match=r"is not loaded: other users may write .* copy it to a private folder"):
        executable_cache.load_executable(file)


def test_random_changes_with_a_good_checksum_are_an_error_of_the_package(tmp_path: Path) -> None:
    training, _ = session()
    training.prepareDevice(False)
    training.saveExecutable(str(tmp_path / "x"))
    content = (tmp_path / "x").read_bytes()
    draw, refused = random.Random(0), 0
    for _ in range(500):
        body = bytearray(content[40:])
        for _ in range(draw.randrange(1, 4)):
            body[draw.randrange(min(len(body), 4096))] = draw.choice([0, 1, 0x7F, 0x91, 0xC1, 0xDD, 0xFF])
        try:
            from_bytes(content[:8] + sha256(body).digest() + bytes(body))
        except EmulatorError:
            refused += 1
    assert refused > 250
    nested = msgpack.packb({"key": "", "blobs": [], "value": None}).replace(
        b"\xc0", b"\x92\xa4list\x91" * 400 + b"\xc0"
    )
    body = len(nested).to_bytes(8, "little") + nested
    with pytest.raises(EmulatorError):
        from_bytes(content[:8] + sha256(body).digest() + body)


def test_a_full_disk_costs_a_warning_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: object, data: bytes, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("POPART_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(executable_cache, "replace_file", full)
    with pytest.warns(UserWarning, match="No space left on device"):
        run()
    assert not list(tmp_path.glob("*.ipuexe"))


def test_export_and_load(tmp_path: Path) -> None:
    training, model = session()
    training.prepareDevice(False)
    training.saveExecutable(str(tmp_path / "one"))
    other, _ = session()
    other.loadExecutable(str(tmp_path / "one"))
    other.loadEngineAndConnectStreams()
    assert losses(other, model) == run()
    third, _ = session(rate=0.5)
    with pytest.raises(EmulatorError, match="compiled from another model"):
        third.loadExecutable(str(tmp_path / "one"))
    with pytest.raises(EmulatorError, match="No such file"):
        third.loadExecutable(str(tmp_path / "none"))


def test_prepare_device_uses_the_executable_that_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training, model = session()
    training.prepareDevice(False)
    training.saveExecutable(str(tmp_path / "one"))
    other, _ = session()
    other.loadExecutable(str(tmp_path / "one"))
    with monkeypatch.context() as context:
        context.setattr(compiled_program, "lowered", None)
        other.prepareDevice()
    assert losses(other, model) == run()


@pytest.mark.parametrize("saved", [True, False])
def test_variables_are_saved_if_asked_for(saved: bool, tmp_path: Path) -> None:
    training, model = session()
    training.prepareDevice()
    losses(training, model)
    training.weightsToHost()
    training.saveExecutable(str(tmp_path / "one"), saveVariables=saved)
    other, _ = session()
    other.loadExecutable(str(tmp_path / "one"))
    other.loadEngineAndConnectStreams()
    assert losses(other, model) == (losses(training, model) if saved else run())


def test_where_the_folder_comes_from() -> None:
    opts = popart.SessionOptions()
    assert cache_folder(opts.cacheFolder(), {}) is None
    opts.enableEngineCaching, opts.cachePath = True, "here"
    assert cache_folder(opts.cacheFolder(), {}) == "here"
    assert cache_folder(opts.cacheFolder(), {"POPART_CACHE_DIR": "a"}) == "a"
    assert cache_folder(opts.cacheFolder(), {"POPART_CACHE_DIR": "a", "POPXL_CACHE_DIR": "b"}) == "b"
    assert cache_folder(opts.cacheFolder(), {"POPART_CACHE_DIR": "a", "POPDIST_EXECUTABLE_CACHE_PATH": "c"}) == "c"


def test_a_folder_gets_a_file_of_a_fixed_name(tmp_path: Path) -> None:
    training, model = session()
    training.prepareDevice(False)
    training.saveExecutable(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["executable.popef"]
    other, _ = session()
    other.loadExecutable(str(tmp_path))
    other.loadEngineAndConnectStreams()
    assert losses(other, model) == run()


def _compile(folder: str, done: Any) -> None:
    training, _ = session()
    lowered = compiled_program.lowered
    compiled_program.lowered = lambda step: (done.put(os.getpid()), lowered(step))[1]
    os.environ["POPART_CACHE_DIR"] = folder
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training.prepareDevice(loadEngine=False)


def test_one_process_compiles_for_all(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    done: Any = fork.SimpleQueue()
    processes = [fork.Process(target=_compile, args=(str(tmp_path), done)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(50)
        assert process.exitcode == 0
    done.get()
    assert done.empty()


def test_a_file_of_zeros_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    os.truncate(tmp_path / "x", 1 << 33)
    tracemalloc.start()
    try:
        with pytest.raises(EmulatorError, match="version"):
            executable_cache.load_executable(tmp_path / "x")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
