"""The definition of an op: its entry in the table, shape rules, costs, gradients, helpers of kernels."""

from ipu_emu.ops.core.adjoint import Adjoint, Emit, GradRule, Value, concatenated
from ipu_emu.ops.core.node import Node, OutputTypes, ShapeRule, described, input_node, listed
from ipu_emu.ops.core.op_definition import (
    BoundOp,
    Call,
    CallChain,
    CostRule,
    Expand,
    Kernel,
    OpCost,
    OpDef,
    Registry,
    StoringKernel,
    Workspace,
    always,
    call_chain,
    copy_cost,
    expanded_op,
    flops,
    never,
    nothing,
    per_element,
    replaced_before_run,
)
from ipu_emu.ops.core.rewrite import Rewrite

__all__ = [
    "Adjoint", "BoundOp", "Call", "CallChain", "CostRule", "Emit", "Expand", "GradRule", "Kernel", "Node", "OpCost",
    "OpDef", "OutputTypes", "Registry", "Rewrite", "ShapeRule", "StoringKernel", "Value", "Workspace", "always",
    "call_chain", "concatenated", "copy_cost", "described", "expanded_op", "flops", "input_node", "listed", "never",
    "nothing", "per_element", "replaced_before_run",
]  # fmt: skip
