"""CompileOptions: all inputs of the compiler except the graph.

A front end translates its own options into these; passes do not depend on a front end. Options are plain data (frozen
dataclasses, enums and numbers), so that they can be compared, printed and hashed for the cache of executables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.gradients.gradient import GradientReduction
from ipu_emu.compiler.memory.tensor_locations import TensorLocations
from ipu_emu.compiler.optimisers.automatic_loss_scaling import LossScaler
from ipu_emu.compiler.optimisers.update_rule import UpdateRule
from ipu_emu.compiler.placement.graph_balance import MicroBatchWork
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementOptions
from ipu_emu.program.anchors import Anchor, StepShape
from ipu_emu.program.instructions import Overlap


@dataclass(frozen=True)
class TrainingOptions:
    """How a model is trained: ``loss`` is the id of the scalar to minimise, ``rule`` updates the weights.

    With ``float_loss_scale`` the loss scaling is a FLOAT in FLOAT16 models too; with a ``loss_scaler`` it always is.
    ``trained`` are the ids of the initializers that are trained; None is every floating-point one.
    """

    loss: str
    rule: UpdateRule
    loss_scaler: LossScaler | None = None
    trained: frozenset[str] | None = None
    float_loss_scale: bool = False


@dataclass(frozen=True)
class HostStreams:
    """How inputs are received from the host.

    ``broadcast``   inputs that are equal on all replicas
    ``ahead``       inputs that are loaded while another micro-batch computes
    ``staged``      inputs that wait in Streaming Memory, each with the number of its buffers there
    ``synthetic``   generate inputs on the device and store nothing: the program has no host I/O
    """

    broadcast: frozenset[str] = frozenset()
    ahead: Mapping[str, Overlap] = field(default_factory=lambda: MappingProxyType({}))
    staged: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    synthetic: bool = False

    @property
    def from_host(self) -> bool:
        """Whether the program has host I/O."""
        return not self.synthetic


@dataclass(frozen=True)
class CompileOptions:
    """The options of one executable.

    ``step``                 batches per step, micro-batches per batch, replicas of this instance
    ``anchors``              the tensors that the host receives
    ``training``             None for inference
    ``forward_only``         keep only the forward pass of a training graph
    ``replicas``             replicas of all instances
    ``reduction``            how gradients of micro-batches and replicas are combined
    ``bucket_bytes``         the most bytes of gradients in one all-reduce; None: no limit
    ``pipeline``             None: the IPUs of a replica work one after the other
    ``preload``              load weights in Streaming Memory one execution phase ahead
    ``strided_groups``       channel c of a group normalisation belongs to group c mod G, not to c div (C / G)
    ``fuse_elementwise``     fuse chains of element-wise ops; off if every op is to be checked
    ``sync``                 the sync pattern of the devices
    """

    step: StepShape = field(default_factory=lambda: StepShape(1, 1, 1))
    anchors: tuple[Anchor, ...] = ()
    training: TrainingOptions | None = None
    forward_only: bool = False
    replicas: int = 1
    reduction: GradientReduction = GradientReduction.SUM
    bucket_bytes: int | None = None
    placement: PlacementOptions = field(default_factory=PlacementOptions)
    pipeline: PipelineOptions | None = None
    locations: TensorLocations = field(default_factory=TensorLocations)
    recomputation: Recomputation = Recomputation.NONE
    preload: bool = False
    streams: HostStreams = field(default_factory=HostStreams)
    stochastic_rounding: bool = False
    strided_groups: bool = False
    fuse_elementwise: bool = True
    sync: str = "Full"

    @property
    def trains(self) -> bool:
        """Whether the model is trained."""
        return self.training is not None

    @property
    def scales_loss(self) -> bool:
        """Whether the loss scale changes by the gradients."""
        return self.training is not None and self.training.loss_scaler is not None

    @property
    def work(self) -> MicroBatchWork:
        """What is done with a micro-batch; NORM_ONLY keeps most activations."""
        recomputes = self.recomputation not in (Recomputation.NONE, Recomputation.NORM_ONLY)
        return MicroBatchWork.of(training=self.trains, recomputes=recomputes)

    @property
    def sums_tied_tables_apart(self) -> bool:
        """Whether look-ups and products of a table have separate sums over micro-batches.

        Loss scaling counts elements of gradients of single micro-batches, which are whole then. Stochastic rounding
        draws a number for every addition to a total.
        """
        return self.step.accumulation > 1 and not self.scales_loss and not self.stochastic_rounding

    @property
    def remaining_divisor(self) -> int:
        """The divisor of reduced gradients in weight updates: A x R if the mean is taken at the end, else 1."""
        return self.step.accumulation * self.replicas if self.reduction is GradientReduction.MEAN_POST else 1
