"""Configuration: attributes and their types, the functions of early releases, scopes and strategies."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def test_attributes_have_the_documented_defaults(ipu: Any) -> None:
    config = ipu.config.IPUConfig()
    assert config.allow_recompute is False
    assert config.auto_select_ipus == config.select_ipus == []
    assert config.selection_order is ipu.config.SelectionOrder.AUTO
    assert config.io_tiles.available_memory_proportion == 0.9
    assert config.norms.experimental.distributed_batch_norm_replica_group_size == 1
    assert config.optimizations.minimum_remote_tensor_size == 128
    config.convolutions.poplar_options["availableMemoryProportion"] = "0.5"
    assert ipu.config.IPUConfig().convolutions.poplar_options == {}
    metadata = config.get_attribute_metadata("floating_point_behaviour.inv")
    assert (metadata.types, metadata.default) == ((bool,), False)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda c: setattr(c, "auto_select_ipu", 1), AttributeError, "Did you mean 'auto_select_ipus'"),
        (lambda c: c.matmul, AttributeError, "Did you mean 'matmuls'"),
        (lambda c: setattr(c, "allow_recompute", 1), TypeError, "allow_recompute to 1, which is int; use bool"),
        (lambda c: setattr(c, "auto_select_ipus", True), TypeError, "use int, list, tuple"),
        (lambda c: setattr(c, "matmuls", {}), AttributeError, "is a category of attributes"),
        (lambda c: (setattr(c, "auto_select_ipus", 3), c.configure_ipu_system()), ValueError,
         "could not find an IPU device with 3 IPUs"),
        (lambda c: (setattr(c, "auto_select_ipus", 2), setattr(c, "select_ipus", [1]), c.configure_ipu_system()),
         Exception, "Only one of `auto_select_ipus` and `select_ipus` can be set."),
        (lambda c: (setattr(c, "select_ipus", [1, 1]), c.configure_ipu_system()), ValueError, "must be unique"),
        (lambda c: (setattr(c.io_tiles, "place_ops_on_io_tiles", True), c.configure_ipu_system()), ValueError,
         "Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0"),
        (lambda c: (setattr(c.device_connection, "type", type(c.device_connection.type)(3)),
                    c.configure_ipu_system()), ValueError,
         "set version to the generation to compile for: .*ipu21"),
    ],
)  # fmt: skip
def test_mistakes(ipu: Any, change: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        change(ipu.config.IPUConfig())


def test_a_system_that_only_compiles_does_not_run(tf: Any, ipu: Any, configure: Any) -> None:
    kinds = ipu.config.DeviceConnectionType
    connection = {"device_connection__type": kinds.NEVER, "device_connection__version": "ipu21"}
    with pytest.warns(UserWarning, match="executable_cache_path"):
        configure(1, **connection)
    with tf.Graph().as_default(), tf.Session() as session:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: tf.constant([1.0, 2.0]) * 2.0)
        with pytest.raises(tf.errors.InvalidArgumentError, match="configured for compilation only"):
            session.run(run)
    connection["device_connection__type"] = kinds.PRE_COMPILE
    with pytest.warns(UserWarning, match="PRE_COMPILE"):
        configure(1, **connection)
    with tf.Graph().as_default(), tf.Session() as session:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: tf.constant([1.0, 2.0]) * 2.0)
        assert session.run(run)[0].tolist() == [0.0, 0.0]
    configure(1)


def test_functions_of_early_releases_return_changed_copies(tf: Any, ipu: Any) -> None:
    utils = ipu.utils
    first = utils.create_ipu_config(profiling=True, max_reduce_many_buffer_size=100, profile_execution=True)
    config = utils.auto_select_ipus(first, [1, 2])
    config = utils.set_convolution_options(config, {"availableMemoryProportion": "0.3"})
    config = utils.set_recomputation_options(config)
    config = utils.set_norm_options(config, experimental_distributed_batch_norm_replica_group_size=2)
    config = utils.set_floating_point_behaviour_options(config, esr=True, inv=False, div0=False, oflo=False)
    assert (first.auto_select_ipus, config.auto_select_ipus) == ([], [1, 2])
    assert config.optimizations.maximum_reduce_many_buffer_size == 100
    assert config.convolutions.poplar_options == {"availableMemoryProportion": "0.3"}
    assert config.allow_recompute
    utils.configure_ipu_system(config)
    assert [utils.get_num_of_ipus_in_device(f"/device:IPU:{number}") for number in (0, 1)] == [1, 2]


def test_a_strategy_runs_functions(tf: Any, tensorflow: Any, ipu: Any) -> None:
    from tensorflow.python.eager import context

    strategy = ipu.ipu_strategy.IPUStrategy()
    with context.eager_mode():
        v2 = tensorflow.v2

        @v2.function
        def step(x: Any) -> Any:
            return {"double": x * 2.0}

        with strategy.scope():
            result = strategy.run(step, [v2.constant([1.0, 2.0])])
            np.testing.assert_array_equal(result["double"].numpy(), [2, 4])
            with pytest.raises(ValueError, match="does not support eager execution"):
                strategy.run(lambda x: x, [v2.constant(1.0)])
            with pytest.raises(TypeError, match="Unsupported data type for"):
                strategy.run(step, [v2.constant(1.0, v2.float64)])
            with pytest.raises(RuntimeError, match="call run"):
                strategy.experimental_run_v2(step)


def test_the_end_of_data_of_a_strategy_shows_no_calls_of_the_emulator(tf: Any, tensorflow: Any, ipu: Any) -> None:
    from tensorflow.python.eager import context

    with context.eager_mode(), ipu.ipu_strategy.IPUStrategy().scope() as strategy:

        @tensorflow.v2.function
        def step(elements: Any) -> Any:
            return next(elements)

        empty = iter(tensorflow.v2.data.Dataset.from_tensor_slices(np.ones((1, 2), np.float32)).skip(1))
        with pytest.raises(tensorflow.v2.errors.OutOfRangeError, match="has no more elements") as raised:
            strategy.run(step, [empty])
    files = {Path(str(entry.path)).name for entry in raised.traceback}
    assert files <= {Path(__file__).name, "ipu_strategy.py"}


def test_data_sets_are_measured(tf: Any, ipu: Any, capsys: Any) -> None:
    dataset = tf.data.Dataset.from_tensors(np.ones((10, 100), np.float32)).repeat()
    benchmark = ipu.dataset_benchmark.dataset_benchmark
    with tf.Session() as session:
        rates = json.loads(session.run(benchmark(dataset, 2, 5)))
    assert [epoch["elements_processed"] for epoch in rates["epochs"]] == [5, 5]
    assert rates["epochs"][0]["total_bytes_processed"] == 5 * 4000
    assert "elements/s" in capsys.readouterr().out
    with pytest.raises(ValueError, match="Expected `number_of_epochs` to be at least 1"):
        benchmark(dataset, 0, 1)
    with pytest.raises(TypeError, match="Expected `dataset` to be"):
        benchmark(3, 1, 1)


def test_modules_that_are_not_there_say_what_to_do(tensorflow: Any) -> None:
    from importlib import import_module

    with pytest.raises(ModuleNotFoundError, match="place ops with"):
        import_module("tensorflow.python.ipu.autoshard")
    with pytest.raises(ModuleNotFoundError, match="see docs/tensorflow"):
        import_module("tensorflow.python.ipu.nonsense")
    same = import_module("tensorflow.python.ipu.pipelining_ops")
    assert same is import_module("tensorflow.python.ipu.ops.pipelining_ops")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_report_is_not_written_through_a_link_of_another_user(
    tf: Any, ipu: Any, run: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv(
        "POPLAR_ENGINE_OPTIONS", json.dumps({"autoReport.all": "true", "autoReport.directory": str(tmp_path)})
    )
    (tmp_path / "private").write_text("private")
    (tmp_path / "program_0.txt").symlink_to("private")
    os.lchown(tmp_path / "program_0.txt", 65534, -1)
    with tf.Graph().as_default(), pytest.raises(OSError, match="it is a link that belongs to another user"):
        run(lambda x: x + 1.0, np.array(1, np.float32))
    assert (tmp_path / "private").read_text() == "private"


def test_the_environment(tf: Any, ipu: Any, run: Any, tmp_path: Any, monkeypatch: Any, capfd: Any) -> None:
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "report")}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(options))
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--log_cycle_count=1 --executable_cache_path={tmp_path / 'cache'}")
    files = []
    for _ in range(2):
        with tf.Graph().as_default():
            assert run(lambda x: x + 1.0, np.array(1, np.float32)) == [2]
        files.append({(path, path.stat().st_mtime_ns) for path in (tmp_path / "cache").rglob("*") if path.is_file()})
    assert files[0]
    assert files[0] == files[1]
    assert "modelled cycles:" in capfd.readouterr().err
    assert list((tmp_path / "report").iterdir())
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"opt.enableSwSyncs": \u201dtrue"}')
    with pytest.warns(UserWarning, match="curly quotes"):
        run(lambda x: x + 2.0, np.array(1, np.float32))
