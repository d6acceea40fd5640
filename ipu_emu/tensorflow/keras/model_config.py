"""Model config: the options and stages of a model in its configuration, so that a loaded model has them too."""

from __future__ import annotations

import logging
from typing import Any

from tf_keras.src.engine import functional

from ipu_emu.tensorflow.keras.assignments import assignment_of, nodes_of
from ipu_emu.tensorflow.keras.extension import extension_of
from ipu_emu.tensorflow.keras.options import ModelOptions
from ipu_emu.tensorflow.keras.pipeline_section import is_pipelined
from ipu_emu.tensorflow.keras.pipeline_stages import set_stage

#: The key in a configuration.
KEY = "ipu_options"
_log = logging.getLogger(__name__)


def add_options(model: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Add the options of ``model`` to its ``config``, if it has any."""
    extension = extension_of(model)
    if extension is None or (extension.options == ModelOptions() and not is_pipelined(model)):
        return config
    options = extension.options
    for name, args in (("pipelining_kwargs", options.pipelining), ("optimizer keyword arguments", options.optimiser)):
        if args:
            _log.info("The %s of %s are not part of its configuration; set them again", name, model.name)
    stages: list[Any] = []
    if is_pipelined(model):
        stages = [
            [entry.layer.name, getattr(entry, "node_index", 0), entry.pipeline_stage]
            for entry in assignment_of(model)
        ]
    return {**config, KEY: {**options.to_config(), "pipeline_stages": stages}}


def restore_options(model: Any, saved: dict[str, Any] | None) -> Any:
    """Restore the options in a configuration, if ``model`` runs on the device; return the model."""
    extension = extension_of(model)
    if saved is None or extension is None:
        return model
    extension.options = ModelOptions.from_config(saved)
    by_name = {(name, number): stage for name, number, stage in saved["pipeline_stages"]}
    if isinstance(model, functional.Functional) and model._is_graph_network:
        for node in nodes_of(model):
            set_stage(node, by_name.get((node.layer.name, node.layer._inbound_nodes.index(node))))
    if type(model).__name__ == "Sequential":
        for layer in model.layers:
            set_stage(layer, by_name.get((layer.name, 0)))
    return model
