"""Configuration: IPUConfig, its nested attributes, and their check."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any

from ipu_emu.hardware import GC200, GENERATIONS, SYSTEM_VARIABLE, SelectionOrder, System
from ipu_emu.session.options.compile_options import cache_folder
from ipu_emu.session.options.without_effect import say_without_effect, without_effect
from ipu_emu.tensorflow.run import configured_system
from ipu_emu.tensorflow.run.configured_system import ConfiguredSystem
from ipu_emu.tensorflow.run.environment import flags, uses_ipu_model
from popdist_py.messages.suggestion import closest
from popdist_py.messages.user_warning import warn_user

__all__ = [
    "AttributeMetadata", "DeviceConnectionType", "ExecutionProfileType", "IPUConfig", "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm", "SelectionOrder", "StochasticRoundingBehaviour", "configure_ipu_system", "get_ipu_config",
    "reset_ipu_configuration",
]  # fmt: skip


class ExecutionProfileType(Enum):
    """The content of an execution profile."""

    NO_PROFILE = 0
    DEVICE_PROFILE = 1
    IPU_PROFILE = 2
    TILE_PROFILE = 3


class DeviceConnectionType(Enum):
    """When a program connects to its IPUs."""

    ALWAYS = 0
    ON_DEMAND = 1
    #: Programs are compiled into the executable cache; a run changes no variables and returns zeros.
    PRE_COMPILE = 2
    #: Programs are compiled into the executable cache; a run raises InvalidArgumentError.
    NEVER = 3


class MergeRemoteBuffersBehaviour(Enum):
    """Whether equal remote buffers become one."""

    NO_MERGING = 0
    MERGE = 1
    IF_BENEFICIAL = 2


class SchedulingAlgorithm(Enum):
    """How ops are ordered."""

    CHOOSE_BEST = 0
    CLUSTERING = 1
    POST_ORDER = 2
    LOOK_AHEAD = 3
    SHORTEST_PATH = 4


class StochasticRoundingBehaviour(Enum):
    """Where FLOAT16 results are rounded stochastically."""

    OFF = 0
    ON = 1
    REPLICA_IDENTICAL_ONLY = 2

    @classmethod
    def from_bool(cls, value: bool) -> StochasticRoundingBehaviour:
        """ON for True, OFF for False."""
        return cls.ON if value else cls.OFF


@dataclass(frozen=True)
class AttributeMetadata:
    """The description of an attribute: its types, default and documentation."""

    name: str
    types: tuple[type, ...]
    default: Any
    doc: str = ""
    deprecated: bool = False
    deprecated_msg: str = ""


#: The IPUs of one process, unless a system is named.
_MOST_IPUS = 64
_NUMBERS = (int, list, tuple)
_POPLAR: dict[str, Any] = {"poplar_options": ({}, (dict,), "options of Poplar's library")}

#: Every attribute: its default, its types, and its description; a dictionary is a category of attributes.
_TREE: dict[str, Any] = {
    "allow_recompute": (False, (bool,), "recompute activations in the backward pass"),
    "auto_select_ipus": ([], _NUMBERS, "the number of IPUs of each device"),
    "compilation_poplar_options": ({}, (dict,), "options of Poplar's compiler"),
    "convolutions": _POPLAR,
    "device_connection": {
        "enable_remote_buffers": (False, (bool,), "offload to Streaming Memory without a device"),
        "type": (DeviceConnectionType.ALWAYS, (DeviceConnectionType,), "when to connect"),
        "version": ("", (str,), "the generation to compile for"),
    },
    "experimental": {
        "always_rearrange_copies_on_the_host": (False, (bool,), "where copies are rearranged"),
        "enable_prng_stability": (False, (bool,), "equal random numbers in recomputed parts"),
        "multi_replica_distribution": {
            "process_count": (0, (int,), "processes that share a model"),
            "process_index": (0, (int,), "the number of this process"),
        },
    },
    "floating_point_behaviour": {
        "div0": (False, (bool,), "stop at a division by zero"),
        "esr": (StochasticRoundingBehaviour.OFF, (StochasticRoundingBehaviour, bool), "stochastic rounding"),
        "inv": (False, (bool,), "stop at an invalid operation"),
        "nanoo": (False, (bool,), "NaN where FLOAT16 overflows"),
        "oflo": (False, (bool,), "stop at an overflow"),
        "set_all": (False, (bool,), "all of these"),
    },
    "gcl_poplar_options": ({}, (dict,), "options of the collectives"),
    "io_tiles": {
        "available_memory_proportion": (0.9, (float, int), "memory of I/O tiles for I/O"),
        "num_io_tiles": (0, (int,), "tiles for I/O"),
        "place_ops_on_io_tiles": (False, (bool,), "run I/O on these tiles"),
    },
    "ipu_model": {
        "compile_ipu_code": (True, (bool,), "compile code for tiles"),
        "tiles_per_ipu": (0, (int,), "tiles of an IPU"),
        "version": (GC200.version, (str,), "the generation"),
    },
    "matmuls": {**_POPLAR, "clear_pass_type": (False, (bool,), "forget the pass of products")},
    "norms": {
        "experimental": {
            "distributed_batch_norm_replica_group_size": (1, (int,), "replicas that share statistics"),
        },
        "use_stable_statistics": (False, (bool,), "compute the variance from centred values"),
    },
    "optimizations": {
        "combine_embedding_lookups": (False, (bool,), "merge look-ups"),
        "combine_matmuls": (False, (bool,), "merge products"),
        "enable_dynamic_slice_replacement": (True, (bool,), "replace slices by look-ups"),
        "enable_fast_math": (False, (bool,), "inexact mathematics"),
        "enable_gather_simplifier": (True, (bool,), "simplify gathers"),
        "enable_graph_outlining": (True, (bool,), "share equal parts"),
        "math": {
            name: (name != "fast", (bool,), "simplifications")
            for name in ("dot_strength", "fast")
        },
        "maximum_all_gather_buffer_size": (0, (int,), "bytes of merged gathers"),
        "maximum_cross_replica_sum_buffer_size": (0, (int,), "bytes of merged sums over replicas"),
        "maximum_inter_ipu_copies_buffer_size": (0, (int,), "bytes of merged copies"),
        "maximum_reduce_many_buffer_size": (0, (int,), "bytes of merged reductions"),
        "maximum_reduce_scatter_buffer_size": (0, (int,), "bytes of merged reduce-scatters"),
        "maximum_send_recv_cluster_size": (0, (int,), "bytes of merged host transfers"),
        "merge_infeed_io_copies": (True, (bool,), "merge copies of infeeds"),
        "merge_remote_buffers": (
            MergeRemoteBuffersBehaviour.IF_BENEFICIAL, (MergeRemoteBuffersBehaviour,), "merge remote buffers",
        ),
        "minimum_remote_tensor_size": (128, (int,), "bytes from which tensors are offloaded"),
        "prefetch_data_streams": (True, (bool,), "load the next element ahead"),
        "triangular_solve_expander_block_size": (0, (int,), "block of triangular solves"),
        "cholesky_block_size": (0, (int,), "block of decompositions"),
    },
    "pooling": _POPLAR,
    "scheduling": {
        "algorithm": (SchedulingAlgorithm.CHOOSE_BEST, (SchedulingAlgorithm,), "the order of ops"),
        "maximum_scheduler_lookahead_depth": (5, (int,), "depth of the search"),
        "maximum_scheduler_search_space_size": (64, (int,), "width of the search"),
    },
    "select_ipus": ([], _NUMBERS, "the numbers of the IPUs of each device"),
    "selection_order": (SelectionOrder.AUTO, (SelectionOrder,), "the order of a device's IPUs"),
    "serialization_output_folder": ("", (str,), "a folder for serialised graphs"),
    "slices": _POPLAR,
    "verified_transfers": {
        "enabled": (False, (bool,), "verify transfers"),
        "reverse_order": (False, (bool,), "order of the checks"),
    },
}  # fmt: skip


#: The attributes that have an effect; a warning names the others.
_WITH_EFFECT = (
    "allow_recompute", "auto_select_ipus", "device_connection.enable_remote_buffers", "device_connection.type",
    "device_connection.version", "experimental.multi_replica_distribution.process_count",
    "experimental.multi_replica_distribution.process_index", "floating_point_behaviour.div0",
    "floating_point_behaviour.esr", "floating_point_behaviour.inv", "floating_point_behaviour.oflo",
    "floating_point_behaviour.set_all", "io_tiles.num_io_tiles",
    "norms.experimental.distributed_batch_norm_replica_group_size",
    "optimizations.maximum_cross_replica_sum_buffer_size", "optimizations.maximum_reduce_many_buffer_size",
    "optimizations.minimum_remote_tensor_size", "select_ipus", "selection_order",
)  # fmt: skip


class _Category:
    """Attributes of one category; the values are checked when they are set."""

    def __init__(self, tree: dict[str, Any], path: str = "") -> None:
        object.__setattr__(self, "_tree", tree)
        object.__setattr__(self, "_path", path)
        for name, entry in tree.items():
            category = _Category(entry, f"{path}{name}.") if isinstance(entry, dict) else copy.deepcopy(entry[0])
            object.__setattr__(self, name, category)

    def __setattr__(self, name: str, value: Any) -> None:
        entry = self._entry(name)
        if isinstance(entry, dict):
            raise AttributeError(f"{self._path}{name} is a category of attributes; set one of {', '.join(entry)}")
        value = _converted(f"{self._path}{name}", entry[1], value)
        object.__setattr__(self, name, value)
        if name == "set_all" and value:
            for other in ("div0", "inv", "nanoo", "oflo"):
                object.__setattr__(self, other, True)
            object.__setattr__(self, "esr", StochasticRoundingBehaviour.ON)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._entry(name)

    def _entry(self, name: str) -> Any:
        tree: dict[str, Any] = object.__getattribute__(self, "_tree")
        path = object.__getattribute__(self, "_path")
        if name not in tree:
            close = closest(name, [*tree, *(n for n, _ in _walk(_TREE))])
            hint = f" Did you mean '{close}'?" if close else f" There are {', '.join(tree)}."
            raise AttributeError(f"'{path}{name}' is not an attribute of IPUConfig.{hint}")
        return tree[name]

    def __deepcopy__(self, memo: Any) -> Any:
        copied = type(self)() if isinstance(self, IPUConfig) else _Category(self._tree, self._path)
        for name in self._tree:
            object.__setattr__(copied, name, copy.deepcopy(getattr(self, name), memo))
        return copied

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in self._tree}
        categories = [repr(value) for value in values.values() if isinstance(value, _Category)]
        others = ((name, value) for name, value in values.items() if not isinstance(value, _Category))
        return "\n".join([*(f"{self._path}{name} = {value!r}" for name, value in others), *categories])


def _converted(path: str, types: tuple[type, ...], value: Any) -> Any:
    """``value`` if it has one of the types; raise TypeError otherwise."""
    wrong_bool = isinstance(value, bool) and bool not in types
    if isinstance(value, types) and not wrong_bool:
        if StochasticRoundingBehaviour in types and isinstance(value, bool):
            return StochasticRoundingBehaviour.from_bool(value)
        return value
    expected = ", ".join(kind.__name__ for kind in types)
    raise TypeError(f"Trying to set {path} to {value!r}, which is {type(value).__name__}; use {expected}")


def _walk(tree: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, entry in tree.items():
        yield f"{path}{name}", entry
        if isinstance(entry, dict):
            yield from _walk(entry, f"{path}{name}.")


class IPUConfig(_Category):
    """The configuration of the IPU system; it takes effect with ``configure_ipu_system``."""

    def __init__(self) -> None:
        super().__init__(_TREE)

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """Return the description of an attribute, by its dotted name."""
        entry = dict(_walk(_TREE)).get(attr)
        if entry is None:
            close = closest(attr, [name for name, _ in _walk(_TREE)])
            raise ValueError(
                f"Could not get attribute metadata for '{attr}', it does not exist."
                + (f" Did you mean '{close}'?" if close else "")
            )
        if isinstance(entry, dict):
            return AttributeMetadata(attr, (), None, "a category of attributes")
        return AttributeMetadata(attr, entry[1], copy.deepcopy(entry[0]), entry[2])

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Use this configuration from now on."""
        configure_ipu_system(self, device)


@without_effect("device", "reset_configuration")
def configure_ipu_system(config: IPUConfig, device: str = "cpu", reset_configuration: bool = True) -> None:
    """Use ``config`` from now on; raise its errors."""
    if not isinstance(config, IPUConfig):
        raise TypeError(f"`config` must be an IPUConfig instance, not {type(config).__name__}")
    devices = _devices(config)
    say_without_effect("Attributes of IPUConfig", _changed_without_effect(config))
    _check_connection(config)
    if config.io_tiles.place_ops_on_io_tiles and not config.io_tiles.num_io_tiles:
        raise ValueError("Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0")
    if config.norms.experimental.distributed_batch_norm_replica_group_size < 1:
        raise ValueError("norms.experimental.distributed_batch_norm_replica_group_size must be at least 1")
    shared = config.experimental.multi_replica_distribution
    count = max(shared.process_count, 1)
    if not 0 <= shared.process_index < count:
        raise ValueError(f"process_index {shared.process_index} is not in the range of process_count {count}")
    configured_system.configure(ConfiguredSystem(devices, copy.deepcopy(config), shared.process_index, count))


def _changed_without_effect(config: IPUConfig) -> Iterator[str]:
    for path, entry in _walk(_TREE):
        if not isinstance(entry, dict) and path not in _WITH_EFFECT and attrgetter(path)(config) != entry[0]:
            yield path


def _check_connection(config: IPUConfig) -> None:
    kind, version = config.device_connection.type, config.device_connection.version
    if kind.name in ("PRE_COMPILE", "NEVER") and version not in GENERATIONS:
        raise ValueError(
            f"device_connection.type is {kind.name} and device_connection.version is {version!r}; set version to the "
            f"generation to compile for: {', '.join(GENERATIONS)}"
        )
    if kind.name in ("PRE_COMPILE", "NEVER") and cache_folder(flags().get("executable_cache_path")) is None:
        warn_user(
            f"device_connection.type is {kind.name}, which only compiles, and the programs would be lost: set "
            "TF_POPLAR_FLAGS=--executable_cache_path=FOLDER"
        )


def _devices(config: IPUConfig) -> tuple[int, ...]:
    """The number of IPUs of each device."""
    automatic, selected = _listed(config.auto_select_ipus), _listed(config.select_ipus)
    if automatic and selected:
        raise Exception("Only one of `auto_select_ipus` and `select_ipus` can be set.")
    if selected and uses_ipu_model():
        raise Exception("select_ipus chooses IPUs of a system, and --use_ipu_model has none; use auto_select_ipus")
    if selected:
        if len(set(selected)) < len(selected):
            raise ValueError("All MultiIPU indices in `select_ipus` must be unique.")
        return (1,) * len(selected)
    for ipus in automatic:
        if ipus < 1 or ipus & (ipus - 1):
            raise ValueError(
                f"Unsupported number of IPUs requested - could not find an IPU device with {ipus} IPUs; use a power "
                "of two"
            )
    most = System.from_environ(os.environ).ipus
    most = most if os.environ.get(SYSTEM_VARIABLE) else max(most, _MOST_IPUS)
    if sum(automatic) > most:
        raise ValueError(
            f"Unsupported number of IPUs requested - could not find an IPU device with {sum(automatic)} IPUs; the "
            f"emulated system has {most} for a process: use fewer, more processes, or a larger {SYSTEM_VARIABLE}"
        )
    return tuple(automatic) or (1,)


def _listed(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else [int(number) for number in value]


@without_effect("session")
def get_ipu_config(session: Any = None) -> list[Any]:
    """Return the configuration in use."""
    config = configured_system.configured().config
    if config is None:
        raise RuntimeError("No IPU devices configured.")
    return [config]


def reset_ipu_configuration() -> None:
    """Forget the configuration."""
    configured_system.configure(ConfiguredSystem())
