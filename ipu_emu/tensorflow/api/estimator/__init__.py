"""Estimators: training, evaluation and prediction by a model function, in loops or as a pipeline."""

from ipu_emu.tensorflow.api.estimator import ipu_estimator, ipu_pipeline_estimator, ipu_run_config
from ipu_emu.tensorflow.api.estimator.specs import EstimatorSpec, ModeKeys

__all__ = ["EstimatorSpec", "ModeKeys", "ipu_estimator", "ipu_pipeline_estimator", "ipu_run_config"]
