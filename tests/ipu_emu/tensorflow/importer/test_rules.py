"""Rules: each compared with TensorFlow's own kernel on the CPU, on operands of many shapes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies

from tests.ipu_emu.tensorflow.importer.drawn import Drawn
from tests.ipu_emu.tensorflow.importer.rule_cases import CASES

#: Rules that other tests compare: of variables in test_updates, of control flow in test_control, of random numbers in
#: test_random; and rules that have no result to compare.
ELSEWHERE = {
    "control": {
        "Case", "EmptyTensorList", "If", "NoOp", "PartitionedCall", "StatefulPartitionedCall", "StatelessCase",
        "StatelessIf", "StatelessWhile", "TensorListElementShape", "TensorListFromTensor", "TensorListGetItem",
        "TensorListLength", "TensorListPopBack", "TensorListPushBack", "TensorListReserve", "TensorListSetItem",
        "TensorListStack", "While", "Assert",
    },
    "random": {
        "Bitcast", "Multinomial", "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "RngReadAndSkip",
        "StatelessRandomGetKeyCounter", "StatelessRandomNormalV2", "StatelessRandomUniformFullIntV2",
        "StatelessRandomUniformIntV2", "StatelessRandomUniformV2", "StatelessTruncatedNormalV2", "TruncatedNormal",
    },
}  # fmt: skip
UPDATES = ("Resource", "Assign", "ReadVariableOp", "VarIsInitializedOp", "VariableShape", "_ReadVariablesOp")
TIMES = 3


def test_every_rule_is_compared(tensorflow: Any) -> None:
    from ipu_emu.tensorflow.importer.rules.table import RULES

    elsewhere = {name for names in ELSEWHERE.values() for name in names}
    elsewhere |= {name for name in RULES if name.startswith(UPDATES)}
    assert set(RULES) == set(CASES) | elsewhere


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_rule_computes_the_result_of_tensorflow(tf: Any, tensorflow: Any, run: Any, full: bool, name: str) -> None:
    @settings(max_examples=20 if full else TIMES, derandomize=True, deadline=None, database=None)
    @given(data=strategies.data())
    def check(data: Any) -> None:
        compare(tf, tensorflow.v2.raw_ops, run, name, Drawn(data.draw))

    check()


def compare(tf: Any, raw: Any, run: Any, name: str, drawn: Drawn) -> None:
    """Compare the rule with TensorFlow's kernel on the operands of a case."""
    from tensorflow.python.eager import context

    operands, compute = CASES[name](name, drawn)
    with context.eager_mode():
        expected = flat(compute(raw, *(tf.constant(operand) for operand in operands)))
    actual = run(lambda *values: flat(compute(raw, *values)), *map(np.asarray, operands))
    assert len(actual) == len(expected)
    for result, other in zip(actual, expected, strict=True):
        other = np.asarray(other)
        assert result.shape == other.shape
        np.testing.assert_allclose(result, other, rtol=2e-5, atol=2e-5, err_msg=name)


def flat(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, list | tuple) else [outputs]
