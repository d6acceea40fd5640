"""options: poptorch.Options with all of its categories."""

from ipu_emu.poptorch.options.categories import (
    _DistributedOptions,
    _JitOptions,
    _PopartOptions,
    _PrecisionOptions,
    _TrainingOptions,
)
from ipu_emu.poptorch.options.options import Options
from ipu_emu.poptorch.options.tensor_locations import TensorLocationSettings, _TensorLocationOptions

__all__ = [
    "Options", "TensorLocationSettings", "_DistributedOptions", "_JitOptions", "_PopartOptions", "_PrecisionOptions",
    "_TensorLocationOptions", "_TrainingOptions",
]  # fmt: skip
