"""Passes that prepare the graph of a model: checks, IPUs and stages, ops as later passes expect them."""

from __future__ import annotations

import warnings
from dataclasses import replace

from ipu_emu.compiler.gradients.activation_checkpointing import Recomputation
from ipu_emu.compiler.gradients.exported_module import ExportedModule
from ipu_emu.compiler.gradients.trained_weights import check_trained, doubts
from ipu_emu.compiler.passes.compile_state import CompileState, training_options
from ipu_emu.compiler.placement.assign_ipus import assign_ipus
from ipu_emu.compiler.placement.graph_balance import MicroBatchWork
from ipu_emu.compiler.placement.placement_rules import check_placement
from ipu_emu.compiler.rewriting.channel_groups import with_strided_groups
from ipu_emu.compiler.rewriting.dropout_keys import with_dropout
from ipu_emu.compiler.rewriting.expansion import expanded
from ipu_emu.compiler.rewriting.gelu_forms import with_gelu
from ipu_emu.compiler.rewriting.transposed_products import with_transposed_products
from ipu_emu.compiler.rewriting.unfolding import unfolded

__all__ = [
    "assign_ipus_pass",
    "check_placement_pass",
    "check_trained_pass",
    "dropout_pass",
    "expand_pass",
    "read_transposed_pass",
    "recognise_gelu_pass",
    "stride_channel_groups_pass",
    "unfold_pass",
]


def check_placement_pass(state: CompileState) -> CompileState:
    o = state.options
    check_placement(state.graph, o.placement, o.pipeline, o.step, training=o.training is not None)
    return state


def check_trained_pass(state: CompileState) -> CompileState:
    training = training_options(state)
    check_trained(state.graph, training.trained or ())
    doubt = doubts(state.graph, training.trained)
    if doubt:
        warnings.warn(doubt, stacklevel=2)
    module = ExportedModule.of(state.graph)
    if module is None or training.trained is not None:
        return state
    chosen = replace(training, trained=module.trained(state.graph))
    return replace(state, options=replace(state.options, training=chosen))


def assign_ipus_pass(state: CompileState) -> CompileState:
    o = state.options
    training = o.training is not None
    recomputes = o.recomputation not in (Recomputation.NONE, Recomputation.NORM_ONLY)  # which keeps most activations
    work = MicroBatchWork.of(training=training, recomputes=recomputes)
    return replace(state, graph=assign_ipus(state.graph, o.placement, o.pipeline, work=work, step=o.step))


def stride_channel_groups_pass(state: CompileState) -> CompileState:
    return replace(state, graph=with_strided_groups(state.graph))


def unfold_pass(state: CompileState) -> CompileState:
    return replace(state, graph=unfolded(state.graph, [anchor.tensor for anchor in state.anchors]))


def expand_pass(state: CompileState) -> CompileState:
    return replace(state, graph=expanded(state.graph, differentiated=state.options.training is not None))


def recognise_gelu_pass(state: CompileState) -> CompileState:
    return replace(state, graph=with_gelu(state.graph))


def read_transposed_pass(state: CompileState) -> CompileState:
    return replace(state, graph=with_transposed_products(state.graph))


def dropout_pass(state: CompileState) -> CompileState:
    return replace(state, graph=with_dropout(state.graph, training=state.options.training is not None))
