"""The table of all ops: a folder per family, a file per group of kindred ops."""

from __future__ import annotations

from importlib import import_module

from ipu_emu.ops.core.op_definition import Registry

__all__ = ["TABLE"]

_FAMILIES = {
    "communication": "collective_ops remote_copy_ops shard_ops",
    "control": "abort call_and_if loop_and_while print_tensor scan unsupported",
    "data_movement": "constant_ops padding transpose_concat_cast trilu views",
    "elementwise": "activations basic_arithmetic comparison extended_arithmetic fused_elementwise math_functions",
    "image": "affine_grid depth_to_space non_max_suppression normalize_image resize",
    "indexing": "dynamic_slicing gather_scatter grouped_gather_scatter one_hot sequence_slice slicing "
    "tfidf_vectorizer",
    "losses": "ctc_decoding ctc_loss onnx_losses popart_losses",
    "normalisation": "batch_norm group_norm onnx_normalisations softmax",
    "pooling": "lp_pooling max_average_pooling roi_pooling unpooling",
    "products": "convolution determinant einsum matmul multi_convolution quantization spline_convolution "
    "transposed_convolution",
    "random": "counter_rng distributions dropout_ops",
    "recurrence": "graphcore_lstm recurrent_cells recurrent_layers",
    "reduction": "axis_reductions sorting",
    "updates": "adam_update adaptive_update clipping_ops loss_scaling_ops sgd_update",
}

TABLE = Registry(
    import_module(f"ipu_emu.ops.{family}.{module}").OPS
    for family, modules in _FAMILIES.items()
    for module in modules.split()
)
