"""The definition of an op: its entry in the table, shape rules, costs, gradients, helpers of kernels."""

from ipu_emu.ops.core.adjoint import Adjoint, Emit, GradRule, Value
from ipu_emu.ops.core.call_chain import CallChain, call_chain
from ipu_emu.ops.core.cost import CostRule, OpCost, copy_cost, flops, per_element
from ipu_emu.ops.core.node import Node, OutputTypes, described, input_node, listed
from ipu_emu.ops.core.op_definition import (
    BoundOp,
    Call,
    Expand,
    Kernel,
    OpDef,
    Registry,
    ShapeRule,
    StoringKernel,
    Workspace,
    always,
    never,
    nothing,
    replaced_before_run,
)
from ipu_emu.ops.core.rewrite import Rewrite

__all__ = [
    "Adjoint", "BoundOp", "Call", "CallChain", "CostRule", "Emit", "Expand", "GradRule", "Kernel", "Node", "OpCost",
    "OpDef", "OutputTypes", "Registry", "Rewrite", "ShapeRule", "StoringKernel", "Value", "Workspace", "always",
    "call_chain", "copy_cost", "described", "flops", "input_node", "listed", "never", "nothing", "per_element",
    "replaced_before_run",
]  # fmt: skip
