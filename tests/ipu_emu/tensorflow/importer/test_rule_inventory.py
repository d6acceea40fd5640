"""Inventory of TensorFlow's ops: each attribute with a default has a case off it, or is refused by its name.

The rows are TensorFlow's: the attributes of the ops that have a rule. ``test_rules.py`` compares the cases.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.helpers.inventory_page import assert_counts
from tests.ipu_emu.tensorflow.importer import attribute_cases
from tests.ipu_emu.tensorflow.importer.attribute_cases import REFUSED
from tests.ipu_emu.tensorflow.importer.rule_cases import CASES

Row = tuple[str, str]
#: Draws of each case, which are made without TensorFlow.
DRAWS = 30
#: Attributes of ops on variables and lists, and seeds, which tests below give, or ``test_updates.py``.
SEEDED = ("Multinomial", "RandomStandardNormal", "RandomUniform", "RandomUniformInt", "TruncatedNormal")
UPDATES: dict[Row, dict[str, Any]] = {
    ("ResourceApplyAdagrad", "update_slots"): {"slots": ("accum",), "values": {"lr": 0.1}, "off": False},
    ("ResourceApplyAdagradV2", "update_slots"): {
        "slots": ("accum",), "values": {"lr": 0.1, "epsilon": 1e-3}, "off": False,
    },
    ("ResourceApplyAdam", "use_nesterov"): {
        "slots": ("m", "v"), "off": True,
        "values": {"beta1_power": 0.9, "beta2_power": 0.99, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-3},
    },
}  # fmt: skip
FTRL = {"lr": 0.1, "l1": 0.0, "l2": 0.0, "lr_power": -0.5}
NESTEROV = {("ResourceApplyKerasMomentum", "use_nesterov"), ("ResourceApplyMomentum", "use_nesterov")}
#: What ``change`` refuses.
CHANGES = {("ResourceApplyFtrl", "multiply_linear_by_lr"), ("ResourceApplyFtrlV2", "multiply_linear_by_lr")}


class Calls:
    """Stands for ``tf.raw_ops``: its functions record the attributes that are off their defaults."""

    def __init__(self, raw: Any) -> None:
        self.raw, self.rows = raw, set[Row]()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self.raw, name)

        @functools.wraps(function)
        def call(**arguments: Any) -> Any:
            self.rows |= {
                (name, key) for key, value in arguments.items() if not equals(defaults(name).get(key), value)
            }
            return [np.zeros(1)] * 8

        return call


def equals(default: Any, value: Any) -> bool:
    return not isinstance(value, np.ndarray) and bool(default == value)


@functools.cache
def defaults(name: str) -> dict[str, Any]:
    """The values of attributes that have defaults, without element types."""
    from tensorflow.python.framework import op_def_registry

    kinds = {"bool": "b", "int": "i", "float": "f"}
    entries = [entry for entry in op_def_registry.get(name).attr if entry.HasField("default_value")]
    values = {}
    for entry in entries:
        if entry.type in kinds:
            values[entry.name] = getattr(entry.default_value, kinds[entry.type])
        elif entry.type == "string":
            values[entry.name] = entry.default_value.s.decode()
        elif entry.type != "type":
            values[entry.name] = list(entry.default_value.list.i)
    return values


def rows() -> set[Row]:
    from ipu_emu.tensorflow.importer.node import WITHOUT_EFFECT
    from ipu_emu.tensorflow.importer.rules.table import RULES

    return {(op, name) for op in RULES for name in defaults(op).keys() - WITHOUT_EFFECT}


def off_default(raw: Any) -> set[Row]:
    """The attributes that the drawn cases have; the operands of some are known only to TensorFlow."""
    calls = Calls(raw)
    for name, case in CASES.items():
        for seed in range(DRAWS if name not in ("OnesLike", "ZerosLike") else 0):
            operands, compute = case(name, np.random.default_rng(seed))
            compute(calls, *operands)
    return calls.rows


def test_every_attribute_has_a_row(tensorflow: Any) -> None:
    cases = off_default(tensorflow.v2.raw_ops) | attribute_cases.CASES.keys() | UPDATES.keys() | NESTEROV
    cases |= {(name, seed) for name in SEEDED for seed in ("seed", "seed2")} | {("ResourceGather", "batch_dims")}
    refused = REFUSED.keys() | CHANGES | {("TensorListSetItem", "resize_if_index_out_of_bounds")}
    assert rows() - cases - refused == set()
    assert_counts("attributes of TensorFlow's ops", len(rows() - refused), len(rows() & refused), 0)


@pytest.mark.parametrize("part", range(4))
def test_attributes_off_their_defaults(tensorflow: Any, run: Any, part: int) -> None:
    from tensorflow.python.eager import context

    raw, cases = tensorflow.v2.raw_ops, list(attribute_cases.CASES.items())[part::4]
    counts = np.cumsum([len(operands) for _, (_, _, operands) in cases])

    def program(*values: Any) -> list[Any]:
        parts = [values[end - len(operands) : end] for end, (_, (_, _, operands)) in zip(counts, cases, strict=True)]
        return [call(raw, *xs) for xs, (_, (call, _, _)) in zip(parts, cases, strict=True)]

    results = run(program, *(x for _, (_, _, operands) in cases for x in operands))
    with context.eager_mode():
        for result, (row, (call, reference, operands)) in zip(results, cases, strict=True):
            expected = np.asarray((reference or call)(raw, *operands))
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=str(row))


@pytest.mark.parametrize("row", REFUSED, ids=".".join)
def test_an_attribute_that_is_refused_is_named(tensorflow: Any, run: Any, row: Row) -> None:
    call, operands = REFUSED[row]
    with pytest.raises(tensorflow.v2.errors.UnimplementedError, match=rf"{row[0]} at .*{row[1]}="):
        run(lambda *xs: call(tensorflow.v2.raw_ops, *xs), *operands)


def changed(tf: Any, raw: Any, op: str, slots: tuple[str, ...], **arguments: Any) -> list[Any]:
    """A variable and its slots, after an op has changed them."""
    names, start = ("var", *slots), np.array([0.5, -1.0, 2.0], np.float32)
    variables = {name: tf.get_variable(name, initializer=start * (k + 1) / 2) for k, name in enumerate(names)}
    handles = {name: variable.handle for name, variable in variables.items()}
    grad = tf.constant(np.array([0.3, 0.2, -0.4], np.float32))
    with tf.control_dependencies([getattr(raw, op)(**handles, grad=grad, **arguments)]):
        return [variable.read_value() for variable in variables.values()]


@pytest.mark.parametrize("row", UPDATES, ids=".".join)
def test_attributes_of_updates(tf: Any, tensorflow: Any, run: Any, row: Row) -> None:
    op, name = row
    slots, values, off = (UPDATES[row][key] for key in ("slots", "values", "off"))
    results = []
    for value in (off, not off):
        with tf.Graph().as_default(), tf.variable_scope("", use_resource=True):
            arguments = {**values, name: value}
            results.append(run(lambda a=arguments: changed(tf, tensorflow.v2.raw_ops, op, slots, **a)))
    with tf.Graph().as_default(), tf.variable_scope("", use_resource=True), tf.Session() as session:
        reads = changed(tf, tensorflow.v2.raw_ops, op, slots, **values, **{name: off})
        session.run(tf.global_variables_initializer())
        np.testing.assert_allclose(np.stack(results[0]), np.stack(session.run(reads)), rtol=1e-5)
    assert not np.allclose(np.stack(results[0]), np.stack(results[1]))


@pytest.mark.parametrize("op", [op for op, _ in sorted(CHANGES)])
def test_a_rate_times_the_linear_term_is_refused(tf: Any, tensorflow: Any, run: Any, op: str) -> None:
    values = FTRL | ({"l2_shrinkage": 0.0} if op.endswith("V2") else {})
    with (
        tf.variable_scope("", use_resource=True),
        pytest.raises(tensorflow.v2.errors.UnimplementedError, match="multiply_linear_by_lr=True"),
    ):
        run(lambda: changed(tf, tensorflow.v2.raw_ops, op, ("accum", "linear"), **values, multiply_linear_by_lr=True))


def test_rows_of_a_variable_by_batch(tf: Any, tensorflow: Any, run: Any) -> None:
    table, ids = np.arange(12, dtype=np.float32).reshape(2, 3, 2), np.array([[2, 0], [1, 1]], np.int32)

    def program(chosen: Any) -> Any:
        handle = tf.get_variable("table", initializer=table, use_resource=True).handle
        return tensorflow.v2.raw_ops.ResourceGather(resource=handle, indices=chosen, dtype=tf.float32, batch_dims=1)

    (rows_of_table,) = run(program, ids)
    np.testing.assert_array_equal(rows_of_table, [table[0][[2, 0]], table[1][[1, 1]]])


def test_a_list_that_would_grow_is_refused(tf: Any, tensorflow: Any, run: Any) -> None:
    raw = tensorflow.v2.raw_ops

    def program(x: Any) -> Any:
        handle = raw.TensorListReserve(element_shape=[2], num_elements=3, element_dtype=tf.float32)
        handle = raw.TensorListSetItem(input_handle=handle, index=5, item=x, resize_if_index_out_of_bounds=True)
        return raw.TensorListStack(input_handle=handle, element_shape=[2], element_dtype=tf.float32)

    with pytest.raises(tensorflow.v2.errors.UnimplementedError, match="resize_if_index_out_of_bounds=True"):
        run(program, np.ones(2, np.float32))


@pytest.mark.parametrize("name", ["seed", "seed2"])
def test_seeds_decide_the_numbers(tf: Any, tensorflow: Any, run: Any, name: str) -> None:
    raw = tensorflow.v2.raw_ops

    def drawn(x: Any, seed: int) -> list[Any]:
        options = {name: seed}
        return [
            raw.Multinomial(logits=x, num_samples=50, name="a", **options),
            raw.RandomStandardNormal(shape=[50], dtype=tf.float32, name="b", **options),
            raw.RandomUniform(shape=[50], dtype=tf.float32, name="c", **options),
            raw.RandomUniformInt(shape=[50], minval=0, maxval=1000, name="d", **options),
            raw.TruncatedNormal(shape=[50], dtype=tf.float32, name="e", **options),
        ]

    results = []
    for seed in (3, 3, 4):
        with tf.Graph().as_default():
            results.append(run(lambda x, seed=seed: drawn(x, seed), np.zeros((1, 99), np.float32)))
    for first, again, other in zip(*results, strict=True):
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()
