"""Settings of the system: each attribute of IPUConfig has an effect, or a warning names it."""

import re
import warnings
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.inventory_page import assert_counts
from tests.ipu_emu.tensorflow.training_runs import Model, on_ipu


def attributes(ipu: Any) -> dict[str, Any]:
    """The dotted names of attributes, and their descriptions."""
    config, metadata = ipu.config.IPUConfig(), {}
    names = re.findall(r"^([\w.]+) = ", repr(config), re.MULTILINE)
    for name in names:
        metadata[name] = config.get_attribute_metadata(name)
    return metadata


def other(metadata: Any) -> Any:
    kind, default = metadata.types[0], metadata.default
    if kind is bool:
        return not default
    if issubclass(kind, Enum):
        return next(member for member in kind if member is not default)
    return {int: 7, float: 0.5, str: "x", dict: {"x": "1"}}[kind]


#: The tests that see the effect of attributes.
TESTS = {
    "api/test_settings.py": {
        "test_an_attribute_that_changes_the_modelled_time": "allow_recompute io_tiles.num_io_tiles",
        "test_more_ipus_than_the_system_has_are_refused": "auto_select_ipus",
        "test_a_process_outside_of_the_job": (
            "experimental.multi_replica_distribution.process_count "
            "experimental.multi_replica_distribution.process_index"
        ),
        "test_floating_point_exceptions_stop_a_program": (
            "floating_point_behaviour.div0 floating_point_behaviour.inv floating_point_behaviour.oflo "
            "floating_point_behaviour.set_all"
        ),
        "test_stochastic_rounding_gives_both_neighbours": "floating_point_behaviour.esr",
        "test_each_selected_ipu_is_a_device": "select_ipus",
        "test_the_order_of_ipus_changes_the_modelled_time": "selection_order",
    },
    "api/test_config.py": {"test_a_system_that_only_compiles_does_not_run": "device_connection.version"},
    "test_pipeline_errors.py": {
        "test_activations_need_remote_memory_to_be_offloaded": (
            "device_connection.enable_remote_buffers device_connection.type"
        ),
    },
    "api/test_ops.py": {
        "test_a_group_of_replicas_shares_the_statistics_of_batch_normalisation": (
            "norms.experimental.distributed_batch_norm_replica_group_size"
        ),
    },
    "test_pipelining.py": {
        "test_sums_over_replicas_are_merged_up_to_the_size_of_a_buffer": (
            "optimizations.maximum_cross_replica_sum_buffer_size optimizations.maximum_reduce_many_buffer_size"
        ),
        "test_states_that_replicas_divide_have_the_same_bits_and_take_less_memory": (
            "optimizations.minimum_remote_tensor_size"
        ),
    },
}
SHOWN = {name for tests in TESTS.values() for names in tests.values() for name in names.split()}


def test_each_attribute_without_effect_is_named(ipu: Any) -> None:
    metadata = attributes(ipu)
    assert metadata.keys() >= SHOWN
    assert_counts("attributes of IPUConfig", len(SHOWN), 0, len(metadata) - len(SHOWN))
    for name in metadata.keys() - SHOWN:
        config = ipu.config.IPUConfig()
        *parents, last = name.split(".")
        place = config
        for parent in parents:
            place = getattr(place, parent)
        setattr(place, last, other(metadata[name]))
        if name == "io_tiles.place_ops_on_io_tiles":
            config.io_tiles.num_io_tiles = 32
        with pytest.warns(UserWarning, match=f"Attributes of IPUConfig {re.escape(name)} has no effect"):
            config.configure_ipu_system()


@pytest.mark.parametrize("file", TESTS)
def test_the_rows_name_tests(file: str) -> None:
    text = (Path(__file__).parents[1] / file).read_text()
    assert [name for name in TESTS[file] if f"def {name}(" not in text] == []


def test_defaults_are_not_named(ipu: Any) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config.configure_ipu_system()


class Deep(Model):
    """Hidden stages have an activation between two layers, which recomputation need not keep."""

    def functions(self, tf: Any, computed: Any = None) -> list[Any]:
        *hidden, last = super().functions(tf, computed)
        return [*((lambda x, y, stage=stage: stage(*stage(x, y))) for stage in hidden), last]


def cycles(tf: Any, ipu: Any, capfd: Any) -> int:
    capfd.readouterr()
    on_ipu(tf, ipu, Deep(4, count=16))
    return sum(map(int, re.findall(r"modelled cycles: (\d+)", capfd.readouterr().err)))


@pytest.mark.parametrize("setting", [{"allow_recompute": True}, {"io_tiles__num_io_tiles": 32}])
def test_an_attribute_that_changes_the_modelled_time(
    setting: Any, tf: Any, ipu: Any, configure: Any, monkeypatch: Any, capfd: Any
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--log_cycle_count=1")
    counts = []
    for attributes in ({}, setting):
        configure(4, **attributes)
        counts.append(cycles(tf, ipu, capfd))
    assert counts[0] != counts[1]


@pytest.mark.parametrize("name", ["inv", "div0", "oflo", "set_all"])
def test_floating_point_exceptions_stop_a_program(tf: Any, run: Any, configure: Any, name: str) -> None:
    values = np.array([0, 1], np.float32)
    assert not np.isfinite(run(lambda x: 1.0 / x, values)[0]).all()
    configure(1, **{f"floating_point_behaviour__{name}": True})
    with tf.Graph().as_default(), pytest.raises(Exception, match="Floating point exception"):
        run(lambda x: 1.0 / x, values)


def test_stochastic_rounding_gives_both_neighbours(tf: Any, ipu: Any, run: Any, configure: Any) -> None:
    values = np.full(500, 1 + 2**-12, np.float32)
    distinct = []
    for mode in ("OFF", "ON", "REPLICA_IDENTICAL_ONLY"):
        configure(1, floating_point_behaviour__esr=ipu.config.StochasticRoundingBehaviour[mode])
        with tf.Graph().as_default():
            distinct.append(len(set(run(lambda x: tf.cast(x, tf.float16), values)[0].tolist())))
    assert distinct == [1, 2, 2]


def test_a_process_outside_of_the_job(ipu: Any) -> None:
    config = ipu.config.IPUConfig()
    config.experimental.multi_replica_distribution.process_count = 2
    config.experimental.multi_replica_distribution.process_index = 2
    with pytest.raises(ValueError, match="process_index 2 is not in the range of process_count 2"):
        config.configure_ipu_system()


def test_each_selected_ipu_is_a_device(ipu: Any) -> None:
    config = ipu.config.IPUConfig()
    config.select_ipus = [3, 5]
    config.configure_ipu_system()
    assert [ipu.utils.get_num_of_ipus_in_device(f"/device:IPU:{number}") for number in range(2)] == [1, 1]


def test_the_order_of_ipus_changes_the_modelled_time(
    tf: Any, ipu: Any, configure: Any, monkeypatch: Any, capfd: Any
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--log_cycle_count=1")
    modelled = {}
    for order in ipu.config.SelectionOrder:
        configure(4, selection_order=order)
        modelled[order.name] = cycles(tf, ipu, capfd)
    assert modelled["AUTO"] == modelled["SNAKE"] != modelled["HOOF"]


def test_more_ipus_than_the_system_has_are_refused(configure: Any, monkeypatch: Any) -> None:
    configure(64)
    with pytest.raises(ValueError, match="could not find an IPU device with 4096 IPUs; the emulated system has 64"):
        configure(4096)
    monkeypatch.setenv("IPU_EMU_SYSTEM", "pod16")
    with pytest.raises(ValueError, match="could not find an IPU device with 32 IPUs; the emulated system has 16"):
        configure(32)


def test_flags_and_options_without_effect_are_named(tf: Any, ipu: Any, run: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--max_compilation_threads=4 --nonsense")
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", '{"opt.internalExchangeOptimisationTarget": "balanced"}')
    with pytest.warns(UserWarning, match="no effect") as record:
        run(lambda x: x + 2.0, np.array(1, np.float32))
    texts = [str(warning.message) for warning in record]
    assert "Flags of TF_POPLAR_FLAGS --max_compilation_threads has no effect on emulated IPUs" in texts
    assert any("flags that do not exist and are ignored: --nonsense" in text for text in texts)
    assert "Engine options opt.internalExchangeOptimisationTarget has no effect on emulated IPUs" in texts


def test_arguments_of_early_releases_without_effect_are_named(ipu: Any) -> None:
    config = ipu.config.IPUConfig()
    for call in (
        lambda: ipu.utils.create_ipu_config(profiling=True),
        lambda: ipu.utils.set_recomputation_options(config, allow_stateful_recompute=True),
        lambda: ipu.utils.set_ipu_model_options(config, tiles_per_ipu=4),
        lambda: ipu.utils.set_transfer_options(config, use_verified_transfers=True),
    ):
        with pytest.warns(UserWarning, match="no effect on emulated IPUs"):
            call()


@pytest.mark.parametrize("scope", ["stochastic_rounding", "partials_type"])
def test_scopes_without_effect_are_named(ipu: Any, scope: str) -> None:
    with pytest.warns(UserWarning, match=f"The scope {scope} has no effect"), getattr(ipu.scopes, scope)(True):
        pass


def test_an_ipu_model_has_no_replicas(ipu: Any, run: Any, configure: Any, monkeypatch: Any) -> None:
    assert not ipu.utils.running_on_ipu_model()
    monkeypatch.setenv("TF_POPLAR_FLAGS", "--use_ipu_model")
    assert ipu.utils.running_on_ipu_model()
    configure(1)
    assert run(lambda x: x + 2.0, np.array(1, np.float32))[0] == 3
    configure(2)
    with pytest.raises(Exception, match=r"2 replicas.*IPU Model"):
        run(lambda x: x + 2.0, np.array(1, np.float32))
    with pytest.raises(Exception, match="select_ipus chooses IPUs of a system"):
        configure(0, auto_select_ipus=[], select_ipus=[0])
