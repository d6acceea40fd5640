"""Layers of ``ipu_tensorflow_addons.keras``: Keras layers with additional arguments for the IPU."""

from __future__ import annotations

from typing import Any

from tensorflow.python.framework import dtypes
from tensorflow.python.ops import math_ops
from tf_keras import activations, initializers
from tf_keras import layers as keras_layers

from ipu_emu.session.options.without_effect import say_without_effect, without_effect
from ipu_emu.tensorflow.api.ops.embedding_ops import embedding_lookup
from ipu_emu.tensorflow.api.ops.normalization_ops import checked_groups, normalised, scaled
from ipu_emu.tensorflow.api.ops.pipelining_ops import recomputation_checkpoint
from ipu_emu.tensorflow.trace.collectives import assume_equal_across_replicas
from ipu_emu.tensorflow.trace.function_trace import current_trace

__all__ = [
    "GRU", "LSTM", "AssumeEqualAcrossReplicas", "Dropout", "Embedding", "GroupNorm", "GroupNormalization",
    "InstanceNorm", "InstanceNormalization", "LayerNorm", "LayerNormalization", "PopnnGRU", "PopnnLSTM",
    "RecomputationCheckpoint", "SerialDense",
]  # fmt: skip


class AssumeEqualAcrossReplicas(keras_layers.Layer):  # type: ignore[misc]
    """Returns its input tensors, which the program guarantees to be equal on all replicas."""

    def __init__(self, inplace: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._inplace = inplace

    def call(self, inputs: Any, **options: Any) -> Any:
        return assume_equal_across_replicas(inputs, self._inplace)

    def get_config(self) -> Any:
        return {**super().get_config(), "inplace": self._inplace}


class RecomputationCheckpoint(keras_layers.Layer):  # type: ignore[misc]
    """Returns its input tensors, which are kept for the backward pass instead of recomputed."""

    def call(self, inputs: Any, **options: Any) -> Any:
        return inputs if current_trace() is None else recomputation_checkpoint(inputs)


class Dropout(keras_layers.Dropout):  # type: ignore[misc]
    """Sets a fraction ``rate`` of elements to 0 in training. ``ref`` has no effect, as a warning says: the backward
    pass draws the same numbers in any case.
    """

    @without_effect("ref")
    def __init__(
        self, rate: float = 0.5, noise_shape: Any = None, seed: Any = None, ref: bool = False, **options: Any
    ) -> None:
        super().__init__(rate, noise_shape, None if seed is None else int(sum(_numbers(seed))), **options)
        self._ref = ref

    def get_config(self) -> Any:
        return {**super().get_config(), "ref": self._ref}


class Embedding(keras_layers.Layer):  # type: ignore[misc]
    """Rows of a table, which may be divided into ``serialization_factor`` parts."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        serialization_factor: int = 1,
        **options: Any,
    ) -> None:
        options.setdefault("dtype", "float32")
        super().__init__(**options)
        if input_dim <= 0 or output_dim <= 0:
            raise ValueError(
                f"Both `input_dim` and `output_dim` should be positive, found input_dim {input_dim} and output_dim "
                f"{output_dim}"
            )
        self.input_dim, self.output_dim = input_dim, output_dim
        self.embeddings_initializer = initializers.get(embeddings_initializer)
        self.serialization_factor = serialization_factor

    def build(self, input_shape: Any) -> None:
        """Create the table."""
        self.embeddings = self.add_weight(
            "embeddings", (self.input_dim, self.output_dim), initializer=self.embeddings_initializer
        )
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        ids = math_ops.cast(inputs, dtypes.int32)
        return embedding_lookup(self.embeddings, ids, serialization_factor=self.serialization_factor)

    def get_config(self) -> Any:
        own = {name: getattr(self, name) for name in ("input_dim", "output_dim", "serialization_factor")}
        initializer = initializers.serialize(self.embeddings_initializer)
        return {**super().get_config(), **own, "embeddings_initializer": initializer}


class GroupNormalization(keras_layers.Layer):  # type: ignore[misc]
    """Normalises groups of channels; with strided groups, channel c belongs to group c mod ``groups``."""

    def __init__(
        self,
        groups: int = 2,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = 1.53e-5,
        beta_initializer: Any = None,
        gamma_initializer: Any = None,
        strided_channel_grouping: bool = True,
        trainable: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(trainable=trainable, **options)
        self.groups, self.channels_axis, self.center, self.scale = groups, channels_axis, center, scale
        self.epsilon, self.strided_channel_grouping = epsilon, strided_channel_grouping
        self.beta_initializer = initializers.get(beta_initializer or "zeros")
        self.gamma_initializer = initializers.get(gamma_initializer or "ones")

    def groups_of(self, channels: int) -> int:
        """The number of groups; raise ValueError if it does not divide the channels."""
        return checked_groups(channels, self.groups)

    def build(self, input_shape: Any) -> None:
        """Create gamma and beta."""
        channels = (int(input_shape[self.channels_axis]),)
        self.groups_of(*channels)
        self.gamma = self.add_weight("gamma", channels, initializer=self.gamma_initializer) if self.scale else None
        self.beta = self.add_weight("beta", channels, initializer=self.beta_initializer) if self.center else None
        super().build(input_shape)

    def call(self, inputs: Any, training: Any = None) -> Any:
        axis, strided = self.channels_axis % len(inputs.shape), self.strided_channel_grouping
        groups = self.groups_of(int(inputs.shape[axis]))
        return scaled(normalised(inputs, groups, axis, self.epsilon, strided=strided), axis, self.gamma, self.beta)

    def get_config(self) -> Any:
        names = ("groups", "channels_axis", "center", "scale", "epsilon", "strided_channel_grouping")
        own = {name: getattr(self, name) for name in names}
        for name in ("beta_initializer", "gamma_initializer"):
            own[name] = initializers.serialize(getattr(self, name))
        return {**super().get_config(), **own}


class InstanceNormalization(GroupNormalization):
    """Normalises every channel of every example."""

    def __init__(self, channels_axis: int = -1, **options: Any) -> None:
        options.pop("groups", None)
        super().__init__(1, channels_axis, **options)

    def groups_of(self, channels: int) -> int:
        return channels


class LayerNormalization(keras_layers.LayerNormalization):  # type: ignore[misc]
    """Normalises the features of every example."""


class LSTM(keras_layers.LSTM):  # type: ignore[misc]
    """A long short-term memory; a warning names options of the IPU's kernels, which have no effect."""

    def __init__(self, units: int, **options: Any) -> None:
        super().__init__(units, **_of_keras(options))


class GRU(keras_layers.GRU):  # type: ignore[misc]
    """A gated recurrent unit, whose reset gate is applied before the product by default."""

    def __init__(self, units: int, reset_after: bool = False, **options: Any) -> None:
        super().__init__(units, reset_after=reset_after, **_of_keras(options))


_DIMENSIONS = ("input_columns", "input_rows_kernel_columns", "kernel_rows")


class SerialDense(keras_layers.Dense):  # type: ignore[misc]
    """A dense layer whose product is divided into ``serialization_factor`` parts, which does not change it."""

    def __init__(
        self,
        units: int,
        serialization_factor: int,
        serialization_dimension: str,
        activation: Any = None,
        **options: Any,
    ) -> None:
        if serialization_dimension not in _DIMENSIONS:
            raise ValueError(
                f"serialization_dimension is {serialization_dimension!r}; it must be one of {', '.join(_DIMENSIONS)}"
            )
        if serialization_factor < 1:
            raise ValueError(f"serialization_factor has to be at least 1, but was {serialization_factor}.")
        say_without_effect("Arguments of SerialDense", ["serialization_factor"][: serialization_factor > 1])
        super().__init__(units, activation=activations.get(activation), **options)
        self.serialization_factor, self.serialization_dimension = serialization_factor, serialization_dimension

    def get_config(self) -> Any:
        own = {name: getattr(self, name) for name in ("serialization_factor", "serialization_dimension")}
        return {**super().get_config(), **own}


def _numbers(seed: Any) -> list[int]:
    return list(seed) if isinstance(seed, list | tuple) else [seed]


#: Options of the IPU's kernels, which change no result; ``dropout_seed`` and ``seed`` choose other random numbers.
_KERNEL_OPTIONS = ("partials_dtype", "available_memory_proportion_fwd", "available_memory_proportion_bwd", "options",
                   "options_bwd", "seed", "dropout_seed")  # fmt: skip


def _of_keras(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a recurrent layer that Keras also has; a warning names the others."""
    say_without_effect("Arguments of recurrent layers", [n for n in _KERNEL_OPTIONS if options.get(n) is not None])
    return {name: value for name, value in options.items() if name not in _KERNEL_OPTIONS}


GroupNorm, InstanceNorm, LayerNorm = GroupNormalization, InstanceNormalization, LayerNormalization
PopnnLSTM, PopnnGRU = LSTM, GRU
