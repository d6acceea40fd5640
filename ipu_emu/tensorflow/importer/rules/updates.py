"""Rules of variables: reads, assignments, and TensorFlow's update ops, in the order of its kernels' arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ipu_emu.ops import Value
from ipu_emu.tensorflow.importer.node import Rule, SourceNode
from ipu_emu.tensorflow.importer.rules.arithmetic import cast_to
from ipu_emu.tensorflow.importer.values import Known


def _assign(node: SourceNode) -> list[Any]:
    variable = node.variable(0)
    value = cast_to(node.y, variable.dtype.numpy)
    node.writer.assign(variable, value)
    return []


def _change(sign: int) -> Rule:
    def rule(node: SourceNode) -> list[Any]:
        variable = node.variable(0)
        old, by = node.writer.read(variable), node.y
        node.writer.assign(variable, old + by if sign > 0 else old - by)
        return []

    return rule


class _Update:
    """An update op: its variables (the first inputs), and its other inputs by name in the variables' type."""

    def __init__(self, node: SourceNode) -> None:
        self.node = node
        self._places = {argument.name: index for index, argument in enumerate(node.op.op_def.input_arg)}

    def read(self, name: str) -> Value:
        return self.node.writer.read(self.node.variable(self._places[name]))

    def __getattr__(self, name: str) -> Value:
        return self.node.value(self._places[name])

    def set(self, name: str, value: Value) -> Value:
        self.node.writer.assign(self.node.variable(self._places[name]), value)
        return value

    def add(self, name: str, change: Value) -> None:
        self.set(name, self.read(name) + change)

    def take(self, name: str, change: Value) -> None:
        self.set(name, self.read(name) - change)


def _updating(function: Callable[[_Update], None]) -> Rule:
    def rule(node: SourceNode) -> list[Any]:
        function(_Update(node))
        return []

    return rule


def _decayed(u: _Update, name: str, decay: Value, new: Value) -> Value:
    """name = decay name + (1 - decay) new"""
    return u.set(name, u.read(name) * decay + new * (1 - decay))


def _gradient_descent(u: _Update) -> None:
    u.take("var", u.alpha * u.delta)


def _proximal(u: _Update) -> None:
    prox = u.read("var") - u.alpha * u.delta
    shrunk = (prox.op("Abs") - u.alpha * u.l1).op("Relu")
    u.set("var", prox.op("Sign") * shrunk / (u.alpha * u.l2 + 1.0))


def _momentum(u: _Update) -> None:
    accum = u.set("accum", u.read("accum") * u.momentum + u.grad)
    if u.node.attr("use_nesterov"):
        u.take("var", u.grad * u.lr + accum * u.momentum * u.lr)
    else:
        u.take("var", accum * u.lr)


def _keras_momentum(u: _Update) -> None:
    accum = u.set("accum", u.read("accum") * u.momentum - u.grad * u.lr)
    u.add("var", accum * u.momentum - u.grad * u.lr if u.node.attr("use_nesterov") else accum)


def _approach(u: _Update, name: str, value: Value, decay: Value) -> Value:
    """name = name + (value - name) (1 - decay)"""
    return u.set(name, u.read(name) + (value - u.read(name)) * (1 - decay))


def _adam(u: _Update) -> None:
    rate = u.lr * (1 - u.beta2_power).op("Sqrt") / (1 - u.beta1_power)
    m, v = _approach(u, "m", u.grad, u.beta1), _approach(u, "v", u.grad * u.grad, u.beta2)
    if u.node.op.type == "ResourceApplyAdamWithAmsgrad":
        v = u.set("vhat", u.read("vhat").op("Max", v))
    elif u.node.attr("use_nesterov"):
        m = u.grad * (1 - u.beta1) + m * u.beta1
    u.take("var", m * rate / (v.op("Sqrt") + u.epsilon))


def _ada_max(u: _Update) -> None:
    m = _approach(u, "m", u.grad, u.beta1)
    v = u.set("v", (u.read("v") * u.beta2).op("Max", u.grad.op("Abs")))
    u.take("var", u.lr / (1 - u.beta1_power) * (m / (v + u.epsilon)))


def _adagrad(u: _Update) -> None:
    accum = u.read("accum")
    if u.node.attr("update_slots"):
        accum = u.set("accum", accum + u.grad * u.grad)
    deviation = accum.op("Sqrt")
    if u.node.op.type.endswith("V2"):
        deviation = deviation + u.epsilon
    u.take("var", u.grad * u.lr / deviation)


def _adadelta(u: _Update) -> None:
    accum = _decayed(u, "accum", u.rho, u.grad * u.grad)
    old = u.read("accum_update")
    change = (old + u.epsilon).op("Sqrt") * (accum + u.epsilon).op("Sqrt").op("Reciprocal") * u.grad
    u.take("var", change * u.lr)
    u.set("accum_update", old * u.rho + change * change * (1 - u.rho))


def _rms_prop(u: _Update) -> None:
    spread = _approach(u, "ms", u.grad * u.grad, u.rho)
    if u.node.op.type == "ResourceApplyCenteredRMSProp":
        mg = _approach(u, "mg", u.grad, u.rho)
        spread = spread - mg * mg
    u.take("var", u.set("mom", u.read("mom") * u.momentum + u.grad * u.lr / (spread + u.epsilon).op("Sqrt")))


def _ftrl(u: _Update) -> None:
    var, accum, linear = u.read("var"), u.read("accum"), u.read("linear")
    grad = u.grad
    shrunk = grad + u.l2_shrinkage * var * 2.0 if u.node.op.type.endswith("V2") else grad
    new = accum + grad * grad
    negative = -u.lr_power
    sigma = (new.op("Pow", negative) - accum.op("Pow", negative)) / u.lr
    linear = u.set("linear", linear + (shrunk - sigma * var))
    quadratic = new.op("Pow", negative) / u.lr + u.l2 * 2.0
    inside = linear.op("Abs").op("Greater", u.l1)
    step = (linear.op("Sign") * u.l1 - linear) / quadratic
    u.set("var", inside.op("Where", step, step.like(0)))
    u.set("accum", new)


RULES: dict[str, Rule] = {
    "AssignAddVariableOp": _change(1),
    "AssignSubVariableOp": _change(-1),
    "AssignVariableOp": _assign,
    "ReadVariableOp": lambda node: node.writer.read(node.variable(0)),
    "ResourceApplyAdaMax": _updating(_ada_max),
    "ResourceApplyAdadelta": _updating(_adadelta),
    "ResourceApplyAdagrad": _updating(_adagrad),
    "ResourceApplyAdagradV2": _updating(_adagrad),
    "ResourceApplyAdam": _updating(_adam),
    "ResourceApplyAdamWithAmsgrad": _updating(_adam),
    "ResourceApplyCenteredRMSProp": _updating(_rms_prop),
    "ResourceApplyFtrl": _updating(_ftrl),
    "ResourceApplyFtrlV2": _updating(_ftrl),
    "ResourceApplyGradientDescent": _updating(_gradient_descent),
    "ResourceApplyKerasMomentum": _updating(_keras_momentum),
    "ResourceApplyMomentum": _updating(_momentum),
    "ResourceApplyProximalGradientDescent": _updating(_proximal),
    "ResourceApplyRMSProp": _updating(_rms_prop),
    "VarIsInitializedOp": lambda node: Known(np.asarray(True)),
    "VariableShape": lambda node: Known(np.asarray(node.variable(0).shape, node.numpy_of("out_type"))),
    "_ReadVariablesOp": lambda node: [node.writer.read(node.variable(index)) for index in range(len(node.inputs))],
}
