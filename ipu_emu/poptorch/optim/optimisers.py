"""Optimisers with the arguments that PopTorch adds to PyTorch's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

import torch

from ipu_emu.session.options.without_effect import without_effect


class VariableAttributes:
    """Which attributes of a group may change after the model is compiled; all others are constants of the program."""

    def __init__(self, allowed: Iterable[str], variable: Iterable[str]) -> None:
        self._allowed = list(allowed)
        self._variable = {name for name in variable if name in self._allowed}

    def isConstant(self, attr: str) -> bool:
        """Whether the value is fixed when the model is compiled."""
        self._check(attr)
        return attr not in self._variable

    def markAsConstant(self, attr: str) -> None:
        """Fix the value."""
        self._check(attr)
        self._variable.discard(attr)

    def markAsVariable(self, attr: str) -> None:
        """Let ``setOptimizer`` change the value."""
        self._check(attr)
        self._variable.add(attr)

    def _check(self, attr: str) -> None:
        if attr not in self._allowed:
            raise AssertionError(f"Unknown attribute {attr}, allowed values: {self._allowed}")


_ACCUM = ("accum_type", "first_order_momentum_accum_type", "second_order_momentum_accum_type")


class Optimizer:
    """Mix-in of PopTorch's optimisers.

    ``variable_attrs`` lists the variable values: those that were passed to the constructor. ``ipu_state`` and
    ``ipu_param`` are the values on the device, once the optimiser has been used.
    """

    _allowed: tuple[str, ...] = ()
    variable_attrs: VariableAttributes

    def _start(self, common: dict[str, Any], own: dict[str, Any]) -> None:
        passed = [name for name, value in {**common, **own}.items() if value is not None]
        self.variable_attrs = VariableAttributes(self._allowed, passed)
        self.loss_scaling = float(1 if own.get("loss_scaling") is None else own["loss_scaling"])
        self.max_grad_norm = float(math.inf if own.get("max_grad_norm") is None else own["max_grad_norm"])
        for name in (*_ACCUM, "velocity_accum_type", "third_order_momentum_accum_type"):
            if name in own:
                kind = torch.float32 if own[name] is None else own[name]
                if kind not in (torch.float32, torch.float16):
                    raise AssertionError("Accumulation types must be either torch.float32 or torch.float16")
                setattr(self, name, kind)
        self._ipu_state: dict[str, Any] | None = None
        self._ipu_param: dict[str, Any] | None = None
        self._state_source: Any = None
        self._uploads = False

    @property
    def has_amsgrad(self) -> bool:
        return False

    def _fetch(self) -> None:
        if self._state_source is not None and not self._uploads:  # loaded values have yet to reach the device
            self._ipu_state, self._ipu_param = self._state_source()

    def state_dict(self) -> dict[str, Any]:
        """Return the values on the device, and the groups of parameters."""
        self._fetch()
        groups = torch.optim.Optimizer.state_dict(self)["param_groups"]
        return {"ipu_state": self._ipu_state, "ipu_param": self._ipu_param, "state": {}, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load values that ``state_dict`` returned; they are copied to the device before the next step."""
        if not state_dict:
            raise RuntimeError("Cannot load optimizer state dictionary because it is empty.")
        if "ipu_state" not in state_dict or "ipu_param" not in state_dict:
            raise RuntimeError("Only IPU optimizer states can be loaded onto the IPU.")
        plain = {"state": {}, "param_groups": state_dict["param_groups"]}
        torch.optim.Optimizer.load_state_dict(self, plain)
        self._ipu_state, self._ipu_param = state_dict["ipu_state"], state_dict["ipu_param"]
        self._uploads = True

    def __getstate__(self) -> dict[str, Any]:
        self._fetch()
        state = dict(self.__dict__)
        state["_state_source"] = None
        state["_uploads"] = self._ipu_state is not None
        return state


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _types(*types: torch.dtype | None) -> dict[str, Any]:
    return dict(zip(_ACCUM, types, strict=True))


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent."""

    _allowed = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "loss_scaling", "velocity_scaling")

    @without_effect("foreach", "differentiable")
    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float | None = None,
        dampening: float | None = None,
        weight_decay: float | None = None,
        nesterov: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        velocity_scaling: float | None = None,
        use_combined_accum: bool | None = None,
        accum_type: torch.dtype | None = None,
        velocity_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        values = _given(
            lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov,
            maximize=maximize,
        )  # fmt: skip
        self.use_combined_accum = bool(use_combined_accum)
        if velocity_scaling is not None and not use_combined_accum:
            warnings.warn("velocity_scaling is ignored without use_combined_accum=True", stacklevel=2)
        torch.optim.SGD.__init__(self, params, **values)
        scaling = 1.0 if velocity_scaling is None else velocity_scaling
        for group in self.param_groups:
            group.setdefault("velocity_scaling", scaling)
        self.defaults["velocity_scaling"] = scaling
        own = {"loss_scaling": loss_scaling, "velocity_scaling": velocity_scaling, "max_grad_norm": max_grad_norm}
        self._start(values, own | {"accum_type": accum_type, "velocity_accum_type": velocity_accum_type})


class _AdamBase(Optimizer):
    _allowed = ("lr", "betas", "eps", "weight_decay", "loss_scaling", "max_weight_norm")

    def _begin(self, base: Any, params: Any, values: dict[str, Any], amsgrad: Any, own: dict[str, Any]) -> None:
        if amsgrad:
            raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
        base.__init__(self, params, **values)
        self._start(values, own)


class Adam(_AdamBase, torch.optim.Adam):
    """Adam, whose weight decay is added to the gradient."""

    @without_effect("foreach", "capturable", "differentiable", "fused")
    def __init__(
        self,
        params: Any,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        values = _given(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize)
        own = {"loss_scaling": loss_scaling, "max_grad_norm": max_grad_norm}
        own |= _types(accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type)
        self._begin(torch.optim.Adam, params, values, amsgrad, own)


class AdamW(_AdamBase, torch.optim.AdamW):
    """Adam with decoupled weight decay; ``bias_correction`` is always on."""

    @without_effect("foreach", "capturable", "differentiable", "fused")
    def __init__(
        self,
        params: Any,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        bias_correction: bool | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        values = _given(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize)
        own = {"loss_scaling": loss_scaling, "max_grad_norm": max_grad_norm}
        own |= _types(accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type)
        self.bias_correction = True if bias_correction is None else bool(bias_correction)
        self._begin(torch.optim.AdamW, params, values, amsgrad, own)


class RMSprop(Optimizer, torch.optim.RMSprop):
    """RMSprop; ``use_tf_variant`` puts epsilon under the root and starts at ones."""

    _allowed = ("lr", "alpha", "eps", "weight_decay", "momentum", "loss_scaling")

    @without_effect("foreach", "differentiable")
    def __init__(
        self,
        params: Any,
        lr: float | None = None,
        alpha: float | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        momentum: float | None = None,
        centered: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        use_tf_variant: bool | None = None,
    ) -> None:
        values = _given(
            lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered,
            maximize=maximize,
        )  # fmt: skip
        self.use_tf_variant = bool(use_tf_variant)
        torch.optim.RMSprop.__init__(self, params, **values)
        own = {"loss_scaling": loss_scaling}
        own |= _types(accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type)
        self._start(values, own)


class LAMB(Optimizer, torch.optim.Optimizer):
    """Layer-wise adaptive moments; it also runs on the host."""

    _allowed = ("lr", "betas", "eps", "weight_decay", "loss_scaling", "max_weight_norm")

    def __init__(
        self,
        params: Any,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        bias_correction: bool | None = None,
        loss_scaling: float | None = None,
        max_weight_norm: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
    ) -> None:
        values = _given(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_weight_norm=max_weight_norm)
        defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2, "max_weight_norm": 65500.0}
        self.bias_correction = True if bias_correction is None else bool(bias_correction)
        torch.optim.Optimizer.__init__(self, params, defaults | values)
        own = {"loss_scaling": loss_scaling}
        own |= _types(accum_type, first_order_momentum_accum_type, second_order_momentum_accum_type)
        self._start(values, own)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> Any:
        """Update the parameters on the host."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state |= {"step": 0, "m": torch.zeros_like(param), "v": torch.zeros_like(param)}
                state["step"] += 1
                state["m"].mul_(b1).add_(param.grad, alpha=1 - b1)
                state["v"].mul_(b2).addcmul_(param.grad, param.grad, value=1 - b2)
                m, v = state["m"], state["v"]
                if self.bias_correction:
                    m, v = m / (1 - b1 ** state["step"]), v / (1 - b2 ** state["step"])
                update = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * param
                size, length = param.norm().clamp(max=group["max_weight_norm"]), update.norm()
                ratio = torch.where((size > 0) & (length > 0), size / length, torch.ones_like(size))
                param.sub_(group["lr"] * ratio * update)
        return loss
