"""Execution strategies: how blocks are assigned to stages, and how stages run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipu_emu.poptorch.blocks import BlockUse
from ipu_emu.poptorch.enums import AutoStage, Liveness
from ipu_emu.poptorch.errors import Error
from ipu_emu.poptorch.options.option_group import of_kind
from ipu_emu.session.options.without_effect import say_without_effect

__all__ = [
    "BalancedPipeline", "ParallelPhasedExecution", "Phase", "PipelinedExecution", "SerialPhasedExecution",
    "ShardedExecution", "Stage", "Strategy",
]  # fmt: skip


class Stage:
    """The blocks of one stage, and the IPU that it runs on."""

    def __init__(self, *block_ids: str) -> None:
        if not all(isinstance(id, str) for id in block_ids):
            raise AssertionError(f"Block ids are supposed to be strings but got {block_ids}")
        self.blocks = list(block_ids)
        self._ipu: int | None = None

    def ipu(self, ipu: int) -> Stage:
        """Run on this IPU, overriding the blocks."""
        self._ipu = int(ipu)
        return self

    @property
    def own_ipu(self) -> int | None:
        return self._ipu


class Strategy:
    """Base of the strategies; ``place`` gives (stage, IPU) for each block of a trace."""

    pipelined = False
    phased = False
    #: The advice to use more IPUs, if a model does not fit.
    more_ipus = "poptorch.Block on {ipus} IPUs with poptorch.ShardedExecution"

    def place(self, uses: Sequence[BlockUse]) -> list[tuple[int, int]]:
        """Return the stage and the IPU of each block, in the order of ``uses``."""
        raise NotImplementedError


class _StagedExecution(Strategy):
    def __init__(self, *args: Any) -> None:
        self._auto = AutoStage.SameAsIpu
        self._stages: list[Stage] = []
        if len(args) == 1 and isinstance(args[0], AutoStage):
            self._auto = args[0]
            return
        for argument in args:
            if isinstance(argument, Stage):
                self._stages.append(argument)
            elif isinstance(argument, str):
                self._stages.append(Stage(argument))
            elif isinstance(argument, list | tuple):
                self._stages.append(Stage(*argument))
            else:
                raise AssertionError(f"Expected stages, block ids or one AutoStage, found {argument!r}")
        seen: set[str] = set()
        for stage in self._stages:
            for block in stage.blocks:
                if block in seen:
                    raise AssertionError(f"{block} associated with more than one stage")
                seen.add(block)

    def stage(self, stage_id: int | str) -> Stage:
        """Return the stage with this number, or with the block of this name."""
        if isinstance(stage_id, int):
            return self._stages[stage_id]
        stages = [stage for stage in self._stages if stage_id in stage.blocks]
        if not stages:
            names = ", ".join(block for stage in self._stages for block in stage.blocks)
            raise AssertionError(f"No stage has the block '{stage_id}'; there are {names or 'none'}")
        return stages[0]

    def place(self, uses: Sequence[BlockUse]) -> list[tuple[int, int]]:
        return self._explicit(uses) if self._stages else self._automatic(uses)

    def _explicit(self, uses: Sequence[BlockUse]) -> list[tuple[int, int]]:
        numbers = {block: number for number, stage in enumerate(self._stages) for block in stage.blocks}
        places = [(0, self._ipu_of(0, BlockUse("")))]
        for use in uses[1:]:
            if use.user_id not in numbers:
                raise AssertionError(f"Unknown Block '{use.user_id}' list of expected Blocks: {list(numbers)}")
            number = numbers[use.user_id]
            places.append((number, self._ipu_of(number, use)))
        return places

    def _ipu_of(self, number: int, use: BlockUse) -> int:
        own = self._stages[number].own_ipu
        if own is not None:
            return own
        return number if use.ipu is None else use.ipu

    def _automatic(self, uses: Sequence[BlockUse]) -> list[tuple[int, int]]:
        if self._auto is AutoStage.SameAsIpu:
            for use in uses[1:]:
                if use.ipu is None:
                    raise AssertionError(f"Block '{use.user_id}' has no ipu_id, which AutoStage.SameAsIpu needs")
            return [(use.ipu or 0, use.ipu or 0) for use in uses]
        numbers: dict[str, int] = {}
        placed = [(0, 0)]
        for use in uses[1:]:
            number = numbers.setdefault(use.user_id, len(numbers) + 1)
            placed.append((number, number if use.ipu is None else use.ipu))
        return placed


class PipelinedExecution(_StagedExecution):
    """Stages work at the same time, on different micro-batches."""

    pipelined = True


class BalancedPipeline(Strategy):
    """A pipeline of ``ipus`` stages that the compiler balances by work and bytes, ignoring blocks of the program.

    An extension of PopTorch.
    """

    pipelined, more_ipus = True, "ipus={ipus}"

    def __init__(self, ipus: int) -> None:
        self.ipus = ipus

    def place(self, uses: Sequence[BlockUse]) -> list[tuple[int, int]]:
        return [(0, 0)] * len(uses)


class ShardedExecution(_StagedExecution):
    """The IPUs of a replica run one after the other."""


class Phase:
    """The stages of one execution phase."""

    def __init__(self, *args: Any) -> None:
        items = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
        self.stages = [item if isinstance(item, Stage) else Stage(item) for item in items]

    def stage(self, number: int) -> Stage:
        return self.stages[number]

    def ipus(self, *ipus: int) -> Phase:
        """Run the stages on these IPUs."""
        if len(ipus) != len(self.stages):
            raise AssertionError(f"Phase contains {len(self.stages)} stages but you provided {len(ipus)} ipus")
        for stage, ipu in zip(self.stages, ipus, strict=True):
            stage.ipu(ipu)
        return self


class _PhasedExecution(Strategy):
    phased = True

    def __init__(self, *phases: Any) -> None:
        if len(phases) == 1 and isinstance(phases[0], list):
            phases = tuple(phases[0])
        self._phases = [phase if isinstance(phase, Phase) else Phase(phase) for phase in phases]
        self._separate = False

    def phase(self, phase: int) -> Phase:
        """Return the phase with this number."""
        return self._phases[phase]

    def useSeparateBackwardPhase(self, use: bool = True) -> _PhasedExecution:
        """A warning says that it has no effect."""
        self._separate = bool(use)
        return self

    def place(self, uses: Sequence[BlockUse]) -> list[tuple[int, int]]:
        places = {
            block: (number, stage.own_ipu if stage.own_ipu is not None else self._ipu(number, index))
            for number, phase in enumerate(self._phases)
            for index, stage in enumerate(phase.stages)
            for block in stage.blocks
        }
        order = [(0, 0)]
        for use in uses[1:]:
            if use.user_id not in places:
                raise AssertionError(f"Unknown Block '{use.user_id}' list of expected Blocks: {list(places)}")
            order.append(places[use.user_id])
        return order

    def _ipu(self, phase: int, stage: int) -> int:
        return stage


class SerialPhasedExecution(_PhasedExecution):
    """Phases take turns on all IPUs."""

    def setTensorsLiveness(self, liveness: Liveness) -> SerialPhasedExecution:
        """Accepted; it changes no number."""
        of_kind(liveness, Liveness)
        say_without_effect("The option", ["setTensorsLiveness"])
        return self


class ParallelPhasedExecution(_PhasedExecution):
    """Even phases run on even IPUs, odd ones on odd."""

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> ParallelPhasedExecution:
        """A warning says that it has no effect."""
        say_without_effect("The option", ["sendTensorsOffChipAfterFwd"][: not off_chip])
        return self

    def place(self, uses: Sequence[BlockUse]) -> list[tuple[int, int]]:
        places = super().place(uses)
        for use, (phase, ipu) in zip(uses, places, strict=True):
            if phase % 2 != ipu % 2:
                raise Error(
                    f"Block '{use.user_id}' of phase {phase} is on IPU {ipu}: with ParallelPhasedExecution "
                    "even phases must be on even IPUs and odd ones on odd"
                )
        return places

    def _ipu(self, phase: int, stage: int) -> int:
        return 2 * stage + phase % 2
