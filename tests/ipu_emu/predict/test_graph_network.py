"""Networks derived from graphs: those of the catalogue have the counts of the networks written as blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from ipu_emu.cli.arguments.onnx_argument import OnnxFile
from ipu_emu.cli.main import main
from ipu_emu.models import named
from ipu_emu.predict.networks import Network, network
from ipu_emu.predict.networks.graph_network import graph_network


@pytest.mark.parametrize("name", ["mlp", "resnet8", "resnet50", "transformer", "gpt2", "vit-b16"])
def test_as_the_blocks_of_the_same_network(name: str) -> None:
    model, blocks = named(name, batch=2), network(name)
    derived = graph_network(model.graph, name, 2)
    assert (derived.trained, derived.statistics) == (blocks.trained, blocks.statistics)
    assert derived.flops == pytest.approx(blocks.flops, rel=1e-3)
    assert _sum(derived, "attention") == pytest.approx(_sum(blocks, "attention"))
    assert _sum(derived, "vector") == pytest.approx(_sum(blocks, "vector"), rel=0.15)
    assert derived.activations == pytest.approx(blocks.activations, rel=0.25)
    assert len(derived.blocks) >= len(blocks.blocks) - 2


def _sum(of: Network, kind: str) -> float:
    return float(sum(getattr(block, kind) for block in of.blocks))


def told(words: str) -> Any:
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def save(path: Path, nodes: list[Any], inputs: dict[str, list[Any]], weights: dict[str, Any], output: str) -> str:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return str(path)


def test_a_file_is_predicted_as_the_network_that_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "resnet.onnx"
    path.write_bytes(named("resnet8", batch=4, dtype=np.dtype("float16")).proto)
    job = "--batch 4 --replicas 4 --accumulation 8 --optimiser momentum --format json"
    of_file, of_name = told(f"predict {path} {job}"), told(f"predict resnet8 {job} --input-dtype float16")
    assert of_file["job"]["input_dtype"] == "float16"
    assert of_file["job"]["model"] == "resnet.onnx"
    assert of_file["job"]["dtype"] == "float16"
    assert of_file["samples_per_second"] == pytest.approx(of_name["samples_per_second"], rel=0.05)
    clock = told(f"clock {path} --inference --format json")
    assert clock["predicted"]["step_seconds"] > 0


def test_groups_of_few_channels_leave_matrix_units_idle(tmp_path: Path) -> None:
    weights = {"w": np.zeros((32, 1, 3, 3)), "v": np.zeros((8, 32, 1, 1))}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], group=32, pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"]),
    ]
    path = save(tmp_path / "depthwise.onnx", nodes, {"x": ["N", 32, 10, 10]}, weights, "y")
    depthwise, pointwise = told_blocks(path, batch=2)
    flops = 2 * 32 * 9 * 100
    assert (depthwise.convolution, depthwise.idle) == (flops, 15 * flops)
    assert (pointwise.convolution, pointwise.idle, pointwise.parameters) == (2 * 32 * 8 * 100, 0, 256)
    assert depthwise.stashed + depthwise.output == 3200  # of Relu, whose gradient reads its result


def told_blocks(path: str, batch: int) -> Any:
    network, dtype = OnnxFile.read(path, batch).network()
    assert dtype == "float"
    return network.blocks


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{net} --length 5", "net.onnx is a file with sizes of its own; leave out --length"),
        ("{net} --ipus 2 --layers 3,4", "--layers adds up to 7; net.onnx has 1 layers"),
        ("{text}", "Check that it is either a valid path to an existing onnx model file"),
        ("{empty}", "empty.onnx has no elements: its shape is [0, 3]; export the model with sizes from 1"),
        ("{none}", "none.onnx computes nothing from its inputs; there is nothing to predict"),
    ],
)
def test_mistakes(tmp_path: Path, words: str, message: str) -> None:
    (tmp_path / "text.onnx").write_text("no model\n")
    product = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    constant = [helper.make_node("Neg", ["w"], ["y"])]
    files = {
        "net": save(tmp_path / "net.onnx", product, {"x": ["N", 3]}, {"w": np.zeros((3, 2))}, "y"),
        "empty": save(tmp_path / "empty.onnx", product, {"x": [0, 3]}, {"w": np.zeros((3, 2))}, "y"),
        "none": save(tmp_path / "none.onnx", constant, {}, {"w": np.zeros((3, 2))}, "y"),
        "text": str(tmp_path / "text.onnx"),
    }
    done = CliRunner().invoke(main, ["predict", *words.format(**files).split()])
    assert done.exit_code == 2
    assert message in done.stderr
