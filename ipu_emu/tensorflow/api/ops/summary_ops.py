"""Summary ops: the compiled programs of a graph, as a summary."""

from __future__ import annotations

from typing import Any

from tensorflow.core.framework import summary_pb2
from tensorflow.python.framework import dtypes, ops, tensor_util
from tensorflow.python.ops import script_ops
from tensorflow.python.util import nest

from ipu_emu.tensorflow.run import session_runs

__all__ = ["ipu_compile_summary"]


def ipu_compile_summary(name: str, op_list: Any, collections: Any = None) -> Any:
    """Return a summary with the text of the programs of the graph, after the ops in ``op_list`` have run."""
    graph = ops.get_default_graph()

    def summary() -> bytes:
        value = summary_pb2.Summary.Value(tag=name)
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.CopyFrom(tensor_util.make_tensor_proto("\n\n".join(session_runs.listings(graph))))
        serialised: bytes = summary_pb2.Summary(value=[value]).SerializeToString()
        return serialised

    after = [op for op in nest.flatten(op_list) if op is not None]
    with ops.control_dependencies(after):
        tensor = script_ops.numpy_function(summary, [], dtypes.string, name=name)
    tensor.set_shape(())
    for collection in [ops.GraphKeys.SUMMARIES] if collections is None else collections:
        ops.add_to_collection(collection, tensor)
    return tensor
