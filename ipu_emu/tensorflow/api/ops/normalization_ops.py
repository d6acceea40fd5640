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
    axis = channels_axis % len(inputs.shape)
    channels = int(inputs.shape[axis])
    output = normalised(inputs, checked_groups(channels, groups), axis, epsilon, strided=strided_channel_grouping)
    initial = {
        "gamma": init_ops.ones_initializer(),
        "beta": init_ops.zeros_initializer(),
        **(param_initializers or {}),
    }
    options = {"trainable": trainable, "collections": variables_collections}
    with variable_scope.variable_scope(scope or "GroupNorm", reuse=reuse, use_resource=True):
        gamma, beta = (
            variable_scope.get_variable(name, [channels], output.dtype, initial[name], **options) if used else None
            for name, used in (("gamma", scale), ("beta", center))
        )
        return scaled(output, axis, gamma, beta)


def checked_groups(channels: int, groups: int) -> int:
    """Return ``groups``; raise ValueError if it does not divide the channels."""
    if channels % groups:
        raise ValueError(f"{channels} channels cannot be divided into {groups} groups")
    return groups


def normalised(x: Any, groups: int, axis: int, epsilon: float, *, strided: bool) -> Any:
    """``x`` with mean 0 and variance 1 in each group of channels, which are on ``axis``."""
    shape = [array_ops.shape(x)[dim] if size is None else size for dim, size in enumerate(x.shape)]
    members = int(x.shape[axis]) // groups
    split = [members, groups] if strided else [groups, members]
    wide = array_ops.reshape(x, [*shape[:axis], *split, *shape[axis + 1 :]])
    group = axis + 1 if strided else axis
    axes = [dim for dim in range(1, len(x.shape) + 1) if dim != group]
    mean, variance = nn_impl.moments_v2(wide, axes, keepdims=True)
    output = array_ops.reshape((wide - mean) * math_ops.rsqrt(variance + epsilon), shape)
    output.set_shape(x.shape)
    return output


def scaled(x: Any, axis: int, gamma: Any, beta: Any) -> Any:
    """``x`` times gamma plus beta, which have an element for each channel, or are None."""
    wide = [-1 if dim == axis else 1 for dim in range(len(x.shape))]
    product = x if gamma is None else x * array_ops.reshape(gamma, wide)
    return product if beta is None else product + array_ops.reshape(beta, wide)


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
