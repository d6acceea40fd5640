"""Keras patches: everything in Keras that is replaced or added, in one table."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

from tensorflow.python import pywrap_tfe
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.saved_model.function_deserialization import RestoredFunction
from tf_keras.src.utils.tf_utils import sync_to_numpy_or_python_type

from ipu_emu.hostio.weights_digest import report_digest
from ipu_emu.tensorflow import keras
from ipu_emu.tensorflow.api.optimizers.ipu_optimizer import totals
from ipu_emu.tensorflow.install.patches import Make, Patch, around
from ipu_emu.tensorflow.install.versions import check_keras
from ipu_emu.tensorflow.keras.extension import extend, extension_of
from ipu_emu.tensorflow.keras.layer_calls import called
from ipu_emu.tensorflow.keras.model_config import KEY, add_options, restore_options
from ipu_emu.tensorflow.keras.model_methods import METHODS
from ipu_emu.tensorflow.keras.pipeline_stages import current_stage, set_stage
from ipu_emu.tensorflow.keras.recurrence import gru_on_device, lstm_on_device, rnn_on_device
from ipu_emu.tensorflow.keras.step_function import StepFunction, replicas_of
from ipu_emu.tensorflow.trace.collectives import cross_replica_mean
from ipu_emu.tensorflow.trace.function_trace import current_trace
from ipu_emu.tensorflow.trace.strategies import dense

_MODEL = "tf_keras.src.engine.training:Model"


def _init(before: Any, self: Any, /, *arguments: Any, **named: Any) -> None:
    before(self, *arguments, **named)
    extend(self)


def _made_function(before: Any, self: Any, force: bool = False, *, kind: str) -> Any:
    """Make the function of ``kind``: train, test or predict."""
    extension, name = extension_of(self), f"{kind}_function"
    if extension is None:
        return before(self, force)
    _refuse_eager(self)
    if getattr(self, name) is None or force:
        setattr(self, name, StepFunction(self, extension, kind))
    return getattr(self, name)


def _apply_gradients(before: Any, self: Any, grads_and_vars: Any, *arguments: Any, **named: Any) -> Any:
    trace = current_trace()
    if trace is None:
        return before(self, grads_and_vars, *arguments, **named)
    pairs = [(dense(gradient), variable) for gradient, variable in grads_and_vars]
    if not trace.reduces or trace.applying:
        with trace.updating():
            return before(self, pairs, *arguments, **named)
    marked, trace.applying = totals(trace, pairs), True
    try:
        with trace.updating():
            reduced = [(g if g is None else cross_replica_mean(g), variable) for g, variable in marked]
            return before(self, reduced, *arguments, **named)
    finally:
        trace.applying = False


def _nadam_step(before: Any, self: Any, gradient: Any, variable: Any) -> Any:
    """Make Nadam's count of variables in a trace the same as in TensorFlow.

    Nadam counts in Python, and compares the count with the number of the step, a tensor: the count when a variable is
    traced determines in which step it uses the product of momentums of the previous variable. TensorFlow traces the
    steps twice, because the first trace creates variables, and keeps the second trace.
    """
    if current_trace() is not None:
        index = self._index_dict[self._var_key(variable)]
        self._u_product_counter = len(self._index_dict) + 1 + index
    return before(self, gradient, variable)


def _layer_init(before: Any, self: Any, /, *arguments: Any, **named: Any) -> None:
    before(self, *arguments, **named)
    set_stage(self, current_stage())


def _layer_call(before: Any, self: Any, /, *arguments: Any, **named: Any) -> Any:
    """Record the ops of a call of a layer, and its stage in a ``PipelineStage`` scope."""
    stage = current_stage()
    if stage is None:
        with called(self):
            return before(self, *arguments, **named)
    nodes = len(self._inbound_nodes)
    outputs = before(self, *arguments, **named)
    for node in self._inbound_nodes[nodes:]:
        set_stage(node, stage)
    return outputs


def _gradient_function(
    before: Any, name: Any, attributes: Any, count: Any, inputs: Any, outputs: Any, *rest: Any
) -> Any:
    """Record, in the ops of a tape's gradient, the op that they differentiate, as tf.gradients does."""
    trace = current_trace()
    if trace is None or not outputs or getattr(outputs[0], "graph", None) is not trace.graph:
        return before(name, attributes, count, inputs, outputs, *rest)
    with outputs[0].graph._original_op(outputs[0].op):
        return before(name, attributes, count, inputs, outputs, *rest)


def _inlined(before: Any, self: Any, /, *arguments: Any, **named: Any) -> Any:
    """Trace a tf.function inline, as part of the program."""
    if current_trace() is None or isinstance(self, RestoredFunction):  # a loaded function has only a graph
        return before(self, *arguments, **named)
    function = self._python_function
    if self._autograph:
        function = autograph.tf_convert(function, ag_ctx.ControlStatusCtx(ag_ctx.Status.ENABLED))
    return function(*arguments, **named)


def _register(function: Any) -> None:
    pywrap_tfe.TFE_Py_RegisterGradientFunction(function)


def _method(function: Any) -> Make:
    return lambda before: function


def _infer_steps(before: Any, self: Any, steps: Any, dataset: Any) -> Any:
    """Account for a step that takes an element for each replica."""
    inferred, model = before(self, steps, dataset), self._model
    extension = None if model is None or steps is not None else extension_of(model)
    if inferred is None or extension is None:
        return inferred
    replicas = replicas_of(model, extension)
    if 0 < inferred < replicas:
        raise ValueError(
            f"The data has {inferred} batches, and each step takes one for each of {replicas} replicas; use "
            "smaller batches, or fewer IPUs"
        )
    return inferred // replicas


def _get_config(before: Any, self: Any) -> Any:
    return add_options(self, before(self))


def _from_config(before: Any) -> Any:
    def from_config(cls: Any, config: Any, custom_objects: Any = None) -> Any:
        saved = config.get(KEY) if isinstance(config, dict) else None
        plain = {name: value for name, value in config.items() if name != KEY} if saved else config
        return restore_options(before.__get__(None, cls)(plain, custom_objects), saved)

    return classmethod(from_config)


def _reported_fit(before: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """Print the digest of the weights that the IPUs trained, if the launcher is verbose."""
    history = before(self, *arguments, **named)
    if extension_of(self) is not None:
        report_digest(self)
    return history


def _checked_compile(before: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """Raise an error for ``run_eagerly``, and for an optimiser whose own methods would not be called."""
    if extension_of(self) is not None:
        _check_steps(named.get("steps_per_execution", arguments[6] if len(arguments) > 6 else None))
    before(self, *arguments, **named)
    if extension_of(self) is not None:
        _refuse_eager(self)
        _check_minimize(self.optimizer)


def _refuse_eager(model: Any) -> None:
    """Raise RuntimeError for a model that the program, or TensorFlow's configuration, lets run eagerly."""
    if model.run_eagerly:
        raise RuntimeError(
            "A model in the scope of an IPUStrategy is compiled for the IPU and cannot run eagerly; leave out "
            "run_eagerly and tf.config.run_functions_eagerly, or make the model outside of the scope"
        )


def _check_steps(steps: Any) -> None:
    """Raise ValueError for an invalid number of steps of an execution."""
    if steps is None or (isinstance(steps, str) and steps == "auto"):  # Keras chooses
        return
    if not hasattr(type(steps), "__index__") or operator.index(steps) < 1:
        raise ValueError(f"steps_per_execution must be a whole number of at least 1, not {steps!r}")


def _check_minimize(optimiser: Any) -> None:
    """Raise ValueError for an optimiser whose own ``minimize`` would not be called."""
    makers = [kind for kind in type(optimiser).__mro__ if "minimize" in vars(kind)]
    if makers and not makers[0].__module__.startswith(("tf_keras.", "keras.")):
        raise ValueError(
            f"{type(optimiser).__name__} must not override OptimizerV2.minimize when it is used with Keras in an "
            "IPUStrategy; override apply_gradients instead"
        )


def _batch_begin(before: Any, self: Any, batch: int, logs: Any = None) -> Any:
    """Record the first step of an execution."""
    extension = None if self.model is None else extension_of(self.model)
    if extension is not None:
        extension.callbacks, extension.step = self, batch
    return before(self, batch, logs)


def _metrics_result(before: Any, self: Any, logs: Any) -> Any:
    """Use the metrics that a run returned: the variables of Keras have only those of the first replica."""
    return before(self, logs) if extension_of(self) is None else sync_to_numpy_or_python_type(logs)


def _face(before: Any) -> Any:
    return keras


def _absent_name(before: Any) -> Any:
    """Raise an error that explains names that only Keras 3 has."""

    def __getattr__(name: str) -> Any:  # noqa: N807
        try:
            check_keras(name)
        except ModuleNotFoundError as error:
            raise AttributeError(str(error)) from None
        raise AttributeError(f"module 'keras' has no attribute {name!r}")

    return __getattr__


KERAS_PATCHES: tuple[Patch, ...] = (
    Patch(f"{_MODEL}.__init__", "a model that is made in the scope of a strategy runs on the IPU", around(_init)),
    *(
        Patch(
            f"{_MODEL}.make_{kind}_function",
            f"{method} runs its steps on the IPU",
            around(partial(_made_function, kind=kind)),
        )
        for kind, method in (("train", "fit"), ("test", "evaluate"), ("predict", "predict"))
    ),
    *(
        Patch(
            f"tf_keras.src.optimizers.{module}.apply_gradients",
            "the ops of a weight update must be known, and their gradients dense",
            around(_apply_gradients),
        )
        for module in ("optimizer:Optimizer", "legacy.optimizer_v2:OptimizerV2")
    ),
    Patch(
        "tf_keras.src.optimizers.nadam:Nadam.update_step",
        "its count in Python depends on how often the steps are traced",
        around(_nadam_step),
    ),
    *(
        Patch(f"{module}:ipu", "programs call it tf.keras.ipu, keras.ipu and tensorflow.python.ipu.keras", _face)
        for module in ("tf_keras", "tf_keras.api._v2.keras")
    ),
    *(
        Patch(
            f"tf_keras.src.callbacks:CallbackList.on_{kind}_batch_begin",
            "asynchronous callbacks are called while an execution runs",
            around(_batch_begin),
        )
        for kind in ("train", "test", "predict")
    ),
    Patch(f"{_MODEL}.fit", "two people can compare the weights that they have trained", around(_reported_fit)),
    Patch(f"{_MODEL}.compile", "a program has no eager steps, and takes gradients itself", around(_checked_compile)),
    *(
        Patch(
            f"tf_keras.src.engine.{owner}.get_config",
            "a configuration keeps the options of a model",
            around(_get_config),
        )
        for owner in ("functional:Functional", "sequential:Sequential")
    ),
    *(
        Patch(f"tf_keras.src.engine.{owner}.from_config", "a loaded model has its options again", _from_config)
        for owner in ("training:Model", "sequential:Sequential")
    ),
    Patch(
        f"{_MODEL}._validate_and_get_metrics_result",
        "the metrics of several replicas are reduced as the options say",
        around(_metrics_result),
    ),
    Patch(
        "tf_keras.src.engine.data_adapter:DataHandler._infer_steps",
        "a data set has fewer steps if each takes an element for every replica",
        around(_infer_steps),
    ),
    Patch(
        "tf_keras.src.engine.base_layer:Layer.__init__",
        "a layer that is made in the scope of a PipelineStage belongs to it",
        around(_layer_init),
    ),
    Patch(
        "tf_keras.src.engine.base_layer:Layer.__call__",
        "the ops of a layer belong to its stage, as does a call in the scope of a PipelineStage",
        around(_layer_call),
    ),
    Patch(
        "tensorflow.python.eager.backprop:_gradient_function",
        "gradients of a tape run on the IPU of the op that they differentiate",
        around(_gradient_function),
        _register,
    ),
    *(
        Patch(f"{_MODEL}.{method.__name__}", "models for the IPU have this method", _method(method))
        for method in METHODS
    ),
    Patch(
        "tensorflow.python.eager.polymorphic_function.polymorphic_function:Function.__call__",
        "what is marked in a trace is in one graph: a tf.function in a program becomes a part of it",
        around(_inlined),
    ),
    Patch(
        "tf_keras.src.layers.rnn.lstm:lstm_with_backend_selection",
        "an LSTM runs by the device's recurrence instead of a loop",
        around(lstm_on_device),
    ),
    Patch(
        "tf_keras.src.layers.rnn.gru:gru_with_backend_selection",
        "a GRU runs by the device's recurrence instead of a loop",
        around(gru_on_device),
    ),
    Patch(
        "tf_keras.src.backend:rnn",
        "other recurrent layers run by the device's recurrence where it has their cell",
        around(rnn_on_device),
    ),
    Patch("ipu_emu.tensorflow.api:keras", "the package of the API is below that of Keras", _face),
    Patch("tf_keras:__getattr__", "a program for Keras 3 gets a sentence that says so", _absent_name),
)
