"""Update rules: converts an optimiser of PyTorch or PopTorch to the compiler's update rule."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from ipu_emu.compiler.optimisers.adam_rule import AdamForm, AdamRule, AdamValues
from ipu_emu.compiler.optimisers.adaptive_rule import AdaptiveForm, AdaptiveRule, AdaptiveValues
from ipu_emu.compiler.optimisers.sgd_rule import Mode, SgdRule, SgdValues
from ipu_emu.compiler.optimisers.update_rule import Clip, HyperParameter, UpdateRule
from ipu_emu.graph.dtype import FLOAT, FLOAT16, DType
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.optim.optimizers import LAMB, SGD, Optimizer

#: The values of PyTorch's optimisers that are constants if they have their defaults.
_UNCHANGED = {"weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "eps": 1e-8}
_ALWAYS_CONSTANT = ("betas", "alpha", "nesterov", "velocity_scaling", "max_weight_norm", "loss_scaling", "rho")
#: The optimisers of PopTorch, and further ones of PyTorch.
OF_POPTORCH = (torch.optim.SGD, torch.optim.AdamW, torch.optim.Adam, torch.optim.RMSprop, LAMB)
OF_PYTORCH = (torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.Adamax)
_EXPECTED_GROUP = frozenset({
    "params", "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach", "differentiable",
    "fused", "betas", "eps", "amsgrad", "capturable", "alpha", "centered", "velocity_scaling", "max_weight_norm",
    "decoupled_weight_decay", "bias_correction", "rho", "lr_decay", "initial_accumulator_value",
})  # fmt: skip


def check_optimizer(optimizer: Any, types: tuple[Any, ...] = OF_POPTORCH) -> None:
    """Raise AssertionError for an optimiser of none of the types; warn of a subclass, whose code does not run."""
    if not isinstance(optimizer, types):
        names = [kind.__name__ for kind in types]
        raise AssertionError(f"Unsupported optimizer type. Types supported {names}")
    if type(optimizer) not in types and not isinstance(optimizer, Optimizer):
        warnings.warn(
            f"Type {type(optimizer).__name__} is a subclass of a supported optimizer. Poptorch does not run Python "
            "optimizer code directly",
            stacklevel=3,
        )
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise ValueError(
            "Hooks of an optimizer's step do not run on the device: remove them, and clip with max_grad_norm of the "
            "optimizer or with clip of ipu_emu.torch.train"
        )
    if any(group.get("amsgrad") for group in optimizer.param_groups):
        raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
    if any(group.get("lr_decay") for group in optimizer.param_groups):
        raise ValueError("lr_decay of Adagrad is not supported; use a scheduler")
    for name in ("centered", "maximize", "decoupled_weight_decay"):
        if len({bool(group.get(name)) for group in optimizer.param_groups}) > 1:
            raise ValueError(f"All parameter groups must have the same value for the '{name}' attribute")


def form_of(optimizer: Any) -> str:
    """Return the properties that two optimisers must share so that one can replace the other."""
    kinds = [kind for kind in (*OF_POPTORCH, *OF_PYTORCH) if isinstance(optimizer, kind)]
    name = kinds[0].__name__.upper()
    types = [str(getattr(optimizer, name, torch.float32)) for name in ("accum_type", "velocity_accum_type")]
    goal = "maximize" if maximizes(optimizer) else "minimize"
    return " ".join([name, *types, str(getattr(optimizer, "use_combined_accum", False)), goal])


def maximizes(optimizer: Any) -> bool:
    """Whether the loss is maximized; all groups agree."""
    return bool(optimizer.param_groups[0].get("maximize"))


def unexpected_attributes(optimizer: Any) -> list[str]:
    """Return the attributes of groups that have no effect, such as ``initial_lr``."""
    return sorted({name for group in optimizer.param_groups for name in group} - _EXPECTED_GROUP)


def _constant(optimizer: Any, name: str, value: Any) -> bool:
    if isinstance(optimizer, Optimizer):
        allowed = optimizer.variable_attrs
        return name not in optimizer._allowed or allowed.isConstant(name)
    if name == "lr":
        return False
    if name in _ALWAYS_CONSTANT:
        return True
    usual = 0.01 if name == "weight_decay" and isinstance(optimizer, torch.optim.AdamW) else _UNCHANGED.get(name)
    return usual is not None and value == usual


def _dtype(optimizer: Any, name: str) -> DType:
    return FLOAT16 if getattr(optimizer, name, torch.float32) is torch.float16 else FLOAT


def rule_of(optimizer: Any, names: Mapping[int, str], *, loss_scaling_variable: bool = False) -> UpdateRule:
    """Return the rule for parameters with ids in ``names``; raise Error for a parameter without a group."""
    scaling = float(getattr(optimizer, "loss_scaling", 1.0))
    constant = _constant(optimizer, "loss_scaling", scaling) and not loss_scaling_variable
    loss_scaling = HyperParameter(scaling, constant)
    norm = float(getattr(optimizer, "max_grad_norm", math.inf))
    clips = (Clip((), norm),) if math.isfinite(norm) else ()
    make = _values_of(optimizer)
    specific: dict[str, Any] = {}
    for group in optimizer.param_groups:
        values = make(group)
        specific |= {names[id(param)]: values for param in group["params"] if id(param) in names}
    missing = [name for name in names.values() if name not in specific]
    if missing:
        raise Error(
            f"Parameter(s) {', '.join(missing)} of the model require gradients and are in no group of the optimizer; "
            "give them to the optimizer, or set requires_grad to False",
            "poptorch_py_error",
        )
    default = make(optimizer.param_groups[0])
    shared: dict[str, Any] = {"loss_scaling": loss_scaling, "specific": specific, "clips": clips}
    shared["accum_type"] = _dtype(optimizer, "accum_type")
    first, second = (_dtype(optimizer, f"{moment}_order_momentum_accum_type") for moment in ("first", "second"))
    if isinstance(optimizer, torch.optim.SGD):
        combined = isinstance(optimizer, SGD) and optimizer.use_combined_accum
        mode = Mode.COMBINED if combined else Mode.SEPARATE
        return SgdRule(default, with_momentum=mode, accl_type=_dtype(optimizer, "velocity_accum_type"), **shared)
    if isinstance(optimizer, torch.optim.RMSprop):
        centered = bool(optimizer.param_groups[0].get("centered"))
        form = AdaptiveForm.CENTERED_RMS_PROP if centered else AdaptiveForm.RMS_PROP
        variant = bool(getattr(optimizer, "use_tf_variant", False))
        return AdaptiveRule(
            default, form=form, l2=True, tf_variant=variant, accl1_type=first, accl2_type=second, **shared
        )
    if isinstance(optimizer, torch.optim.Adagrad | torch.optim.Adadelta):
        form = AdaptiveForm.ADA_GRAD if isinstance(optimizer, torch.optim.Adagrad) else AdaptiveForm.ADA_DELTA
        return AdaptiveRule(default, form=form, l2=True, accl1_type=first, accl2_type=second, **shared)
    if isinstance(optimizer, torch.optim.Adamax):
        return AdamRule(default, form=AdamForm.ADA_MAX, l2=True, accl1_type=first, accl2_type=second, **shared)
    if isinstance(optimizer, LAMB):
        form_ = AdamForm.LAMB if optimizer.bias_correction else AdamForm.LAMB_NO_BIAS
        return AdamRule(default, form=form_, accl1_type=first, accl2_type=second, **shared)
    decayed = isinstance(optimizer, torch.optim.AdamW) or bool(
        optimizer.param_groups[0].get("decoupled_weight_decay", False)
    )
    return AdamRule(default, form=AdamForm.ADAM, l2=not decayed, accl1_type=first, accl2_type=second, **shared)


def _values_of(optimizer: Any) -> Any:
    def hyper(group: Mapping[str, Any], name: str, index: int | None = None, default: Any = 0.0) -> HyperParameter:
        value = group.get(name, default)
        announced = name in ("betas", "momentum") and "max_momentum" in group  # by a scheduler that changes it
        fixed = _constant(optimizer, name, value) and not announced
        value = value if index is None else value[index]
        if isinstance(value, torch.Tensor):
            value = value.item()
        return HyperParameter(float(value), fixed)

    def sgd(group: Mapping[str, Any]) -> SgdValues:
        combined = isinstance(optimizer, SGD) and optimizer.use_combined_accum
        velocity = hyper(group, "velocity_scaling", None, 1.0) if combined else HyperParameter(1.0)
        # PyTorch dampens only what it adds to a momentum.
        ignored = not isinstance(optimizer, Optimizer) and not group.get("momentum")
        dampening = HyperParameter(0.0) if ignored else hyper(group, "dampening")
        return SgdValues(
            hyper(group, "lr"), hyper(group, "weight_decay"), hyper(group, "momentum"), dampening,
            velocity, hyper(group, "nesterov"),
        )  # fmt: skip

    def rmsprop(group: Mapping[str, Any]) -> AdaptiveValues:
        return AdaptiveValues(
            hyper(group, "lr"), hyper(group, "weight_decay"), hyper(group, "alpha"), hyper(group, "momentum"),
            hyper(group, "eps"),
        )  # fmt: skip

    def adaptive(group: Mapping[str, Any]) -> AdaptiveValues:
        return AdaptiveValues(
            hyper(group, "lr"), hyper(group, "weight_decay"), hyper(group, "rho"), HyperParameter(0.0),
            hyper(group, "eps"),
        )  # fmt: skip

    def adam(group: Mapping[str, Any]) -> AdamValues:
        return AdamValues(
            hyper(group, "lr"), hyper(group, "weight_decay"), hyper(group, "betas", 0), hyper(group, "betas", 1),
            hyper(group, "eps"), hyper(group, "max_weight_norm", None, 65500.0),
        )  # fmt: skip

    if isinstance(optimizer, torch.optim.SGD):
        return sgd
    if isinstance(optimizer, torch.optim.Adagrad | torch.optim.Adadelta):
        return adaptive
    return rmsprop if isinstance(optimizer, torch.optim.RMSprop) else adam
