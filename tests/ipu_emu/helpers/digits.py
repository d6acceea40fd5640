"""Digits: the example as a module, and its training on local replicas of this process."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import numpy as np

from tests.helpers.mpi_jobs import ROOT

__all__ = ["load_example", "local_training", "step_data"]


def load_example() -> Any:
    """The module examples/digits.py."""
    spec = spec_from_file_location("digits_example", ROOT / "examples" / "digits.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def local_training(example: Any, *, replicas: int = 1, epochs: int = 30, seed: int = 0) -> Any:
    """The example's Training with ``replicas`` local replicas of one instance."""

    def configure(opts: Any) -> None:
        opts.enableReplicatedGraphs, opts.replicatedGraphCount = replicas > 1, replicas

    device = example.popart.DeviceManager().acquireAvailableDevice(replicas)
    popart = argparse.Namespace(configureSessionOptions=configure, getDevice=lambda width: device)
    example.popdist_py = argparse.Namespace(**{**vars(example.popdist_py), "popart": popart})  # this example's only
    place = replace(example.Place.find(64), local=replicas, total=replicas, micro_batch=64 // (2 * replicas))
    args = argparse.Namespace(epochs=epochs, seed=seed, batch=64, half=False)
    digits = example.Digits.load(seed, np.float32)
    return example.Training(digits, place, example.first_weights(seed, np.float32), args)


def step_data(training: Any, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of an epoch as [steps, A, R, micro-batch, ...], found again by the rule of the example."""
    images, labels = training.digits.train
    order = np.random.default_rng((training.args.seed, epoch)).permutation(len(labels))
    place = training.place
    order = order[: training.steps * place.batch].reshape(training.steps, 2, place.total, place.micro_batch)
    return images[order], labels[order]
