"""External data: a model reads data in its folder and below it, from regular files, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from ipu_emu.errors import EmulatorError
from ipu_emu.onnx.external_data import DataPlace, change_external, separate
from ipu_emu.onnx.read import initializers, read

VALUES = np.arange(4, dtype=np.float32)


def weight(dims: tuple[int, ...] = (4,), kind: int = onnx.TensorProto.FLOAT, **entries: str) -> onnx.TensorProto:
    """An initializer with external data."""
    proto = onnx.TensorProto(name="w", data_type=kind, dims=dims, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in entries.items():
        proto.external_data.add(key=key, value=value)
    return proto


def model(proto: onnx.TensorProto) -> bytes:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["w"], ["y"])], "g", [], [helper.make_tensor_value_info("y", 1, None)], [proto]
    )
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)]).SerializeToString())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a model, with links, pipes and folders in it; ``private`` is outside of it."""
    folder = tmp_path / "model"
    (folder / "below").mkdir(parents=True)
    for file in (tmp_path / "private", folder / "data", folder / "below" / "data"):
        file.write_bytes(VALUES.tobytes())
    os.mkfifo(folder / "pipe")
    for link, target in {
        "out": "../private",
        "up": "..",
        "in": "below/data",
        "around": "around",
        "zero": "/dev/zero",
        "beneath": "below",
        "again": "out",
    }.items():
        (folder / link).symlink_to(target)
    monkeypatch.chdir(folder)
    return folder


def loaded(folder: Path, proto: onnx.TensorProto, form: str) -> np.ndarray:
    """The data of a model in a file, or in bytes whose folder is the working directory."""
    if form == "bytes":
        return initializers(model(proto))["w"]
    os.chdir("/")
    (folder / "model.onnx").write_bytes(model(proto))
    return initializers(folder / "model.onnx")["w"]


FORMS = pytest.mark.parametrize("form", ["bytes", "file"])


@FORMS
@pytest.mark.parametrize(
    "location", ["data", "./data", "below/data", "below/../data", "in", "beneath/data", "{folder}/data"]
)
def test_data_in_the_folder_of_the_model_are_read(folder: Path, location: str, form: str) -> None:
    array = loaded(folder, weight(location=location.format(folder=folder)), form)
    np.testing.assert_array_equal(array, VALUES, strict=True)
    assert array.flags.writeable


@FORMS
@pytest.mark.parametrize(
    "location",
    [
        "{folder}/../private",
        "../private",
        "below/../../private",
        "out",
        "again",
        "up/private",
        "zero",
        "/etc/passwd",
        "/dev/zero",
        "/proc/self/environ",
        "..",
        "../absent",
    ],
)
def test_data_elsewhere_are_refused(folder: Path, location: str, form: str) -> None:
    with pytest.raises(
        EmulatorError, match=r"'w' cannot be read from its file: its location .* is not in the folder"
    ):
        loaded(folder, weight(location=location.format(folder=folder)), form)


@FORMS
@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("", "'location' is missing"),
        ("da\0ta", "null"),
        (".", "directory"),
        ("below", "directory"),
        ("pipe", "pipe or a device"),
        ("around", "symbolic links"),
        ("data/data", "Not a directory|Unrecognised file name"),
        ("absent", "Unrecognised file name"),
        ("n" * 5000, "too long|Unrecognised file name"),
    ],
)
def test_what_is_no_file_is_refused(folder: Path, location: str, why: str, form: str) -> None:
    with pytest.raises(EmulatorError, match=why):
        loaded(folder, weight(location=location), form)


@pytest.mark.parametrize("dims", [(4,), (1 << 40, 1 << 40), (-4,)])
@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "4"},
        {"offset": "-4"},
        {"offset": str(1 << 63)},
        {"offset": str(1 << 70)},
        {"offset": "9" * 5000},
        {"offset": "here"},
        {"offset": "1_0"},
        {"offset": "٤"},
        {"length": "-16"},
        {"length": "8"},
        {"length": "17"},
        {"length": str(1 << 70)},
        {"length": ""},
    ],
)
def test_bytes_that_are_not_there(folder: Path, dims: tuple[int, ...], entries: dict[str, str]) -> None:
    with pytest.raises(EmulatorError, match=r"Initializer 'w'"):
        initializers(model(weight(dims, location="data", **entries)))


def test_data_at_a_large_offset(folder: Path) -> None:
    os.truncate(folder / "data", 1 << 40)
    assert initializers(model(weight(location="data", offset=str((1 << 40) - 16))))["w"].tolist() == [0] * 4


@pytest.mark.parametrize("target", ["../private", "/etc/passwd"])
def test_constants_may_not_be_elsewhere_either(folder: Path, target: str) -> None:
    """Tensors of attributes, and initializers of a body."""
    inner = helper.make_graph([helper.make_node("Identity", ["w"], ["z"])], "b", [], [], [weight(location=target)])
    inner.output.append(helper.make_tensor_value_info("z", 1, [4]))
    for node in (
        helper.make_node("Constant", [], ["y"], value=weight(location=target)),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
    ):
        proto = onnx.load_model_from_string(model(numpy_helper.from_array(np.array(True), "c")))
        proto.graph.node[0].CopyFrom(node)
        with pytest.raises(EmulatorError, match="is not in the folder of the model"):
            read(proto)
    proto.graph.node[0].CopyFrom(helper.make_node("Constant", [], ["y"], value=weight(location="data")))
    np.testing.assert_array_equal(read(proto).graph.data["y"], VALUES)


def test_a_link_that_takes_the_place_of_data_or_of_their_folder_is_not_written_through(folder: Path) -> None:
    private = folder.parent / "private"
    places = read(model(weight(location="below/data"))).external
    (folder / "below" / "data").unlink()
    (folder / "below" / "data").symlink_to(private)
    with pytest.raises(EmulatorError, match="Cannot write the initializers"):
        change_external({"w": -VALUES}, places)
    (folder / "below" / "data").unlink()
    (folder / "below").rmdir()
    (folder / "below").symlink_to("..")
    (folder.parent / "data").write_bytes(VALUES.tobytes())
    with pytest.raises(EmulatorError, match="Cannot write the initializers"):
        change_external({"w": -VALUES}, places)
    for file in (private, folder.parent / "data"):
        assert file.read_bytes() == VALUES.tobytes()


def test_a_bfloat16_is_read_as_float(folder: Path) -> None:
    array = initializers(model(weight((8,), onnx.TensorProto.BFLOAT16, location="data")))["w"]
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array[1::2], VALUES)


def test_places_that_overlap_are_not_written_separately() -> None:
    places = {
        "a": DataPlace("f", 0, 8),
        "b": DataPlace("f", 4, 8),
        "c": DataPlace("f", 12, 4),
        "d": DataPlace("g", 0, 8),
        "e": DataPlace("h", 0, 100),
        "f": DataPlace("h", 4, 4),
        "g": DataPlace("h", 50, 4),
    }
    assert list(separate(places)) == ["c", "d"]
