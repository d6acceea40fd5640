"""Run configuration: how an estimator uses the IPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["IPURunConfig", "RunConfig"]


@dataclass(frozen=True)
class IPURunConfig:
    """``ipu_options`` is an IPUConfig; ``iterations_per_loop`` iterations run without returning to the host."""

    iterations_per_loop: int = 1
    ipu_options: Any = None
    num_replicas: int = 1
    num_shards: int = 1
    ordinal: int = 0
    prefetch_depth: int | None = None

    def __post_init__(self) -> None:
        if self.iterations_per_loop < 1:
            raise ValueError(f"iterations_per_loop must be at least 1, not {self.iterations_per_loop}")


class RunConfig:
    """The configuration of an estimator; unknown arguments become attributes."""

    def __init__(
        self, ipu_run_config: IPURunConfig | None = None, master: Any = None, model_dir: str | None = None,
        tf_random_seed: int | None = None, session_config: Any = None, **others: Any,
    ) -> None:  # fmt: skip
        self.ipu_run_config = ipu_run_config or IPURunConfig()
        self.master, self.model_dir, self.tf_random_seed = master, model_dir, tf_random_seed
        self.session_config = session_config
        vars(self).update(others)
