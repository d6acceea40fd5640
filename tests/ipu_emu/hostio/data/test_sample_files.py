"""Sample files that are damaged, contradictory or endless raise a FeedError immediately."""

from __future__ import annotations

import io
import os
import pickle
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ipu_emu.errors import FeedError
from ipu_emu.hostio.data.sample_files import open_files

ROWS = np.arange(24, dtype=np.float32).reshape(6, 4)


def content(kind: str) -> bytes:
    """A small file of this kind."""
    file = io.BytesIO()
    if kind == "npy":
        np.save(file, ROWS)
    elif kind == "npz":
        np.savez_compressed(file, x=ROWS, y=np.arange(6))
    else:
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table({"x": np.arange(6), "y": [[1.0, 2.0]] * 6})
        if kind == "parquet":
            pytest.importorskip("pyarrow.parquet").write_table(table, file)
        else:
            with pytest.importorskip("pyarrow.ipc").new_file(file, table.schema) as writer:
                writer.write_table(table)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["npy", "npz", "arrow", "parquet"])
def test_random_changes_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    original, draw, refused = content(kind), random.Random(0), 0
    file = tmp_path / f"x.{kind}"
    for _ in range(500):
        data = bytearray(original)
        for _ in range(draw.randrange(1, 5)):
            at = draw.randrange(len(data))
            data[at : at + draw.choice([1, 1, 1, 4])] = draw.choice([b"\0", b"\1", b"\x7f", b"\x80", b"\xff" * 4])
        file.write_bytes(data[: draw.choice([len(data), draw.randrange(len(data))])])
        try:
            open_files(file)
        except FeedError:
            refused += 1
    assert refused > 250


@pytest.mark.parametrize("kind", ["npy", "npz", "arrow", "parquet"])
def test_endless_files_and_other_kinds_are_refused(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"pipe.{kind}")
    (tmp_path / f"endless.{kind}").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(FeedError, match=r"could not be read: .*pipe or a device"):
            open_files(tmp_path / f"{name}.{kind}")


def test_a_single_number_is_no_sequence_of_samples(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.float32(1))
    np.savez(tmp_path / "x.npz", rows=ROWS, rate=np.float32(1))
    np.savez(tmp_path / "none.npz")
    for name, where in (("x.npy", "no rows;"), ("x.npz", "no rows in rate;"), ("none.npz", "no rows;")):
        with pytest.raises(FeedError, match=where):
            open_files(tmp_path / name)


def test_python_objects_are_refused_without_advice_to_load_them(tmp_path: Path) -> None:
    objects = np.array([object()] * 3)
    np.save(tmp_path / "objects.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "objects.npz", x=np.zeros(3), a=objects)
    for name, said in (("objects.npy", "could not be read: it has"), ("objects.npz", "array 'a': it has")):
        with pytest.raises(FeedError, match=f"{said} Python objects, not numbers; save an array of numbers$"):
            open_files(tmp_path / name)
    for name in ("other.npy", "other.npz"):
        (tmp_path / name).write_bytes(pickle.dumps([1, 2, 3]))
        with pytest.raises(FeedError, match=f"could not be read: it is no {(tmp_path / name).suffix} file$"):
            open_files(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        archive.writestr("notes.txt", "x")
    with pytest.raises(FeedError, match=r"'notes.txt' is not an array$"):
        open_files(tmp_path / "text.npz")
