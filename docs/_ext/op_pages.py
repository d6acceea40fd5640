"""The table of ops as a page: a section for each family and file, a row for each op, all of it from the registry."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx.defs

from docs._ext.package_maps import ROOT, cell, children, dotted, first_line, modules
from ipu_emu.ops.core.op_definition import OpDef, never
from ipu_emu.ops.table import TABLE
from ipu_emu.popart.builder.ai_graphcore import AI_GRAPHCORE
from ipu_emu.popart.builder.ai_onnx import AI_ONNX
from ipu_emu.popart.builder.signatures import REQUIRED, signature

HEAD = """\
# Ops

All {count} ops that the emulator knows, by family: one folder of `ipu_emu/ops` for each family, one file for each
section, one entry of the table (`ipu_emu.ops.table`) for each row.

- **domain**: `ai.onnx` with the opsets in which the definition of the op changed (a session takes models of any of
  them), or `ai.graphcore` for PopART's own ops. *Internal* ops are created when a graph is compiled, gradients and
  weight updates for instance; no model contains them.
- **Builder**: the call of `builder.aiOnnx` (opset 11) or `builder.aiGraphcore` with its parameters after the list of
  inputs `args`; `debugContext` comes last. A dash means that only models from files contain the op.
- **inputs**: the number of inputs.
- **gradient**: whether training may differentiate it.
- **properties**: *view*: output 0 has the elements of an input, so that nothing is copied; *in place*: outputs
  replace inputs; *element-wise*: may be fused with its neighbours; *random*: depends on the seed of the replica;
  *expanded*: other ops replace it when the graph is compiled; *constant*: its result is known when the graph is
  built; *float16*: the kernel reads and writes float16 itself.
"""


def page() -> str:
    """The page as Markdown."""
    parts = [HEAD.format(count=len(TABLE.table))]
    for family in families():
        parts.append(f"## {family.name}\n\n{cell(first_line(family))}\n")
        for path in modules(family):
            ops = ops_of(import_module(dotted(path)))
            if ops:
                parts.append(f"### {path.stem}\n\n{cell(first_line(path))}\n")
                parts.append("| op | domain | Builder | inputs | gradient | properties |")
                parts[-1] += "\n|---|---|---|---|---|---|\n" + "".join(map(_row, ops))
    return "\n".join(parts)


def families() -> Iterator[Path]:
    """The folders of ``ipu_emu/ops`` in which ops are defined."""
    for folder in children(ROOT / "ipu_emu" / "ops"):
        if any(ops_of(import_module(dotted(path))) for path in modules(folder)):
            yield folder


def ops_of(module: ModuleType) -> list[OpDef]:
    """The entries that a module adds to the table, by name."""
    mine = {op.key: op for op in getattr(module, "OPS", ()) if TABLE.table.get(op.key) is op}
    return sorted(mine.values(), key=lambda op: op.type)


def _row(op: OpDef) -> str:
    cells = [f"`{op.type}`", _domain(op), _builder(op), _inputs(op), "yes" if op.grad else "-"]
    return f"| {' | '.join([*cells, ', '.join(_properties(op)) or '-'])} |\n"


def _domain(op: OpDef) -> str:
    if op.domain:
        return op.domain
    if op.type in _versions():
        link = f"[ai.onnx](https://onnx.ai/onnx/operators/onnx__{op.type}.html)"
        return f"{link} {', '.join(map(str, sorted(_versions()[op.type])))}"
    return "internal"


@cache
def _versions() -> Mapping[str, set[int]]:
    """Operator of ai.onnx -> the opsets that define it anew."""
    versions: dict[str, set[int]] = defaultdict(set)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions[schema.name].add(schema.since_version)
    return dict(versions)


def _builder(op: OpDef) -> str:
    table: Mapping[str, Any] = AI_GRAPHCORE if op.domain else AI_ONNX
    calls = [_call(name, table, 1 if op.domain else 11) for name, row in table.items() if row[0] == op.type]
    return ", ".join(calls) or "-"


def _call(name: str, table: Mapping[str, Any], opset: int) -> str:
    known = signature(name, table, opset)
    empty = inspect.Parameter.empty
    shown = [f"{key}" if value in (REQUIRED, empty) else f"{key}={value!r}" for key, value in known.defaults.items()]
    return "`" + f"{name}({', '.join(['args'] * known.takes_args + shown)})".replace("|", "\\|") + "`"


def _inputs(op: OpDef) -> str:
    least, most = op.inputs
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"


def _properties(op: OpDef) -> Iterator[str]:
    yield from ["view"] * (op.view_of is not None)
    yield from ["in place"] * bool(op.updates)
    yield from ["element-wise"] * op.elementwise
    yield from ["random"] * op.random
    yield from ["expanded"] * (op.expand is not None)
    yield from ["constant"] * (op.constant_outputs is not None)
    yield from ["float16"] * (op.takes_half is not never)
