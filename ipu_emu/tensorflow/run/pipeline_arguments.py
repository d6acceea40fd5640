"""Pipeline arguments: those of TensorFlow's ``pipelining_ops.pipeline``, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Mapping as Options
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ipu_emu.program.schedules import Mapping
from ipu_emu.tensorflow.run.feeds.queues import OutfeedQueue


class PipelineSchedule(Enum):
    """The schedule of the stages."""

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(Enum):
    """How activations are recomputed."""

    Auto = "Auto"
    RecomputeThenBackpropagate = "Recompute_then_backpropagate"
    RecomputeAndBackpropagateInterleaved = "Recompute_and_backpropagate_interleaved"


class GradientAccumulationReductionMethod(Enum):
    """How the gradients of mini-batches are combined."""

    SUM = 0
    MEAN = 1
    RUNNING_MEAN = 2

    @classmethod
    def parse(cls, value: Any) -> GradientAccumulationReductionMethod:
        """Return a member given as such or by name in any letter case; raise ValueError for others."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        raise ValueError(
            f"Cannot parse {value!r} as one of {', '.join(cls.__members__)}; give a member of "
            "GradientAccumulationReductionMethod or one of these names"
        )


@dataclass(frozen=True)
class StageFunction:
    """A computational stage: tensors that it returns, variables that it uses, tensors of the enclosing scope that it
    captures, and the shards on which it places ops (``ipu_shard``).
    """

    name: str
    outputs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    shards: tuple[int, ...] = ()


@dataclass(frozen=True)
class PipelineStageOptions:
    """Options for Poplar's libraries; none changes a result."""

    convolution_options: Options[str, str] = field(default_factory=dict)
    matmul_options: Options[str, str] = field(default_factory=dict)
    slice_options: Options[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PipelineArguments:
    """The arguments of a pipeline call, unchecked. With an ``optimizer_function`` it trains.

    A ``gradient_accumulation_count`` that is a function is called when slots are requested, as in a run.
    ``allow_recompute``, ``io_tiles`` and ``remote_memory`` belong to the configuration of the IPUs.
    """

    computational_stages: Sequence[StageFunction | Sequence[StageFunction]]
    gradient_accumulation_count: int | Callable[[], int] | None = None
    gradient_accumulation_dtype: Any = None
    gradient_accumulation_for_captured_grads: bool = True
    repeat_count: int = 1
    batch_serialization_iterations: int = 1
    inputs: Sequence[Any] = ()
    outfeed_queue: OutfeedQueue | None = None
    optimizer_function: Callable[..., Any] | None = None
    device_mapping: Mapping | None = None
    pipeline_schedule: PipelineSchedule | None = None
    recomputation_mode: RecomputationMode = RecomputationMode.Auto
    forward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None
    backward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None
    weight_update_poplar_options: PipelineStageOptions | None = None
    offload_weight_update_variables: bool | None = None
    replicated_optimizer_state_sharding: bool = False
    offload_activations: bool | None = None
    offload_gradient_accumulation_buffers: bool | None = None
    replicated_weight_sharding: bool | None = None
    offload_weights: bool | None = None
    continuous_weight_updates: bool = False
    outfeed_loss: bool = False
    outfeed_mask: Sequence[bool] | None = None
    accumulate_outfeed: bool = False
    accumulate_outfeed_dtype: Any = None
    reduction_method: GradientAccumulationReductionMethod | str = GradientAccumulationReductionMethod.SUM
    name: str = "pipeline"
    allow_recompute: bool = False
    io_tiles: bool = False
    remote_memory: bool = True
    late: bool = False

    @property
    def kind(self) -> PipelineSchedule:
        """The given schedule, or the default."""
        if self.pipeline_schedule is not None:
            return self.pipeline_schedule
        serial = self.batch_serialization_iterations > 1
        return PipelineSchedule.Sequential if serial else PipelineSchedule.Grouped

    @property
    def functions(self) -> list[Sequence[StageFunction]]:
        """The functions of each stage; several are concurrent."""
        return [[stage] if isinstance(stage, StageFunction) else stage for stage in self.computational_stages]

    @property
    def mapping(self) -> list[tuple[int, ...]]:
        """The IPUs of each stage."""
        stages = len(self.computational_stages)
        single = self.batch_serialization_iterations > 1
        mapping = self.device_mapping
        entries: Mapping = ([0] * stages if single else list(range(stages))) if mapping is None else mapping
        return [(entry,) if isinstance(entry, int) else tuple(entry) for entry in entries]
