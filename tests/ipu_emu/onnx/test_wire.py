"""Wire: initializers removed from a serialised model and inserted, compared with protobuf and onnx."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from ipu_emu import popart
from ipu_emu.onnx import wire
from ipu_emu.onnx.read import initializers
from ipu_emu.onnx.tensors import array_of, pieces_of
from ipu_emu.onnx.wire import packed_halves, with_initializers, without_large_data

VALUES = np.random.default_rng(0).standard_normal((300, 70)).astype(np.float32)


def raw(name: str, values: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(values, name)


def typed(name: str, values: np.ndarray) -> onnx.TensorProto:
    number = helper.np_dtype_to_tensor_dtype(values.dtype)
    return helper.make_tensor(name, number, values.shape, values.reshape(-1))


def model_of(*initializers: onnx.TensorProto) -> onnx.ModelProto:
    """A model that computes Relu of the first initializer."""
    outputs = [helper.make_tensor_value_info("y", 1, None)]
    nodes = [helper.make_node("Relu", [initializers[0].name], ["y"])]
    graph = helper.make_graph(nodes, "g", [], outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)])


FORMS: dict[str, tuple[Callable[[], onnx.TensorProto], bool]] = {
    "floats": (lambda: typed("w", VALUES), True),
    "raw floats": (lambda: raw("w", VALUES), True),
    "raw halves": (lambda: raw("w", np.repeat(VALUES, 2, 0).astype(np.float16)), True),
    "halves in entries": (lambda: typed("w", np.repeat(VALUES, 2, 0).astype(np.float16)), True),
    "integers in entries": (lambda: typed("w", np.arange(70000, dtype=np.int32)), False),
    "raw numbers of 64 bits": (lambda: raw("w", np.arange(30000)), False),
    "small": (lambda: raw("w", VALUES[:3]), False),
}


@pytest.mark.parametrize("form", FORMS)
def test_data_are_those_that_onnx_reads(form: str, tmp_path: Path) -> None:
    make, taken = FORMS[form]
    data = model_of(make(), raw("other", VALUES[:2])).SerializeToString()
    light, large = without_large_data(data)
    assert set(large) == ({"w"} if taken else set())
    assert (len(light) < 10000) == (taken or form == "small")
    (tmp_path / "m.onnx").write_bytes(data)
    expected = {proto.name: numpy_helper.to_array(proto) for proto in onnx.load_from_string(data).graph.initializer}
    for source in (data, str(tmp_path / "m.onnx")):
        arrays = initializers(source)
        assert list(arrays) == ["w", "other"]
        for name, values in expected.items():
            np.testing.assert_array_equal(arrays[name], values, strict=True)
            assert arrays[name].flags.aligned
            assert arrays[name].flags.writeable


@pytest.mark.parametrize("count", [70000, 70001])
def test_two_halves_in_one_entry(count: int) -> None:
    """PopART's form, in which an entry is negative if its second value is."""
    values = np.random.default_rng(2).standard_normal(count).astype(np.float16)
    values[:300] = 0
    bits = np.append(values.view(np.uint16), np.uint16(0))[: count + count % 2].view(np.int32)
    proto = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT16, dims=[count], int32_data=bits.tolist())
    light, large = without_large_data(model_of(proto).SerializeToString())
    assert set(large) == {"w"}
    assert len(light) < 1000
    np.testing.assert_array_equal(large["w"], array_of(proto), strict=True)
    np.testing.assert_array_equal(large["w"], values)


@pytest.mark.parametrize(
    "change", [lambda data: data + b"\x80", lambda data: data[:-1], lambda data: b"\xff" * 70000]
)
def test_halves_of_another_number_are_left_to_the_parser(change: Callable[[bytes], bytes]) -> None:
    data = b"\x80\x01" * 70000
    assert packed_halves(memoryview(data), 70000) is not None
    assert packed_halves(memoryview(change(data)), 70000) is None


def broken(change: Callable[[onnx.TensorProto], object]) -> bytes:
    proto = raw("w", VALUES)
    change(proto)
    return bytes(model_of(proto).SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        broken(lambda proto: proto.dims.append(2)),
        broken(lambda proto: proto.float_data.extend([1.0])),
        broken(lambda proto: proto.ClearField("data_type")),
        model_of(raw("w", VALUES)).SerializeToString()[:-70000],
        b"",
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
    ids=["shape", "twice", "no type", "cut", "empty", "length"],
)
def test_unexpected_bytes_are_left_to_the_parser(data: bytes) -> None:
    assert without_large_data(data) == (data, {})


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_bytes_that_are_no_message_are_rejected_immediately(byte: int) -> None:
    """A field must have a number, of at most ten bytes."""
    message = bytes([byte]) * 30
    assert without_large_data(message) == (message, {})


def test_two_of_one_name() -> None:
    data = model_of(raw("w", VALUES), raw("w", VALUES + 1)).SerializeToString()
    light, large = without_large_data(data)
    np.testing.assert_array_equal(large["w"], VALUES)
    assert len(light) > VALUES.nbytes
    np.testing.assert_array_equal(initializers(data)["w"], VALUES + 1)


def test_mutated_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All removed data has the values that onnx reads."""
    monkeypatch.setattr(wire, "LARGE_BYTES", 16)
    good = bytes(
        model_of(
            raw("w", VALUES[0]), typed("v", VALUES[1]), typed("h", VALUES[2].astype(np.float16))
        ).SerializeToString()
    )
    chance = random.Random(5)
    taken = 0
    for _ in range(2000):
        data = bytearray(good)
        place = chance.randrange(len(data) - VALUES.shape[1] * 10) if chance.random() < 0.5 else chance.randrange(200)
        if chance.random() < 0.7:
            data[place] = chance.randrange(256)
        else:
            del data[place : place + chance.randrange(1, 5)]
        light, large = without_large_data(bytes(data))
        try:
            proto_read = onnx.load_from_string(bytes(data))
        except Exception:  # protobuf has no public base class for its parse errors
            continue
        if large:
            taken += 1
            assert [p.name for p in onnx.load_from_string(light).graph.initializer] == [
                p.name for p in proto_read.graph.initializer
            ]
            for proto in proto_read.graph.initializer:
                if proto.name in large:
                    np.testing.assert_array_equal(large[proto.name], numpy_helper.to_array(proto))
    assert taken > 500


@pytest.mark.parametrize("shape", [(300, 70), (0, 3), (), (1,)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
def test_written_as_protobuf_writes(shape: tuple[int, ...], dtype: str) -> None:
    array = np.asarray(np.random.default_rng(1).integers(-3, 4, shape)).astype(dtype)
    empty = model_of(raw("w", VALUES[:1]))
    empty.graph.ClearField("initializer")
    model = onnx.load_from_string(with_initializers(empty, [pieces_of("a", array), pieces_of("b", VALUES)]))
    assert [proto.name for proto in model.graph.initializer] == ["a", "b"]
    assert model.graph.node == empty.graph.node
    assert model.opset_import == empty.opset_import
    for proto, values in zip(model.graph.initializer, (array, VALUES), strict=True):
        assert not proto.raw_data
        assert tuple(proto.dims) == values.shape
        np.testing.assert_array_equal(
            popart.Builder(model_of(proto).SerializeToString()).graph.data[proto.name], values
        )
