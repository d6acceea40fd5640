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


NAN, INF = float("nan"), float("inf")
SPECIAL = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 88.0, -104.0], np.float32)
INTEGERS = np.array([0, 1, -1, 2, -2, 7, -7, 2**31 - 1, 46341], np.int32)
ROWS = np.array([[1.0, NAN, 2.0], [-INF, -INF, -INF], [INF, 1.0, -1.0], [3.0, 3.0, 3.0]], np.float32)
UNARY = (
    *(
        "Abs",
        "Ceil",
        "Erf",
        "Erfc",
        "Exp",
        "Expm1",
        "Floor",
        "IsFinite",
        "IsInf",
        "IsNan",
        "Log",
        "Log1p",
        "Neg",
        "Rint",
    ),
    *("Reciprocal", "Round", "Rsqrt", "Sigmoid", "Sign", "Softplus", "Sqrt", "Square", "Tanh"),
)
BINARY = (
    *(
        "AddV2",
        "Sub",
        "Mul",
        "FloorDiv",
        "FloorMod",
        "TruncateDiv",
        "TruncateMod",
        "Maximum",
        "Minimum",
        "Equal",
        "Less",
    ),
)
REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod")


def edges(raw: Any, special: Any, integers: Any, rows: Any, data: Any) -> list[Any]:
    """Results at values that random numbers miss."""
    results = [getattr(raw, name)(**{"features" if name == "Softplus" else "x": special}) for name in UNARY]
    for x in (special, integers):
        a, b = x[:, None], x[None, 5:13] if x is special else x[None, 1:]
        results += [getattr(raw, name)(x=a, y=b) for name in BINARY if (name, x is special) != ("FloorMod", True)]
    results += [getattr(raw, name)(input=rows, axis=1) for name in REDUCTIONS]
    results += [raw.Softmax(logits=rows), raw.ClipByValue(t=special, clip_value_min=1.0, clip_value_max=-1.0)]
    results.append(raw.UnsortedSegmentSum(data=data, segment_ids=[0, -1, 2, 0], num_segments=3))
    return [*results, raw.OneHot(indices=[0, -1, 3, 7], depth=4, on_value=5.0, off_value=-1.0)]


def test_rules_compute_the_results_of_tensorflow_at_edges(tf: Any, tensorflow: Any, run: Any) -> None:
    from tensorflow.python.eager import context

    raw, values = tensorflow.v2.raw_ops, (SPECIAL, INTEGERS, ROWS, np.ones((4, 2), np.float32))
    with context.eager_mode():
        expected = edges(raw, *map(tf.constant, values))
    for result, other in zip(run(lambda *xs: edges(raw, *xs), *values), expected, strict=True):
        np.testing.assert_allclose(result, np.asarray(other), rtol=2e-5, atol=1e-6)


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
