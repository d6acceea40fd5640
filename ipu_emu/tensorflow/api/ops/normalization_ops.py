"""Normalisation by groups of channels, by layers and by instances."""

from __future__ import annotations

from typing import Any

from tensorflow.python.ops import array_ops, init_ops, math_ops, nn_impl, variable_scope

__all__ = ["group_norm", "instance_norm", "layer_norm"]


def group_norm(
    inputs: Any,
    groups: int = 2,
    channels_axis: int = -1,
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1.53e-5,
    param_initializers: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    training: bool = True,
    trainable: bool = True,
    scope: Any = None,
    strided_channel_grouping: bool = True,
) -> Any:
    """Normalise groups of channels; with ``strided_channel_grouping`` channel c belongs to group c mod ``groups``."""
    shape, axis = [int(size) for size in inputs.shape], channels_axis % len(inputs.shape)
    channels = shape[axis]
    if channels % groups:
        raise ValueError(f"{channels} channels cannot be divided into {groups} groups")
    split = [channels // groups, groups] if strided_channel_grouping else [groups, channels // groups]
    member = axis if strided_channel_grouping else axis + 1
    wide = array_ops.reshape(inputs, [*shape[:axis], *split, *shape[axis + 1 :]])
    group = axis + 1 if strided_channel_grouping else axis
    axes = [dim for dim in range(1, len(shape) + 1) if dim != group]
    assert member in axes
    mean, variance = nn_impl.moments_v2(wide, axes, keepdims=True)
    output = array_ops.reshape((wide - mean) * math_ops.rsqrt(variance + epsilon), shape)
    options = {"trainable": trainable, "collections": variables_collections}
    with variable_scope.variable_scope(scope or "GroupNorm", reuse=reuse, use_resource=True):
        return _scaled(output, channels, axis, center, scale, param_initializers or {}, options)


def _scaled(x: Any, channels: int, axis: int, center: bool, scale: bool, initializers: Any, options: Any) -> Any:
    """``x`` times gamma plus beta, one of each per channel."""
    wide = [1] * len(x.shape)
    wide[axis] = channels
    if scale:
        initial = initializers.get("gamma", init_ops.ones_initializer())
        x = x * array_ops.reshape(variable_scope.get_variable("gamma", [channels], x.dtype, initial, **options), wide)
    if center:
        initial = initializers.get("beta", init_ops.zeros_initializer())
        x = x + array_ops.reshape(variable_scope.get_variable("beta", [channels], x.dtype, initial, **options), wide)
    return x


def layer_norm(
    inputs: Any, channels_axis: int = -1, center: bool = True, scale: bool = True, epsilon: float = 1.53e-5,
    param_initializers: Any = None, reuse: Any = None, variables_collections: Any = None, training: bool = True,
    trainable: bool = True, scope: Any = None,
) -> Any:  # fmt: skip
    """Normalise all values of a sample."""
    return group_norm(
        inputs, 1, channels_axis, center, scale, epsilon, param_initializers, reuse, variables_collections, training,
        trainable, scope or "LayerNorm",
    )  # fmt: skip


def instance_norm(
    inputs: Any, channels_axis: int = -1, center: bool = True, scale: bool = True, epsilon: float = 1.53e-5,
    param_initializers: Any = None, reuse: Any = None, variables_collections: Any = None, training: bool = True,
    trainable: bool = True, scope: Any = None,
) -> Any:  # fmt: skip
    """Normalise each channel of a sample."""
    channels = int(inputs.shape[channels_axis])
    return group_norm(
        inputs, channels, channels_axis, center, scale, epsilon, param_initializers, reuse, variables_collections,
        training, trainable, scope or "InstanceNorm",
    )  # fmt: skip
