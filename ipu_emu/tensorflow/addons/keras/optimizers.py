"""Optimisers of ``ipu_tensorflow_addons.keras``: their states may have other types than the variables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tensorflow.python.framework import dtypes
from tensorflow.python.ops import array_ops, clip_ops, linalg_ops, math_ops
from tf_keras import optimizers

__all__ = ["AdamIpuOptimizer", "LAMBIpuOptimizer", "SGDIpuOptimizer"]


class _IpuOptimizer(optimizers.Optimizer):  # type: ignore[misc]
    """Base of the optimisers: creates named states for every variable."""

    #: The states of a variable, and the attributes with their element types.
    states: Mapping[str, str] = MappingProxyType({})

    def __init__(self, learning_rate: Any, name: str, **options: Any) -> None:
        super().__init__(name=name, **options)
        self._learning_rate = self._build_learning_rate(learning_rate)

    def build(self, var_list: Sequence[Any]) -> None:
        """Create the states."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._built = True
        self._made = [
            {state: self._state(state, getattr(self, kind), variable) for state, kind in self._used().items()}
            for variable in var_list
        ]

    def _state(self, state: str, kind: Any, variable: Any) -> Any:
        name = variable.name.split(":")[0]
        return self.add_variable(
            variable.shape, dtypes.as_dtype(kind or variable.dtype), "zeros", f"{self.name}/{state}/{name}"
        )

    def _used(self) -> Mapping[str, str]:
        return self.states

    def _of(self, variable: Any) -> dict[str, Any]:
        states: dict[str, Any] = self._made[self._index_dict[self._var_key(variable)]]
        return states

    def _step(self, dtype: Any) -> Any:
        return math_ops.cast(self.iterations + 1, dtype)

    def get_config(self) -> Any:
        own = {name: value for name, value in vars(self).items() if name in self.saved_names}
        return {**super().get_config(), "learning_rate": self._serialize_hyperparameter(self._learning_rate), **own}

    #: The attributes that are saved in a configuration.
    saved_names: tuple[str, ...] = ()


def _averaged(state: Any, value: Any, decay: float, precision: Any = None) -> Any:
    """The next value of a moving average, computed in ``precision``; assigned in the type of the state."""
    kind = dtypes.as_dtype(precision or value.dtype)
    old, new = math_ops.cast(state, kind), math_ops.cast(value, kind)
    average = old * decay + new * (1.0 - decay)
    state.assign(math_ops.cast(average, state.dtype))
    return average


class SGDIpuOptimizer(_IpuOptimizer):
    """Stochastic gradient descent; the momentum's accumulator is of the type ``momentum_accum_dtype``."""

    states = MappingProxyType({"momentum": "momentum_accum_dtype"})
    saved_names = ("momentum", "nesterov", "momentum_accum_dtype")

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "SGD",
        momentum_accum_dtype: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, name, **options)
        if isinstance(momentum, int | float) and not 0 <= momentum <= 1:
            raise ValueError("`momentum` must be between [0, 1].")
        self.momentum, self.nesterov, self.momentum_accum_dtype = momentum, nesterov, momentum_accum_dtype

    def _used(self) -> Mapping[str, str]:
        return self.states if self.momentum else {}

    def update_step(self, gradient: Any, variable: Any) -> None:
        """Change ``variable``."""
        rate = math_ops.cast(self.learning_rate, variable.dtype)
        if not self.momentum:
            variable.assign_sub(rate * gradient)
            return
        state = self._of(variable)["momentum"]
        velocity = math_ops.cast(state, variable.dtype) * self.momentum - rate * gradient
        state.assign(math_ops.cast(velocity, state.dtype))
        variable.assign_add(velocity * self.momentum - rate * gradient if self.nesterov else velocity)


class AdamIpuOptimizer(_IpuOptimizer):
    """Adam; its moments are of the types ``m_dtype``, ``v_dtype`` and ``vhat_dtype``."""

    states = MappingProxyType({"m": "m_dtype", "v": "v_dtype", "vhat": "vhat_dtype"})
    saved_names = ("beta_1", "beta_2", "epsilon", "amsgrad", "m_dtype", "v_dtype", "vhat_dtype", "debiasing")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        name: str = "AdamIpuOptimizer",
        m_dtype: Any = None,
        v_dtype: Any = None,
        vhat_dtype: Any = None,
        debiasing: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, name, **options)
        self.beta_1, self.beta_2, self.epsilon, self.amsgrad = beta_1, beta_2, epsilon, amsgrad
        self.m_dtype, self.v_dtype, self.vhat_dtype, self.debiasing = m_dtype, v_dtype, vhat_dtype, debiasing

    def _used(self) -> Mapping[str, str]:
        return self.states if self.amsgrad else {name: self.states[name] for name in ("m", "v")}

    def update_step(self, gradient: Any, variable: Any) -> None:
        """Change ``variable``."""
        kind, states = variable.dtype, self._of(variable)
        rate = math_ops.cast(self.learning_rate, kind)
        if self.debiasing:
            step = self._step(kind)
            rate = rate * math_ops.sqrt(1.0 - self.beta_2**step) / (1.0 - self.beta_1**step)
        m = math_ops.cast(_averaged(states["m"], gradient, self.beta_1), kind)
        v = math_ops.cast(_averaged(states["v"], math_ops.square(gradient), self.beta_2), kind)
        if self.amsgrad:
            v = math_ops.maximum(v, math_ops.cast(states["vhat"], kind))
            states["vhat"].assign(math_ops.cast(v, states["vhat"].dtype))
        variable.assign_sub(rate * m / (math_ops.sqrt(v) + self.epsilon))


class LAMBIpuOptimizer(_IpuOptimizer):
    """LAMB: Adam whose step is scaled by the norms of each variable and of its update."""

    states = MappingProxyType({"m": "m_dtype", "v": "v_dtype"})
    saved_names = ("beta_1", "beta_2", "epsilon", "weight_decay_rate", "exclude_from_weight_decay",
            "exclude_from_layer_adaptation", "debiasing", "m_dtype", "v_dtype", "weight_norm_clip")  # fmt: skip

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay_rate: float = 0.0,
        exclude_from_weight_decay: Sequence[str] | None = None,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        name: str = "LAMB",
        debiasing: bool = True,
        m_dtype: Any = None,
        v_dtype: Any = None,
        weight_norm_clip: float | None = None,
        optimizer_compute_precisions: Sequence[Any] = (dtypes.float32, dtypes.float32),
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, name, **options)
        self.beta_1, self.beta_2, self.epsilon, self.debiasing = beta_1, beta_2, epsilon, debiasing
        self.weight_decay_rate, self.weight_norm_clip = weight_decay_rate, weight_norm_clip
        self.exclude_from_weight_decay = exclude_from_weight_decay
        self.exclude_from_layer_adaptation = exclude_from_layer_adaptation or exclude_from_weight_decay
        self.m_dtype, self.v_dtype = m_dtype, v_dtype
        self.optimizer_compute_precisions = tuple(optimizer_compute_precisions)

    def update_step(self, gradient: Any, variable: Any) -> None:
        """Change ``variable``."""
        states, (first, second) = self._of(variable), self.optimizer_compute_precisions
        m = math_ops.cast(_averaged(states["m"], gradient, self.beta_1, first), dtypes.float32)
        wide = math_ops.cast(gradient, second)
        v = math_ops.cast(_averaged(states["v"], math_ops.square(wide), self.beta_2, second), dtypes.float32)
        if self.debiasing:
            step = self._step(dtypes.float32)
            m, v = m / (1.0 - self.beta_1**step), v / (1.0 - self.beta_2**step)
        weights = math_ops.cast(variable, dtypes.float32)
        update = m / (math_ops.sqrt(v) + self.epsilon)
        if self.weight_decay_rate and not _matches(self.exclude_from_weight_decay, variable):
            update = update + self.weight_decay_rate * weights
        rate = math_ops.cast(self.learning_rate, dtypes.float32)
        if not _matches(self.exclude_from_layer_adaptation, variable):
            rate = rate * self._ratio(weights, update)
        variable.assign_sub(math_ops.cast(rate * update, variable.dtype))

    def _ratio(self, weights: Any, update: Any) -> Any:
        """The norm of the variable divided by that of its update; 1 if either is 0."""
        norm, step = linalg_ops.norm(weights, ord=2), linalg_ops.norm(update, ord=2)
        if self.weight_norm_clip is not None:
            norm = clip_ops.clip_by_value(norm, 0.0, self.weight_norm_clip)
        both = math_ops.logical_and(norm > 0, step > 0)
        return array_ops.where_v2(both, norm / array_ops.where_v2(step > 0, step, 1.0), 1.0)


def _matches(patterns: Sequence[str] | None, variable: Any) -> bool:
    return any(re.search(pattern, variable.name) for pattern in patterns or ())
