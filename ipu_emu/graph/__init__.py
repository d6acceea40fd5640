"""graph: models as graphs of ops and tensors."""

from ipu_emu.graph.dtype import DTYPES, DType, dtype_named, dtype_of, name_of
from ipu_emu.graph.graph import Graph
from ipu_emu.graph.op import Attribute, Op, Place, StepPhase
from ipu_emu.graph.shards import Shards
from ipu_emu.graph.tensor import Role, Tensor, id_on_ipu, original_of

__all__ = [
    "DTYPES", "Attribute", "DType", "Graph", "Op", "Place", "Role", "Shards", "StepPhase", "Tensor", "dtype_named",
    "dtype_of", "id_on_ipu", "name_of", "original_of",
]  # fmt: skip
