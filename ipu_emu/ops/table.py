"""The table of all ops: one file per family."""

from __future__ import annotations

from importlib import import_module

from ipu_emu.ops.registry import Registry

__all__ = ["TABLE"]

_FAMILIES = """
    abort activations adam adaptive affine arithmetic batch_norm class_losses clipping collectives comparison
    constants convolution ctc ctc_decoding determinant dropout dynamic_slices einsum elementwise functions fused
    graphcore_lstm grams group_norm grouped_rows images indexing layer_norm linear loops loss_scaling losses
    movement multi_convolution norm_pooling one_hot ordering padding pixels pooling printing quantization random
    random_tensors recurrence recurrent reduction regions remote resize scans sequences sharding slicing softmax
    splines subgraphs suppression transposed triangles unpooling unsupported update views
"""

TABLE = Registry(import_module(f"ipu_emu.ops.{family}").OPS for family in _FAMILIES.split())
