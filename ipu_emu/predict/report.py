"""Report: a prediction as plain data, with the unit in every key, for JSON and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ipu_emu.predict.calibration.profile import Profile
from ipu_emu.predict.host import input_dtype
from ipu_emu.predict.job import Job
from ipu_emu.predict.memory import formula_bytes
from ipu_emu.predict.model import WHAT_IF
from ipu_emu.predict.prediction import Prediction

_SCHEMA = "ipu-emu prediction 1"


def job_facts(job: Job) -> dict[str, Any]:
    """The job, with derived numbers."""
    facts = {name: value for name, value in asdict(job).items() if name not in ("system", "samples", "epochs")}
    if job.own_network is not None:
        del facts["own_network"]["divided"]
    facts["given"] = facts.pop("own_network")
    rate = facts.pop("host_rate")
    return facts | {
        "input_dtype": input_dtype(job),
        "system": job.system.name,
        "system_ipus": job.system.ipus,
        "generation": job.system.generation.name,
        "clock_hz": job.system.generation.clock,
        "domains": -(-job.total_ipus // job.system.domain_size),
        "hosts": job.host_count,
        "host_rate_bytes_per_second": rate,
        "global_batch_samples": job.global_batch,
        "parameters": job.network.parameters,
        "trained_parameters": job.network.trained,
        "forward_flops_per_sequence": job.network.flops,
        "training_samples": job.samples * job.epochs,
    }


def facts(prediction: Prediction) -> dict[str, Any]:
    """All of a prediction."""
    job, low, high = prediction.job, *prediction.interval
    return {
        "schema": _SCHEMA,
        "job": job_facts(job),
        "samples_per_second": prediction.throughput,
        "samples_per_second_90": [low, high],
        "step_seconds": prediction.step,
        "micro_batch_latency_seconds": prediction.latency,
        "terms_seconds": prediction.terms,
        "slot_seconds_by_class": prediction.slot_classes,
        "busiest_ipu": prediction.busiest,
        "uncalibrated_samples_per_second": prediction.uncalibrated,
        "mfu": prediction.utilisation(hardware=False),
        "hfu": prediction.utilisation(hardware=True),
        "limiting": prediction.limiting,
        "memory": _memory(prediction),
        "efficiency": {
            "one_replica_samples_per_second": prediction.one_replica,
            "share_of_ideal": prediction.throughput / (job.replicas * prediction.one_replica),
        },
        "seconds_to_train": prediction.seconds_to_train,
        "calibration": calibration_facts(prediction.profile),
        "warnings": prediction.warnings,
    }


def _memory(prediction: Prediction) -> dict[str, Any]:
    names = [[block.name for block in blocks] for blocks in prediction.model.work.placement]
    literal, deduplicated = formula_bytes(prediction.job)
    return {
        "verdict": prediction.verdict,
        "limit_bytes": prediction.memories[0].limit,
        "ipus": [
            {
                "ipu": memory.ipu,
                "blocks": names[memory.ipu],
                "parts_bytes": memory.parts,
                "bytes": memory.nbytes,
                "low_bytes": memory.low,
                "high_bytes": memory.high,
                "verdict": memory.verdict,
            }
            for memory in prediction.memories
        ],
        "formula_literal_bytes": literal,
        "formula_deduplicated_bytes": deduplicated,
    }


def calibration_facts(profile: Profile | None) -> dict[str, Any] | None:
    """The profile: its parameters and the rows behind them."""
    if profile is None:
        return None
    return {
        "file": profile.file,
        "rows": profile.rows,
        "spread": profile.spread,
        "parameters": [asdict(parameter) for parameter in profile.parameters],
    }


def what_if_facts(prediction: Prediction, changes: Sequence[dict[str, float]] = ()) -> list[dict[str, Any]]:
    """Throughput with other rates; by default with each rate doubled."""
    scenarios = list(changes) or [{name: 2.0} for name in WHAT_IF]
    return [
        {
            "change": ", ".join(f"{name}=x{factor:g}" for name, factor in factors.items()),
            "samples_per_second": (rate := prediction.changed(factors).throughput),
            "speedup": rate / prediction.throughput,
        }
        for factors in scenarios
    ]
