"""Traced training: the state of a step as bytes, in which a command gets it from a program."""

from __future__ import annotations

import os
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_emu import models
from ipu_emu.compiler.gradients.gradient import Gradient, GradientReduction
from ipu_emu.compiler.memory.tensor_locations import LocationRule, StorageChoice, TensorLocations
from ipu_emu.compiler.options import CompileOptions, HostStreams
from ipu_emu.compiler.pipeline import CompileState
from ipu_emu.compiler.placement.placement_options import PipelineOptions, PlacementMode, PlacementOptions
from ipu_emu.compiler.traced_training import from_bytes, to_bytes, traced_step
from ipu_emu.errors import EmulatorError
from ipu_emu.onnx.read import read
from ipu_emu.program.anchors import Anchor, Return, StepShape
from ipu_emu.program.instructions import Overlap


@pytest.fixture
def state() -> CompileState:
    model = models.mlp((6, 5, 3), batch=4)
    options = CompileOptions(
        step=StepShape(3, 2, 1),
        anchors=(Anchor(model.loss, Return.ALL),),
        replicas=2,
        reduction=GradientReduction.MEAN_RUNNING,
        bucket_bytes=1 << 20,
        placement=PlacementOptions(PlacementMode.MANUAL, 2, (1.0, 2.0)),
        pipeline=PipelineOptions("grouped", 2, sharded_stages=True),
        locations=TensorLocations(
            states=LocationRule(StorageChoice(off_chip=True), 32, 32), by_id={"w": StorageChoice()}
        ),
        streams=HostStreams(ahead={"x": Overlap.LOOPS}, staged={"y": 2}),
        stochastic_rounding=True,
    )
    return traced_step(read(model.proto).graph, options, [Gradient("w", "part", "total")], trains=True)


def test_a_state_survives_as_bytes(state: CompileState) -> None:
    read = from_bytes(to_bytes(state))
    assert str(read) == str(state)
    assert replace(read.options, training=None) == replace(state.options, training=None)
    assert read.options.training is not None
    assert (read.gradients, read.anchors, read.done) == (state.gradients, state.anchors, state.done)
    assert read.graph.data.keys() == state.graph.data.keys()
    for id, value in state.graph.data.items():
        np.testing.assert_array_equal(read.graph.data[id], value)
    assert (
        from_bytes(to_bytes(replace(state, options=replace(state.options, training=None)))).options.training is None
    )


class _Calls:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def test_a_pickle_is_refused_and_not_executed(tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match="it is not a traced step of this version"):
        from_bytes(pickle.dumps(_Calls(tmp_path / "made")))
    assert not (tmp_path / "made").exists()


def test_damaged_bytes_are_refused(state: CompileState) -> None:
    content, dice = to_bytes(state), random.Random(7)
    for _ in range(50):
        place = dice.randrange(len(content))
        damaged = content[:place] + bytes([content[place] ^ 1 << dice.randrange(8)]) + content[place + 1 :]
        for bytes_ in (damaged, content[:place]):
            with pytest.raises(EmulatorError, match=r"not a traced step|damaged"):
                from_bytes(bytes_)
