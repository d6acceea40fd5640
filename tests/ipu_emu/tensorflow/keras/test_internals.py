"""Internals: the private names of Keras and TensorFlow that models on the device rely on, each by its name."""

from importlib import import_module
from typing import Any

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
    "tf_keras.src.backend:rnn",
    "tf_keras.src.layers.rnn.lstm:lstm_with_backend_selection",
    "tf_keras.src.layers.rnn.gru:gru_with_backend_selection",
    "tf_keras.src.layers.normalization.batch_normalization:BatchNormalizationBase",
    "tf_keras.src.utils.tf_utils:sync_to_numpy_or_python_type",
    "tf_keras.src.optimizers.optimizer:Optimizer._build_learning_rate",
    "tf_keras.src.optimizers.optimizer:Optimizer._serialize_hyperparameter",
    "tf_keras.src.optimizers.optimizer:Optimizer._var_key",
    "tensorflow.python.eager.backprop:_gradient_function",
    "tensorflow.python.data.ops.iterator_ops:OwnedIterator._next_internal",
    "tensorflow.python.autograph.operators.control_flow:_tf_range_for_stmt",
    "tensorflow.python.autograph.operators.control_flow:_tf_while_stmt",
    "tensorflow.python.autograph.operators.variables:Undefined",
    "tensorflow.python.eager.record:could_possibly_record",
    "tensorflow.python.ops.control_flow_v2_func_graphs:WhileBodyFuncGraph",
]


@pytest.mark.parametrize("path", ATTRIBUTES)
def test_a_private_name_is_where_it_is_expected(tensorflow: Any, path: str) -> None:
    module, _, names = path.partition(":")
    found = import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    assert callable(found)


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
    assert [one for nodes in model._nodes_by_depth.values() for one in nodes if not one.is_input] == [node]
    optimizer.build(model.trainable_variables)
    assert sorted(optimizer._index_dict.values()) == [0, 1]
    function = tf2.function(lambda: 1)
    assert function._autograph
    assert function._python_function() == 1
