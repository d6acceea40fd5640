"""Variable memory: bytes of the variables of a model ("Mapping a model to an IPU system", 3.4).

    N_gradients = N_activations B            N_backprop = N_weights + N_biases + N_non_trainable + N_optimiser
    inference   (N_weights + N_biases + N_non_trainable) N_FP
    training    (N_weights + N_biases + N_gradients + N_optimiser + N_backprop) N_FP

N_backprop contains the optimiser states, which are counted already. Without ``literal`` they and the moving averages
are counted once: N_backprop is then the gradients of weights and biases. Code and exchange buffers are not included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipu_emu.compiler.optimisers.optimiser_table import OPTIMISERS
from ipu_emu.errors import EmulatorError
from ipu_emu.predict.layer_parameters import Parameters
from popdist_py.messages.suggestion import did_you_mean

if TYPE_CHECKING:
    from ipu_emu.hardware import Generation
    from ipu_emu.models import Model


@dataclass(frozen=True)
class Variables:
    """The variables of a model, counted in values; ``activations`` are per sample."""

    parameters: Parameters
    activations: int

    def gradients(self, batch: int) -> int:
        """Return the activations that the backward pass needs for ``batch`` samples."""
        return self.activations * batch

    def optimiser(self, name: str) -> int:
        """Return the number of state values; raise EmulatorError for an unknown optimiser."""
        if name not in OPTIMISERS:
            hint = did_you_mean(name, OPTIMISERS)
            raise EmulatorError(f"there is no optimiser '{name}'; use {', '.join(OPTIMISERS)}{hint}")
        return OPTIMISERS[name].states * self.parameters.trainable

    def inference(self, itemsize: int) -> int:
        """Return bytes for inference."""
        return self.parameters.total * itemsize

    def training(
        self, itemsize: int, *, batch: int, optimiser: str, literal: bool = False, state_itemsize: int | None = None
    ) -> int:
        """Return bytes for training; ``literal`` as in the technical note. States may have their own item size."""
        states, once = self.optimiser(optimiser), self.parameters.trainable
        own = states * (itemsize if state_itemsize is None else state_itemsize)
        if literal:
            backprop = self.parameters.total + states
            return own + (once + self.gradients(batch) + backprop) * itemsize
        return own + (self.parameters.total + self.gradients(batch) + once) * itemsize


def of_model(model: Model) -> Variables:
    """Return the variables of a model; all its parameters count as weights."""
    from ipu_emu.models import ModelSize

    counts = ModelSize.of(model)
    itemsize = model.graph.tensor(model.output).dtype.itemsize
    parameters = Parameters(counts.parameters + counts.heads, 0, counts.statistics)
    return Variables(parameters, counts.activations // itemsize)


def ipus_needed(nbytes: int, generation: Generation, *, proportion: float = 0.6) -> int:
    """Return the smallest power of two of IPUs whose memory holds ``nbytes``; data may use ``proportion`` of it."""
    if not 0 < proportion <= 1:
        raise EmulatorError(f"proportion {proportion} is out of range; use more than 0 and at most 1")
    ipus = max(1, -(-nbytes // int(generation.sram * proportion)))
    return 1 << (ipus - 1).bit_length()
