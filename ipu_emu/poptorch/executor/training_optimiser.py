"""Training optimiser: the optimiser of a training executor, and its way to the device."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from ipu_emu.compiler.optimisers.update_rule import UpdateRule
from ipu_emu.poptorch.executor.device_program import DeviceProgram, tensors_of
from ipu_emu.poptorch.optim.optimisers import SGD, Optimizer
from ipu_emu.poptorch.optim.update_rules import check_optimiser, form_of, rule_of, unexpected_attributes
from ipu_emu.poptorch.options.options import Options
from ipu_emu.poptorch.tracing.trace import ModuleTrace


class TrainingOptimiser:
    """``current`` is that of the next step, of one of ``types``: by default plain SGD of the ``parameters``."""

    def __init__(
        self, optimiser: Any, types: tuple[type, ...], parameters: Iterable[torch.nn.Parameter], options: Options
    ) -> None:
        self.current = SGD(parameters, lr=0.01) if optimiser is None else optimiser
        check_optimiser(self.current, types)
        self._types, self._options = types, options
        self._form = form_of(self.current)
        self._warned = set(unexpected_attributes(self.current))

    @property
    def accumulates_in_half(self) -> bool:
        """Whether gradients are accumulated in float16, apart from the momentum."""
        half = getattr(self.current, "accum_type", None) is torch.float16
        return half and not getattr(self.current, "use_combined_accum", False)

    def rule(self, module: torch.nn.Module, trace: ModuleTrace) -> UpdateRule:
        """Return the rule by which it updates the parameters of ``module`` that the ``trace`` reads."""
        tensors, read = tensors_of(module), {name for op in trace.graph.ops for name in op.inputs}
        names = {id(tensors[name]): name for name, grad in trace.parameters.items() if grad and name in read}
        return rule_of(self.current, names, loss_scaling_variable=bool(self._options.Training.auto_loss_scaling))

    def replace(self, optimiser: Any, program: DeviceProgram | None) -> None:
        """Use the values of this optimiser from the next step on, those of its states too if it has any."""
        check_optimiser(optimiser, self._types)
        if program is not None and form_of(optimiser) != self._form:
            raise ValueError(
                f"The optimizer is {form_of(optimiser)} and the one that was compiled {self._form}: type and "
                "accumulator types cannot change, as the executable is already compiled."
            )
        self._form = form_of(optimiser)
        self._warn_of_attributes(optimiser)
        is_new, self.current = optimiser is not self.current, optimiser
        if program is not None:
            self._set_scalars(program)
            self.connect(program)
            if is_new and isinstance(optimiser, Optimizer) and optimiser._ipu_state is not None:
                optimiser._uploads = True

    def _warn_of_attributes(self, optimiser: Any) -> None:
        extra = [name for name in unexpected_attributes(optimiser) if name not in self._warned]
        if extra and not self._options.relax_optimizer_checks:
            self._warned.update(extra)
            text = f"Ignoring unexpected group 0 attribute in {type(optimiser).__name__} optimizer: {extra}"
            warnings.warn(text, stacklevel=4)

    def connect(self, program: DeviceProgram | None) -> None:
        """Read the values and states of the optimiser from the device of ``program`` when the user reads them."""
        if isinstance(self.current, Optimizer):
            self.current._state_source = None if program is None else partial(_values, program)

    def disconnect(self) -> None:
        """Read values and states for the last time."""
        if isinstance(self.current, Optimizer):
            self.current._fetch()
            self.connect(None)

    def upload(self, program: DeviceProgram) -> None:
        """Copy states that were loaded into the optimiser to the device."""
        if isinstance(self.current, Optimizer) and self.current._uploads:
            self.current._uploads = False
            program.set_states(self.current._ipu_state or {})
            self._set_scalars(program)

    def _set_scalars(self, program: DeviceProgram) -> None:
        program.set_scalars(self.rule(program.module, program.trace))


def _values(program: DeviceProgram) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The states and the scalars of the optimiser on the device by id."""
    states = program.states()
    return states, {id: torch.tensor(value, dtype=torch.float32) for id, value in program.scalars().items()}
