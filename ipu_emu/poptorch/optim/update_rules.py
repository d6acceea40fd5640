"""Update rules: converts an optimiser of PyTorch or PopTorch to the compiler's update rule."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import optim

from ipu_emu.compiler.optimisers.adam_rule import AdamForm, AdamRule, AdamValues
from ipu_emu.compiler.optimisers.adaptive_rule import AdaptiveForm, AdaptiveRule, AdaptiveValues
from ipu_emu.compiler.optimisers.sgd_rule import Mode, SgdRule, SgdValues
from ipu_emu.compiler.optimisers.update_rule import Clip, HyperParameter, UpdateRule
from ipu_emu.compiler.rewriting.reserved_prefixes import ACCL1, ACCL2, ACCL3, STEP
from ipu_emu.graph.dtype import FLOAT, FLOAT16, DType
from ipu_emu.poptorch.errors import refusal
from ipu_emu.poptorch.optim.optimisers import LAMB, Optimizer

#: The values of PyTorch's optimisers that are constants if they have their defaults.
_UNCHANGED = {"weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "eps": 1e-8}
_ALWAYS_CONSTANT = ("betas", "alpha", "nesterov", "velocity_scaling", "max_weight_norm", "loss_scaling", "rho")
_EXPECTED_GROUP = frozenset({
    "params", "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach", "differentiable",
    "fused", "betas", "eps", "amsgrad", "capturable", "alpha", "centered", "velocity_scaling", "max_weight_norm",
    "decoupled_weight_decay", "bias_correction", "rho", "lr_decay", "initial_accumulator_value",
})  # fmt: skip


#: The values of each rule, and their names in a group, in the order of the fields; alpha is rho in Adadelta.
_VALUES: Mapping[Any, tuple[Callable[..., Any], str]] = {
    SgdRule: (SgdValues, "lr weight_decay momentum dampening velocity_scaling nesterov"),
    AdamRule: (AdamValues, "lr weight_decay betas.0 betas.1 eps max_weight_norm"),
    AdaptiveRule: (AdaptiveValues, "lr weight_decay alpha momentum eps"),
}


@dataclass(frozen=True)
class Translation:
    """An optimiser of PyTorch: its rule with ``arguments``, and the states on the device by PyTorch's keys."""

    kind: type
    rule: Callable[..., UpdateRule]
    arguments: Callable[[Any], dict[str, Any]]
    states: Mapping[str, str] = field(default_factory=dict)


def _sgd(optimiser: Any) -> dict[str, Any]:
    mode = Mode.COMBINED if getattr(optimiser, "use_combined_accum", False) else Mode.SEPARATE
    return {"with_momentum": mode, "accl_type": _dtype(optimiser, "velocity_accum_type")}


def _rmsprop(optimiser: Any) -> dict[str, Any]:
    centered = optimiser.param_groups[0].get("centered")
    form = AdaptiveForm.CENTERED_RMS_PROP if centered else AdaptiveForm.RMS_PROP
    return {"form": form, "l2": True, "tf_variant": bool(getattr(optimiser, "use_tf_variant", False))}


def _adam(optimiser: Any) -> dict[str, Any]:
    return {"l2": not optimiser.param_groups[0].get("decoupled_weight_decay", False)}


def _form(form: AdamForm | AdaptiveForm) -> Callable[[Any], dict[str, Any]]:
    return lambda optimiser: {"form": form, "l2": True}


_MOMENTS = {"exp_avg": ACCL1, "exp_avg_sq": ACCL2, "step": STEP}
_SQUARES = {"square_avg": ACCL1, "grad_avg": ACCL2, "momentum_buffer": ACCL3}
#: The optimisers of PopTorch, and further ones of PyTorch.
_TRANSLATIONS = (
    Translation(optim.SGD, SgdRule, _sgd, {"momentum_buffer": ACCL1}),
    Translation(optim.AdamW, AdamRule, lambda optimiser: {}, _MOMENTS),
    Translation(optim.Adam, AdamRule, _adam, _MOMENTS),
    Translation(optim.RMSprop, AdaptiveRule, _rmsprop, _SQUARES),
    Translation(
        LAMB, AdamRule, lambda lamb: {"form": AdamForm.LAMB if lamb.bias_correction else AdamForm.LAMB_NO_BIAS}
    ),
    Translation(optim.Adagrad, AdaptiveRule, _form(AdaptiveForm.ADA_GRAD), {"sum": ACCL1}),
    Translation(
        optim.Adadelta, AdaptiveRule, _form(AdaptiveForm.ADA_DELTA), {"square_avg": ACCL1, "acc_delta": ACCL2}
    ),
    Translation(optim.Adamax, AdamRule, _form(AdamForm.ADA_MAX), {"exp_avg": ACCL1, "exp_inf": ACCL2, "step": STEP}),
)
OF_PYTORCH: tuple[Any, ...] = tuple(row.kind for row in _TRANSLATIONS)
OF_POPTORCH = OF_PYTORCH[: 1 + OF_PYTORCH.index(LAMB)]


def translation_of(optimiser: Any) -> Translation:
    """Return the row of an optimiser of one of the types or of a subclass."""
    return next(row for row in _TRANSLATIONS if isinstance(optimiser, row.kind))


def check_optimiser(optimiser: Any, types: tuple[Any, ...] = OF_POPTORCH) -> None:
    """Raise AssertionError for an optimiser of none of the types; warn of a subclass, whose code does not run."""
    if not isinstance(optimiser, types):
        names = [kind.__name__ for kind in types]
        raise AssertionError(f"Unsupported optimizer type. Types supported {names}")
    if type(optimiser) not in types and not isinstance(optimiser, Optimizer):
        warnings.warn(
            f"Type {type(optimiser).__name__} is a subclass of a supported optimizer. Poptorch does not run Python "
            "optimizer code directly",
            stacklevel=4,
        )
    if optimiser._optimizer_step_pre_hooks or optimiser._optimizer_step_post_hooks:
        raise ValueError(
            "Hooks of an optimizer's step do not run on the device: remove them, and clip with max_grad_norm of the "
            "optimizer or with clip of ipu_emu.torch.train"
        )
    if any(group.get("amsgrad") for group in optimiser.param_groups):
        raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
    if any(group.get("lr_decay") for group in optimiser.param_groups):
        raise ValueError("lr_decay of Adagrad is not supported; use a scheduler")
    for name in ("centered", "maximize", "decoupled_weight_decay"):
        if len({bool(group.get(name)) for group in optimiser.param_groups}) > 1:
            raise ValueError(f"All parameter groups must have the same value for the '{name}' attribute")


def form_of(optimiser: Any) -> str:
    """Return the properties that two optimisers must share so that one can replace the other."""
    name = translation_of(optimiser).kind.__name__.upper()
    types = [str(getattr(optimiser, name, torch.float32)) for name in ("accum_type", "velocity_accum_type")]
    goal = "maximize" if maximizes(optimiser) else "minimize"
    return " ".join([name, *types, str(getattr(optimiser, "use_combined_accum", False)), goal])


def maximizes(optimiser: Any) -> bool:
    """Whether the loss is maximized; all groups agree."""
    return bool(optimiser.param_groups[0].get("maximize"))


def unexpected_attributes(optimiser: Any) -> list[str]:
    """Return the attributes of groups that have no effect, such as ``initial_lr``."""
    return sorted({name for group in optimiser.param_groups for name in group} - _EXPECTED_GROUP)


def _constant(optimiser: Any, name: str, value: Any) -> bool:
    if isinstance(optimiser, Optimizer):
        allowed = optimiser.variable_attrs
        return name not in optimiser._allowed or allowed.isConstant(name)
    if name == "lr":
        return False
    if name in _ALWAYS_CONSTANT:
        return True
    usual = 0.01 if name == "weight_decay" and isinstance(optimiser, optim.AdamW) else _UNCHANGED.get(name)
    return usual is not None and value == usual


def _dtype(optimiser: Any, name: str) -> DType:
    return FLOAT16 if getattr(optimiser, name, torch.float32) is torch.float16 else FLOAT


def rule_of(optimiser: Any, names: Mapping[int, str], *, loss_scaling_variable: bool = False) -> UpdateRule:
    """Return the rule for parameters with ids in ``names``; raise Error for a parameter without a group."""
    scaling = float(getattr(optimiser, "loss_scaling", 1.0))
    constant = _constant(optimiser, "loss_scaling", scaling) and not loss_scaling_variable
    loss_scaling = HyperParameter(scaling, constant)
    norm = float(getattr(optimiser, "max_grad_norm", math.inf))
    clips = (Clip((), norm),) if math.isfinite(norm) else ()
    row = translation_of(optimiser)
    specific: dict[str, Any] = {}
    for group in optimiser.param_groups:
        values = _values(optimiser, row.rule, group)
        specific |= {names[id(param)]: values for param in group["params"] if id(param) in names}
    missing = [name for name in names.values() if name not in specific]
    if missing:
        raise refusal(
            f"Parameter(s) {', '.join(missing)} of the model require gradients and are in no group of the optimizer; "
            "give them to the optimizer, or set requires_grad to False"
        )
    default = _values(optimiser, row.rule, optimiser.param_groups[0])
    shared: dict[str, Any] = {"loss_scaling": loss_scaling, "specific": specific, "clips": clips}
    shared["accum_type"] = _dtype(optimiser, "accum_type")
    if row.rule is not SgdRule:
        shared["accl1_type"] = _dtype(optimiser, "first_order_momentum_accum_type")
        shared["accl2_type"] = _dtype(optimiser, "second_order_momentum_accum_type")
    return row.rule(default, **row.arguments(optimiser), **shared)


def _values(optimiser: Any, rule: Any, group: Mapping[str, Any]) -> Any:
    """The values of ``rule`` for the parameters of ``group``."""
    values, names = _VALUES[rule]
    values = values(*(_hyper(optimiser, group, *name.split(".")) for name in names.split()))
    if rule is SgdRule and not getattr(optimiser, "use_combined_accum", False):
        values = replace(values, velocity_scaling=HyperParameter(1.0))
    if rule is SgdRule and not isinstance(optimiser, Optimizer) and not group.get("momentum"):
        values = replace(values, dampening=HyperParameter(0.0))  # PyTorch dampens only what it adds to a momentum
    return values


def _hyper(optimiser: Any, group: Mapping[str, Any], name: str, index: str = "") -> HyperParameter:
    name = "rho" if name == "alpha" and name not in group else name
    value = group.get(name, 65500.0 if name == "max_weight_norm" else 0.0)
    announced = name in ("betas", "momentum") and "max_momentum" in group  # by a scheduler that changes it
    fixed = _constant(optimiser, name, value) and not announced
    value = value[int(index)] if index else value
    return HyperParameter(float(value.item() if isinstance(value, torch.Tensor) else value), fixed)
