"""Supported operations: one identifier per version of an op, with its inputs, outputs and attributes."""

from __future__ import annotations

import pytest

from ipu_emu import popart


def test_versions_of_ops() -> None:
    operations = popart.getSupportedOperations(False)
    versions = {
        name: [i.version for i in operations if (i.domain, i.type) == ("ai.onnx", name)] for name in ("Add", "Pad")
    }
    assert versions == {"Add": [6, 7], "Pad": [2, 11]}
    assert {i.type for i in operations} >= {"Constant", "Shape", "ConstantOfShape", "L1", "ScatterReduce"}
    more = popart.getSupportedOperations(True)
    assert "SGD0VarUpdate" in {i.type for i in more} - {i.type for i in operations}
    with pytest.raises(AttributeError):
        operations[0].version = 3  # type: ignore[misc]


def test_unsupported_ops_are_those_of_sequences_and_texts() -> None:
    assert popart.getUnsupportedOperations(9) == []
    assert "SequenceAt" in {i.type for i in popart.getUnsupportedOperations(11)}


def test_definitions() -> None:
    known = popart.getSupportedOperationsDefinition(False)
    pad = known[popart.OperatorIdentifier("ai.onnx", "Pad", 11)]
    assert [(operand.name, operand.constant) for operand in pad.inputs][:2] == [("data", False), ("pads", True)]
    assert popart.DataType.FLOAT in pad.inputs[0].supportedTensors
    assert [operand.name for operand in pad.outputs] == ["output"]
    assert pad.attributes["mode"].supportedValuesRegex == "*"
