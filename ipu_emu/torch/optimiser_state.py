"""Optimiser state: the state of a PyTorch optimiser, copied to the device before training and back after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import popdist_py
from ipu_emu.compiler.rewriting.reserved_prefixes import ACCL1, ACCL2, ACCL3, STEP
from ipu_emu.poptorch.executor.executor import PoplarExecutor

#: The keys of states in PyTorch, and the prefix of their tensors on the device.
_PREFIXES: tuple[tuple[type, dict[str, str]], ...] = (
    (torch.optim.SGD, {"momentum_buffer": ACCL1}),
    (torch.optim.Adamax, {"exp_avg": ACCL1, "exp_inf": ACCL2, "step": STEP}),
    (torch.optim.Adam, {"exp_avg": ACCL1, "exp_avg_sq": ACCL2, "step": STEP}),
    (torch.optim.AdamW, {"exp_avg": ACCL1, "exp_avg_sq": ACCL2, "step": STEP}),
    (torch.optim.RMSprop, {"square_avg": ACCL1, "grad_avg": ACCL2, "momentum_buffer": ACCL3}),
    (torch.optim.Adagrad, {"sum": ACCL1}),
    (torch.optim.Adadelta, {"square_avg": ACCL1, "acc_delta": ACCL2}),
)
#: Optimisers that count steps on the host alone.
_COUNTING = (torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adadelta)


class OptimiserState:
    """The state of ``optimiser`` for the parameters of ``objective``; those of PopTorch keep their own."""

    def __init__(self, optimiser: Any, objective: torch.nn.Module) -> None:
        self._optimiser = optimiser
        self._prefixes = next((row for kind, row in _PREFIXES if type(optimiser) is kind), {})
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
