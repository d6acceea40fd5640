"""Rules of updates: every optimizer of TensorFlow 1 compared with the CPU, and the ops that change variables."""

from typing import Any

import numpy as np
import pytest

STEPS = 3


def optimizers(tf: Any) -> dict[str, Any]:
    keras = tf.keras.optimizers.legacy
    return {
        "ResourceApplyAdaMax": keras.Adamax(0.02),
        "ResourceApplyAdadelta": tf.train.AdadeltaOptimizer(0.3),
        "ResourceApplyAdagrad": tf.train.AdagradOptimizer(0.1),
        "ResourceApplyAdagradV2": keras.Adagrad(0.1),
        "ResourceApplyAdam": tf.train.AdamOptimizer(0.05),
        "ResourceApplyAdamWithAmsgrad": keras.Adam(0.05, amsgrad=True),
        "ResourceApplyCenteredRMSProp": tf.train.RMSPropOptimizer(0.02, momentum=0.5, centered=True),
        "ResourceApplyFtrl": tf.train.FtrlOptimizer(0.3, l1_regularization_strength=0.01),
        "ResourceApplyFtrlV2": tf.train.FtrlOptimizer(0.3, l2_shrinkage_regularization_strength=0.02),
        "ResourceApplyGradientDescent": tf.train.GradientDescentOptimizer(0.1),
        "ResourceApplyKerasMomentum": keras.SGD(0.1, momentum=0.9, nesterov=True),
        "ResourceApplyMomentum": tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
        "ResourceApplyProximalGradientDescent": tf.train.ProximalGradientDescentOptimizer(0.1, 0.02, 0.03),
        "ResourceApplyRMSProp": tf.train.RMSPropOptimizer(0.02, momentum=0.5),
    }


@pytest.mark.parametrize("name", [
    "ResourceApplyAdaMax", "ResourceApplyAdadelta", "ResourceApplyAdagrad", "ResourceApplyAdagradV2",
    "ResourceApplyAdam", "ResourceApplyAdamWithAmsgrad", "ResourceApplyCenteredRMSProp", "ResourceApplyFtrl",
    "ResourceApplyFtrlV2", "ResourceApplyGradientDescent", "ResourceApplyKerasMomentum", "ResourceApplyMomentum",
    "ResourceApplyProximalGradientDescent", "ResourceApplyRMSProp",
])  # fmt: skip
def test_an_optimizer_changes_variables_as_on_the_cpu(tf: Any, ipu: Any, name: str) -> None:
    x = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)

    def step() -> Any:
        w = tf.get_variable("w", initializer=np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2), use_resource=True)
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.constant(x), w) - 0.5))
        optimizer = optimizers(tf)[name]
        if isinstance(optimizer, tf.train.Optimizer):
            return loss, optimizer.minimize(loss)
        return loss, optimizer.apply_gradients([(tf.gradients(loss, [w])[0], w)])

    results = []
    for on_ipu in (False, True):
        with tf.Graph().as_default(), tf.Session() as session:
            if on_ipu:
                with ipu.scopes.ipu_scope("/device:IPU:0"):
                    operation = ipu.ipu_compiler.compile(step)
            else:
                operation = step()
                assert any(op.type == name for op in tf.get_default_graph().get_operations())
            session.run(tf.global_variables_initializer())
            losses = [session.run(operation)[0] for _ in range(STEPS)]
            variables = {
                variable.op.name: session.run(variable)
                for variable in tf.global_variables()
                if variable.dtype.is_floating
            }
            results.append((losses, variables))
    (losses, expected), (own, variables) = results
    np.testing.assert_allclose(own, losses, rtol=1e-5)
    assert variables.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(variables[key], value, rtol=2e-5, atol=1e-6, err_msg=key)


def test_ops_that_change_rows_and_read_back(tf: Any, ipu: Any, run: Any) -> None:
    def program(rows: Any) -> Any:
        v = tf.get_variable("v", initializer=np.ones((4, 2), np.float32), use_resource=True)
        raw = tf.raw_ops
        ops = []
        for change in (raw.ResourceScatterAdd, raw.ResourceScatterSub, raw.ResourceScatterUpdate):
            with tf.control_dependencies(ops):
                ops.append(change(resource=v.handle, indices=[1, 3], updates=rows))
                rows = rows * 3.0
        with tf.control_dependencies(ops):
            more = [v.assign_add(tf.ones_like(v)), v.assign_sub(2 * tf.ones_like(v))]
        with tf.control_dependencies(more):
            shape = raw.VariableShape(input=v.handle)
            known = raw.VarIsInitializedOp(resource=v.handle)
            return v.read_value(), tf.gather(v, [3]), shape, tf.cast(known, tf.int32), v.assign(v * 2.0)

    value, row, shape, known, _ = run(program, np.array([[1, 2], [3, 4]], np.float32))
    np.testing.assert_array_equal(value, [[0, 0], [8, 17], [0, 0], [26, 35]])
    np.testing.assert_array_equal(row, [[26, 35]])
    assert list(shape) == [4, 2]
    assert known == 1


def test_gradients_of_a_table_are_sums_of_rows(tf: Any, ipu: Any, run: Any) -> None:
    def program(ids: Any) -> Any:
        table = tf.get_variable("table", initializer=np.ones((5, 2), np.float32), use_resource=True)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids))
        with tf.control_dependencies([tf.train.GradientDescentOptimizer(1.0).minimize(loss)]):
            return table.read_value()

    np.testing.assert_array_equal(run(program, np.array([1, 1, 4], np.int32))[0][:, 0], [1, -1, 1, 1, 0])


def test_initial_values_may_be_tensors_of_the_function(tf: Any, run: Any) -> None:
    def program() -> Any:
        a = tf.get_variable("a", initializer=tf.constant([1.0, 2.0]) * 2.0)
        b = tf.Variable(tf.zeros([2]) + 3.0)
        return a + b, a.assign_add(b)

    outputs = run(program)
    np.testing.assert_array_equal(outputs, [[5, 7], [5, 7]])


def test_half_precision_with_a_gradient_of_equal_elements(tf: Any, run: Any) -> None:
    def program(x: Any) -> Any:
        w = tf.get_variable("w", initializer=np.full((3, 2), 0.5, np.float16))
        loss = tf.reduce_mean(tf.nn.relu(tf.matmul(x, w)))
        with tf.control_dependencies([tf.train.GradientDescentOptimizer(0.5).minimize(loss)]):
            return w.read_value()

    (weights,) = run(program, np.ones((4, 3), np.float16))
    np.testing.assert_array_equal(weights, np.full((3, 2), 0.25, np.float16))
