"""Internals: the private names of Keras and TensorFlow that the emulator relies on, each by its name."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

#: Names of attributes of classes and of modules.
ATTRIBUTES = [
    "tf_keras.src.engine.training:Model.make_train_function",
    "tf_keras.src.engine.training:Model.make_test_function",
    "tf_keras.src.engine.training:Model.make_predict_function",
    "tf_keras.src.engine.training:Model._validate_and_get_metrics_result",
    "tf_keras.src.engine.base_layer:Layer._flatten_layers",
    "tf_keras.src.engine.data_adapter:DataHandler._infer_steps",
    "tf_keras.src.engine.base_layer_utils:call_context",
    "tf_keras.src.activations:tanh",
    "tf_keras.src.engine.functional:Functional",
    "tf_keras.src.engine.functional:_build_map",
    "tf_keras.src.engine.sequential:Sequential",
    "tf_keras.src.backend:rnn",
    "tf_keras.src.layers.rnn.lstm:lstm_with_backend_selection",
    "tf_keras.src.layers.rnn.gru:gru_with_backend_selection",
    "tf_keras.src.layers.normalization.batch_normalization:BatchNormalizationBase",
    "tf_keras.src.utils.tf_utils:sync_to_numpy_or_python_type",
    "tf_keras.src.optimizers.nadam:Nadam.update_step",
    "tf_keras.src.optimizers.optimizer:Optimizer._build_learning_rate",
    "tf_keras.src.optimizers.optimizer:Optimizer._serialize_hyperparameter",
    "tf_keras.src.optimizers.optimizer:Optimizer._var_key",
    "tensorflow.python.eager.backprop:_gradient_function",
    "tensorflow.python.data.ops.dataset_ops:_VariantDataset",
    "tensorflow.python.data.ops.iterator_ops:OwnedIterator._next_internal",
    "tensorflow.python.autograph.operators.control_flow:_tf_range_for_stmt",
    "tensorflow.python.autograph.operators.control_flow:_tf_while_stmt",
    "tensorflow.python.autograph.operators.variables:Undefined",
    "tensorflow.python.eager.record:could_possibly_record",
    "tensorflow.python.framework.ops:Graph._get_function",
    "tensorflow.python.framework.ops:Graph._original_op",
    "tensorflow.python.framework.ops:Operation._set_attr",
    "tensorflow.python.ops.control_flow_v2_func_graphs:WhileBodyFuncGraph",
    "tensorflow.python.saved_model.function_deserialization:RestoredFunction",
    "tensorflow.python.training.monitored_session:MonitoredSession._tf_sess",
]
#: Names of attributes of objects, which the tests below read.
OF_OBJECTS = {
    "_autograph", "_build_input_shape", "_flat_output_shapes", "_flat_output_types", "_handle_data", "_inbound_nodes",
    "_index_dict", "_is_graph_network", "_iterator_resource", "_learning_rate", "_nested_outputs", "_nodes_by_depth",
    "_numpy", "_python_function", "_saved_model_inputs_spec", "_steps_per_execution", "_u_product_counter",
    "_variant_tensor",
}  # fmt: skip


@pytest.mark.parametrize("path", ATTRIBUTES)
def test_a_private_name_is_where_it_is_expected(tensorflow: Any, path: str) -> None:
    module, _, names = path.partition(":")
    attribute = import_module(module)
    for name in names.split("."):
        attribute = getattr(attribute, name)
    assert callable(attribute)


def test_objects_of_keras_have_their_private_attributes(tf2: Any) -> None:
    keras = tf2.keras
    model = keras.Sequential([keras.layers.Dense(2, input_shape=(3,))])
    assert model._steps_per_execution is None
    optimizer = keras.optimizers.Adam()
    model.compile(optimizer, "mse", steps_per_execution=3)
    assert int(model._steps_per_execution.numpy()) == 3
    assert [int(getattr(model, f"_{kind}_counter").numpy()) for kind in ("train", "test", "predict")] == [0, 0, 0]
    (node,) = model.layers[0]._inbound_nodes
    assert node.layer is model.layers[0]
    assert [
        candidate for nodes in model._nodes_by_depth.values() for candidate in nodes if not candidate.is_input
    ] == [node]
    assert model._is_graph_network
    assert model._nested_outputs is model.outputs[0]
    optimizer.build(model.trainable_variables)
    assert sorted(optimizer._index_dict.values()) == [0, 1]
    assert optimizer._learning_rate.numpy() == np.float32(0.001)
    nadam = keras.optimizers.Nadam()
    nadam.build(model.trainable_variables)
    assert nadam._u_product_counter == 1
    function = tf2.function(lambda: 1)
    assert function._autograph
    assert function._python_function() == 1


def test_a_subclassed_model_records_the_shapes_that_it_was_built_or_called_with(tf2: Any) -> None:
    class Twice(tf2.keras.Model):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x * 2

    built, called = Twice(), Twice()
    built.build((None, 3))
    called(tf2.zeros((2, 3)))
    assert tuple(built._build_input_shape) == (None, 3)
    assert built._saved_model_inputs_spec is None
    assert called._saved_model_inputs_spec.shape.as_list() == [2, 3]


def test_objects_of_tensorflow_have_their_private_attributes(tf2: Any) -> None:
    dataset = tf2.data.Dataset.from_tensor_slices(np.ones((2, 3), np.float32))
    assert dataset._variant_tensor.dtype == tf2.variant
    iterator = iter(dataset)
    assert iterator._iterator_resource.dtype == tf2.resource
    assert iterator._flat_output_types == [tf2.float32]
    assert [shape.as_list() for shape in iterator._flat_output_shapes] == [[3]]
    assert tf2.ones(3)._numpy().tolist() == [1, 1, 1]
    (held,) = tf2.Variable(tf2.zeros((4,))).handle._handle_data.shape_and_type
    assert held.shape.dim[0].size == 4


def sources() -> Iterator[ast.AST]:
    import ipu_emu.tensorflow

    for path in Path(ipu_emu.tensorflow.__path__[0]).rglob("*.py"):
        yield from ast.walk(ast.parse(path.read_text()))


def test_every_private_name_that_is_used_is_listed_here() -> None:
    used: set[str] = set()
    own: set[str] = set()
    for node in sources():
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case ast.Call(func=ast.Attribute(attr="__setattr__"), args=[_, ast.Constant(value=str(name)), *_]):
                own.add(name)
            case ast.Attribute(attr=name):
                used.add(name)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                used.add(name)
    foreign = {name for name in used - own if name.startswith("_") and not name.startswith("__")}
    listed = {path.rpartition(":")[2].rpartition(".")[2] for path in ATTRIBUTES}
    assert foreign - listed - OF_OBJECTS == set()
    assert OF_OBJECTS - used - own == set()


def test_every_module_of_keras_that_is_used_is_listed_here() -> None:
    used = {
        (node.module, alias.name)
        for node in sources()
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tf_keras.src")
        for alias in node.names
    }
    modules = {path.partition(":")[0] for path in ATTRIBUTES}
    assert len(used) > 4
    assert [entry for entry in used if ":".join(entry) not in ATTRIBUTES and ".".join(entry) not in modules] == []
