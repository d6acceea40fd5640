"""Utilities: functions with which programs written for early releases configure the system, and a few others."""

from __future__ import annotations

import copy
from operator import attrgetter
from typing import Any

from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_ops

from ipu_emu.session.options.without_effect import say_without_effect, without_effect
from ipu_emu.tensorflow.api.config import (
    DeviceConnectionType,
    ExecutionProfileType,
    IPUConfig,
    MergeRemoteBuffersBehaviour,
    SelectionOrder,
    StochasticRoundingBehaviour,
    configure_ipu_system,
    get_ipu_config,
    reset_ipu_configuration,
)
from ipu_emu.tensorflow.run import configured_system
from ipu_emu.tensorflow.run.environment import uses_ipu_model

__all__ = [
    "DeviceConnectionType", "ExecutionProfileType", "MergeRemoteBuffersBehaviour", "SelectionOrder",
    "StochasticRoundingBehaviour", "auto_select_ipus", "configure_ipu_system", "create_ipu_config",
    "export_dataset_to_file", "get_ipu_config", "get_num_of_ipus_in_device", "move_variable_initialization_to_cpu",
    "reset_ipu_configuration", "reset_ipu_seed", "running_on_ipu_model", "select_ipus", "set_compilation_options",
    "set_convolution_options", "set_floating_point_behaviour_options", "set_ipu_connection_type",
    "set_ipu_model_options", "set_matmul_options", "set_norm_options", "set_optimization_options",
    "set_pooling_options", "set_recomputation_options", "set_serialization_options", "set_transfer_options",
]  # fmt: skip

#: Arguments of create_ipu_config that are attributes of IPUConfig.
_CREATED = {
    "max_cross_replica_sum_buffer_size": "optimizations.maximum_cross_replica_sum_buffer_size",
    "max_reduce_scatter_buffer_size": "optimizations.maximum_reduce_scatter_buffer_size",
    "max_reduce_many_buffer_size": "optimizations.maximum_reduce_many_buffer_size",
    "max_inter_ipu_copies_buffer_size": "optimizations.maximum_inter_ipu_copies_buffer_size",
    "max_send_recv_cluster_size": "optimizations.maximum_send_recv_cluster_size",
    "merge_infeed_io_copies": "optimizations.merge_infeed_io_copies",
    "prefetch_data_streams": "optimizations.prefetch_data_streams",
    "selection_order": "selection_order",
}


def create_ipu_config(**options: Any) -> IPUConfig:
    """Return a configuration; a warning names options for profiling."""
    config = IPUConfig()
    say_without_effect("Arguments of create_ipu_config", options.keys() - _CREATED.keys())
    for name, value in options.items():
        if name in _CREATED:
            _set(config, _CREATED[name], value)
    return config


def _set(config: Any, path: str, value: Any) -> None:
    category, _, name = path.rpartition(".")
    setattr(attrgetter(category)(config) if category else config, name, value)


def _changed(config: IPUConfig, values: dict[str, Any]) -> IPUConfig:
    """A copy of ``config`` with other values by their dotted names; None changes nothing."""
    changed = copy.deepcopy(config)
    for path, value in values.items():
        if value is not None:
            _set(changed, path, value)
    return changed


def auto_select_ipus(opts: IPUConfig, num_ipus: Any) -> IPUConfig:
    """Return ``opts`` with a number of IPUs for each device."""
    return _changed(opts, {"auto_select_ipus": num_ipus})


def select_ipus(opts: IPUConfig, indices: Any) -> IPUConfig:
    """Return ``opts`` with the numbers of the devices."""
    return _changed(opts, {"select_ipus": indices})


def set_compilation_options(opts: IPUConfig, compilation_options: Any = None) -> IPUConfig:
    """Return a copy of ``opts`` with options of the Poplar compiler, which change no result."""
    return _changed(opts, {"compilation_poplar_options": compilation_options})


def set_convolution_options(opts: IPUConfig, convolution_options: Any = None) -> IPUConfig:
    """Return a copy of ``opts`` with options of convolutions, which change no result."""
    return _changed(opts, {"convolutions.poplar_options": convolution_options})


def set_matmul_options(opts: IPUConfig, matmul_options: Any = None, clear_pass_type: bool = False) -> IPUConfig:
    """Return a copy of ``opts`` with options of matrix products, which change no result."""
    return _changed(opts, {"matmuls.poplar_options": matmul_options, "matmuls.clear_pass_type": clear_pass_type})


def set_pooling_options(opts: IPUConfig, pooling_options: Any = None) -> IPUConfig:
    """Return a copy of ``opts`` with options of poolings, which change no result."""
    return _changed(opts, {"pooling.poplar_options": pooling_options})


def set_norm_options(
    opts: IPUConfig,
    use_stable_statistics: bool = False,
    experimental_distributed_batch_norm_replica_group_size: int | None = None,
) -> IPUConfig:
    """Return a copy of ``opts`` with the number of replicas that share statistics of batch normalisation."""
    size = experimental_distributed_batch_norm_replica_group_size
    path = "norms.experimental.distributed_batch_norm_replica_group_size"
    return _changed(opts, {"norms.use_stable_statistics": use_stable_statistics, path: size})


def set_recomputation_options(opts: IPUConfig, allow_recompute: bool = True, **ignored: Any) -> IPUConfig:
    """Return ``opts`` with recomputation."""
    say_without_effect("Arguments of set_recomputation_options", ignored)
    return _changed(opts, {"allow_recompute": allow_recompute})


def set_floating_point_behaviour_options(
    opts: IPUConfig,
    inv: bool = True,
    div0: bool = True,
    oflo: bool = True,
    esr: bool = True,
    nanoo: bool = True,
) -> IPUConfig:
    """Return a copy of ``opts`` with the floating-point exceptions and the rounding of FLOAT16."""
    config = copy.deepcopy(opts)
    for name, value in {"inv": inv, "div0": div0, "oflo": oflo, "esr": esr, "nanoo": nanoo}.items():
        setattr(config.floating_point_behaviour, name, value)
    return config


def set_ipu_connection_type(
    opts: IPUConfig,
    connection_type: DeviceConnectionType = DeviceConnectionType.ALWAYS,
    ipu_version: str | None = None,
    enable_remote_buffers: bool = False,
) -> IPUConfig:
    """Return a copy of ``opts`` with the time at which programs attach to IPUs, and the version of these."""
    config = copy.deepcopy(opts)
    config.device_connection.type = connection_type
    config.device_connection.version = ipu_version or ""
    config.device_connection.enable_remote_buffers = enable_remote_buffers
    return config


def set_ipu_model_options(opts: IPUConfig, compile_ipu_code: bool = True, **ignored: Any) -> IPUConfig:
    """Return a copy of ``opts`` with options of the IPU Model."""
    say_without_effect("Arguments of set_ipu_model_options", ignored)
    return _changed(opts, {"ipu_model.compile_ipu_code": compile_ipu_code})


def set_optimization_options(opts: IPUConfig, **options: Any) -> IPUConfig:
    """Return ``opts`` with optimisations, given by the names of old arguments or of attributes."""
    config = copy.deepcopy(opts)
    for name, value in options.items():
        _set(config, _CREATED.get(name) or f"optimizations.{name}", value)
    return config


def set_serialization_options(opts: IPUConfig, output_folder: str = "") -> IPUConfig:
    """Return a copy of ``opts`` with the folder for serialised programs."""
    return _changed(opts, {"serialization_output_folder": output_folder})


def set_transfer_options(opts: IPUConfig, **ignored: Any) -> IPUConfig:
    """Return a copy of ``opts``; a warning names the arguments."""
    say_without_effect("Arguments of set_transfer_options", ignored)
    return copy.deepcopy(opts)


@without_effect("device")
def get_num_of_ipus_in_device(ipu_device: str = "/device:IPU:0", device: str = "cpu") -> int:
    """Return the number of IPUs of a device."""
    devices, number = configured_system.configured().devices, int(ipu_device.rpartition(":")[2])
    if number >= len(devices):
        raise ValueError(f"{ipu_device} does not exist: {len(devices)} devices are configured")
    return devices[number]


@without_effect("device")
def running_on_ipu_model(device: str = "cpu") -> bool:
    """Whether TF_POPLAR_FLAGS chooses the IPU Model."""
    return uses_ipu_model()


def move_variable_initialization_to_cpu(graph: Any = None) -> None:
    """Do nothing: variables are initialised on the host."""


@without_effect("device", "cpu_device")
def reset_ipu_seed(
    seed: int,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> Any:
    """Set the seed of random numbers on the device: immediately, or by an op of the graph."""
    from tensorflow.python.eager import context
    from tensorflow.python.ops import script_ops

    from ipu_emu.tensorflow.trace.frontend_state import set_seed

    if experimental_identical_replicas:
        raise NotImplementedError(
            "experimental_identical_replicas=True is not supported: replicas draw different numbers; leave it out"
        )
    if context.executing_eagerly():
        set_seed(seed)
        return None
    with ops.init_scope():
        done = script_ops.py_func_common(lambda: set_seed(seed), [], [], stateful=True, name="reset_ipu_seed")
    return done if done is not None else control_flow_ops.no_op()


def export_dataset_to_file(*arguments: Any, **named: Any) -> None:
    """Raise NotImplementedError: data sets cannot be exported."""
    raise NotImplementedError("Data sets are not exported; write the elements of the data set to a file of your own")
