"""Inventory of arguments: each argument of a public function of the faces is read, refused, or named in a warning.

The rows are made from the sources, so that a new argument that is accepted and dropped fails.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ipu_emu.session.options.without_effect import without_effect
from tests.helpers.inventory_page import assert_counts
from tests.helpers.mpi_jobs import ROOT

FACES = {
    "PopART": "ipu_emu/popart",
    "PyTorch": "ipu_emu/poptorch",
    "torch": "ipu_emu/torch",
    "TensorFlow": "ipu_emu/tensorflow",
    "popdist_py": "popdist_py",
    "gcl": "gcl",
    "commands": "ipu_emu/cli",
}
#: Folders of functions that no user calls.
INNER = (
    *("gcl/core", "gcl/kernels", "gcl/literal", "gcl/transport", "gcl/torch/several_hosts", "popdist_py/trace"),
    *("ipu_emu/cli/arguments", "ipu_emu/poptorch/tracing"),
    *("ipu_emu/tensorflow/importer", "ipu_emu/tensorflow/install", "ipu_emu/tensorflow/run"),
)
#: (function, argument) that is not read, by the reason.
UNREAD = {
    "a warning names the function": (
        "ipu_jit_scope.ipu_scope frontend_attribute.attribute_value frontend_attribute.restore_to "
        "stochastic_rounding.override partials_type.override set_available_memory.available_memory_proportion "
        "serializedMatMul.factor serializedMatMul.keep_precision Channel.tracepoint.name Channel.instrument.obj "
        "Channel.instrument.methods"
    ),
    "all are passed on together": " ".join(f"pipeline.{name}" for name in (
        "computational_stages", "gradient_accumulation_count", "gradient_accumulation_dtype",
        "gradient_accumulation_for_captured_grads", "repeat_count", "batch_serialization_iterations", "inputs",
        "infeed_queue", "outfeed_queue", "optimizer_function", "device_mapping", "pipeline_schedule",
        "recomputation_mode", "forward_propagation_stages_poplar_options",
        "backward_propagation_stages_poplar_options", "weight_update_poplar_options",
        "offload_weight_update_variables", "replicated_optimizer_state_sharding", "offload_activations",
        "offload_gradient_accumulation_buffers", "replicated_weight_sharding", "offload_weights",
        "continuous_weight_updates", "outfeed_loss", "outfeed_mask", "accumulate_outfeed",
        "accumulate_outfeed_dtype", "reduction_method", "pipeline_depth",
    )),
    "the function refuses every call": "Options.replicationFactor.replication_factor Options.useIpuId.ipu_id",
    "the results are equal for all values, in TensorFlow too": (
        "softmax.stable group_norm.training GroupNormalization.call.training AssumeEqualAcrossReplicas.call.options "
        "RecomputationCheckpoint.call.options"
    ),
    "what the function asks for is so in any case": (
        "propagate_sharding.g move_variable_initialization_to_cpu.graph"
    ),
    "callers of a protocol give it": (
        "IPULoggingTensorHook.after_run.run_values OptionGroup.checkIsFrozen.option "
        "get_shard_from_colocation.op GclProcessGroup.allocate_tensor.device"
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Arguments:
    """The arguments of a public function: those that it reads, and those that a warning names."""

    name: str
    all: frozenset[str]
    read: frozenset[str]
    said: frozenset[str]
    refuses: bool

    @property
    def dropped(self) -> list[str]:
        left = () if self.refuses else self.all - self.read - self.said
        return sorted(f"{self.name}.{name}" for name in left)


@cache
def functions(face: str) -> tuple[Arguments, ...]:
    files = sorted((ROOT / FACES[face]).rglob("*.py"))
    outer = [file for file in files if not str(file.relative_to(ROOT)).startswith(INNER)]
    return tuple(function for file in outer for function in of_module(file))


def of_module(file: Path) -> Iterator[Arguments]:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield of_function(node, node.name)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not is_protocol(node):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and is_public(method.name):
                    yield of_function(method, f"{node.name}.{method.name}")


def is_protocol(node: ast.ClassDef) -> bool:
    return "Protocol" in [ast.unparse(base) for base in node.bases]


def is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__init__"


def of_function(node: ast.FunctionDef, name: str) -> Arguments:
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    names = {argument.arg for argument in every if argument is not None} - {"self", "cls"}
    body = [statement for statement in node.body if not is_text(statement)]
    read = {part.id for statement in body for part in ast.walk(statement) if isinstance(part, ast.Name)}
    decorators = [
        d for d in node.decorator_list if isinstance(d, ast.Call) and ast.unparse(d.func) == "without_effect"
    ]
    said = {argument.value for d in decorators for argument in d.args if isinstance(argument, ast.Constant)}
    refuses = bool(body) and all(isinstance(statement, ast.Raise) for statement in body)
    return Arguments(name, *map(frozenset, ({n for n in names if n[0] != "_"}, read, said)), refuses)  # type: ignore[arg-type]


def is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


@pytest.mark.parametrize("face", FACES)
def test_no_argument_is_dropped(face: str) -> None:
    known = {word for words in UNREAD.values() for word in words.split()}
    assert [name for function in functions(face) for name in function.dropped if name not in known] == []
    refused = sum(len(function.all) for function in functions(face) if function.refuses)
    said = sum(len(function.said) for function in functions(face))
    total = sum(len(function.all) for function in functions(face))
    assert_counts(f"arguments of public functions: {face}", total - refused - said, refused, said)


def test_the_table_of_unread_arguments_is_not_stale() -> None:
    dropped = {name for face in FACES for function in functions(face) for name in function.dropped}
    assert {word for words in UNREAD.values() for word in words.split()} - dropped == set()


def test_a_warning_names_arguments_off_their_defaults() -> None:
    @without_effect("tiles", "name")
    def place(x: int, tiles: int = 4, name: Any = None) -> int:
        return x + tiles

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert place(1) == place(1, 4) == place(1, name=None) == 5
    for call in (lambda: place(1, 3), lambda: place(1, tiles=3), lambda: place(x=1, tiles=3)):
        with pytest.warns(UserWarning, match=r"^Arguments of .*place tiles has no effect on emulated IPUs$"):
            assert call() == 4
    with pytest.warns(UserWarning, match="place name, tiles have no effect"):
        place(1, 3, "x")
    with pytest.raises(TypeError, match="depth"):
        place(1, depth=3)  # type: ignore[call-arg]
