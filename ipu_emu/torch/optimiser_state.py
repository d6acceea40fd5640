"""Optimiser state: the state of a PyTorch optimiser, copied to the device before training and back after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import popdist_py
from ipu_emu.poptorch.executor.executor import PoplarExecutor
from ipu_emu.poptorch.optim.update_rules import translation_of

#: Optimisers that count steps on the host alone.
_COUNTING = (torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta)


class OptimiserState:
    """The state of ``optimiser`` for the parameters of ``objective``; those of PopTorch keep their own."""

    def __init__(self, optimiser: Any, objective: torch.nn.Module) -> None:
        self._optimiser = optimiser
        row = translation_of(optimiser)
        self._prefixes = row.states if type(optimiser) is row.kind else {}
        own = {id(param) for group in optimiser.param_groups for param in group["params"]}
        named = objective.named_parameters(remove_duplicate=False)
        self._parameters = {name: param for name, param in named if id(param) in own}

    def values(self) -> dict[str, torch.Tensor]:
        """Return the values by their ids on the device."""
        return {
            prefix + name: torch.as_tensor(state[key])
            for name, param in self._parameters.items()
            for state in (self._optimiser.state.get(param, {}),)
            for key, prefix in self._prefixes.items()
            if state.get(key) is not None
        }

    def load(self, executor: PoplarExecutor) -> None:
        """Copy the values of the first instance to the device, to which ``executor`` is attached."""
        values = self.values()
        if popdist_py.isPopdistEnvSet() and popdist_py.getNumInstances() > 1:
            for id, value in values.items():
                first = popdist_py.broadcast(np.ascontiguousarray(value.detach().to(torch.float32).numpy()), 0)
                values[id] = torch.from_numpy(first).reshape(value.shape)
        executor.set_optimizer_states(values)

    def fetch(self, executor: PoplarExecutor, steps: int) -> None:
        """Set the values to those of the device after ``steps`` updates."""
        if not self._prefixes:
            return
        states = executor.optimizer_states()
        for name, param in self._parameters.items():
            values = {key: states[prefix + name] for key, prefix in self._prefixes.items() if prefix + name in states}
            state = self._optimiser.state[param] if values else {}
            for key, value in values.items():
                state[key] = value.reshape(()) if key == "step" else value.reshape(param.shape).to(param.dtype)
            if values and isinstance(self._optimiser, _COUNTING):
                state["step"] = torch.tensor(float(state.get("step", 0)) + steps)
