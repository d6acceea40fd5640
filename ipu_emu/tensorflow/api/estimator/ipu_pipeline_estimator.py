"""IPU pipeline estimator: an estimator whose model function returns the stages of a pipeline."""

from __future__ import annotations

from typing import Any

from tensorflow.python.util import nest

from ipu_emu.tensorflow.api import ipu_compiler, scopes
from ipu_emu.tensorflow.api.estimator.ipu_estimator import IPUEstimator, called_with
from ipu_emu.tensorflow.api.estimator.specs import IPUPipelineEstimatorSpec, ModeKeys
from ipu_emu.tensorflow.api.ops.pipelining_ops import pipeline

__all__ = ["IPUPipelineEstimator", "IPUPipelineEstimatorSpec"]


class IPUPipelineEstimator(IPUEstimator):
    """``model_fn(mode, params)`` returns an IPUPipelineEstimatorSpec; ``iterations_per_loop`` counts mini-batches."""

    def _program(self, mode: str, queue: Any, structure: Any, outfeed: Any, iterations: int) -> Any:
        spec = self._spec(mode)
        self._keep_hooks(spec, mode)
        count = spec.gradient_accumulation_count or max(iterations, len(spec.computational_stages))
        iterations = iterations if mode != ModeKeys.PREDICT else count
        if "accumulate_outfeed" in spec.options:
            raise ValueError("`accumulate_outfeed` is set by the estimator; leave it out")
        if iterations < count or iterations % count:
            raise ValueError(
                f"iterations_per_loop ({iterations}) must be a multiple of gradient_accumulation_count ({count})"
            )
        first, *others = spec.computational_stages

        def unpacked(*flat: Any) -> Any:
            values = nest.pack_sequence_as(structure, list(flat))
            return first(*values) if isinstance(values, tuple) else first(values)

        last = others[-1]

        def final(*values: Any) -> Any:
            result = last(*values)
            if mode == ModeKeys.EVAL and spec.eval_metrics_fn is not None:
                result = spec.eval_metrics_fn(*(result if isinstance(result, list | tuple) else [result]))
                if not isinstance(result, dict) or "loss" not in result:
                    raise ValueError("`eval_metrics_fn` must return a dict with the key 'loss'")
                return {name: metric[1] if isinstance(metric, tuple) else metric for name, metric in result.items()}
            return result

        options = dict(spec.options)
        if spec.reduction_method is not None:
            options["reduction_method"] = spec.reduction_method
        if mode == ModeKeys.TRAIN:
            options |= {"optimizer_function": spec.optimizer_function, "outfeed_loss": True}

        def program() -> Any:
            return pipeline(
                [unpacked, *others[:-1], final],
                gradient_accumulation_count=count,
                repeat_count=iterations // count,
                infeed_queue=queue,
                outfeed_queue=outfeed,
                device_mapping=spec.device_mapping,
                name="pipeline",
                **options,
            )

        with scopes.ipu_scope(f"/device:IPU:{self.config.ipu_run_config.ordinal}"):
            return ipu_compiler.compile(program)

    def _spec(self, mode: str) -> IPUPipelineEstimatorSpec:
        spec = called_with(self._model_fn, mode=mode, params=self.params, config=self.config)
        if not isinstance(spec, IPUPipelineEstimatorSpec):
            raise ValueError(f"`model_fn` must return an IPUPipelineEstimatorSpec, found {type(spec).__name__}")
        if spec.mode == ModeKeys.TRAIN:
            for name in ("gradient_accumulation_count", "optimizer_function"):
                if getattr(spec, name) is None:
                    raise ValueError(f"IPUPipelineEstimatorSpec must contain {name} in the mode TRAIN")
        return spec
