"""Table of ops: the entries of every family."""

from __future__ import annotations

from ipu_emu.ops.communication import collective_ops, memory_copy_ops, shard_ops
from ipu_emu.ops.control import abort_and_print, call_and_if, loop_and_while, packed_data_block, scan, unsupported
from ipu_emu.ops.core.op_definition import Registry
from ipu_emu.ops.data_movement import constant_ops, padding, transpose_concat, views
from ipu_emu.ops.elementwise import (
    activations,
    arithmetic,
    cast,
    clipping,
    comparison,
    fused_elementwise,
    math_functions,
    powers,
)
from ipu_emu.ops.image import grid_sample, non_max_suppression, pixel_ops, resize
from ipu_emu.ops.indexing import (
    dynamic_slicing,
    gather_scatter,
    grouped_gather,
    one_hot,
    scatter_reduce,
    sequence_slice,
    slicing,
    tfidf_vectorizer,
)
from ipu_emu.ops.losses import ctc_decoding, ctc_loss, onnx_losses, popart_losses, softmax_cross_entropy
from ipu_emu.ops.normalisation import batch_norm, group_norm, onnx_normalisations, shared_batch_norm, softmax
from ipu_emu.ops.pooling import lp_pooling, max_average_pooling, roi_pooling, unpooling
from ipu_emu.ops.products import (
    convolution,
    determinant,
    einsum,
    matmul,
    multi_convolution,
    quantization,
    spline_convolution,
    transposed_convolution,
)
from ipu_emu.ops.random import distributions, dropout_ops, stochastic_rounding
from ipu_emu.ops.recurrence import recurrent_cells, recurrent_layers
from ipu_emu.ops.reduction import axis_reductions, sorting
from ipu_emu.ops.updates import (
    accumulation_ops,
    adam_update,
    adaptive_update,
    clipping_ops,
    loss_scaling_ops,
    sgd_update,
)

__all__ = ["TABLE"]

TABLE = Registry(
    module.OPS
    for family in (
        (collective_ops, memory_copy_ops, shard_ops),
        (abort_and_print, call_and_if, loop_and_while, packed_data_block, scan, unsupported),
        (constant_ops, padding, transpose_concat, views),
        (activations, arithmetic, cast, clipping, comparison, fused_elementwise, math_functions, powers),
        (grid_sample, non_max_suppression, pixel_ops, resize),
        (dynamic_slicing, gather_scatter, grouped_gather, one_hot),
        (scatter_reduce, sequence_slice, slicing, tfidf_vectorizer),
        (ctc_decoding, ctc_loss, onnx_losses, popart_losses, softmax_cross_entropy),
        (batch_norm, group_norm, onnx_normalisations, shared_batch_norm, softmax),
        (lp_pooling, max_average_pooling, roi_pooling, unpooling),
        (convolution, determinant, einsum, matmul, multi_convolution),
        (quantization, spline_convolution, transposed_convolution),
        (distributions, dropout_ops, stochastic_rounding),
        (recurrent_cells, recurrent_layers),
        (axis_reductions, sorting),
        (accumulation_ops, adam_update, adaptive_update, clipping_ops, loss_scaling_ops, sgd_update),
    )
    for module in family
)
