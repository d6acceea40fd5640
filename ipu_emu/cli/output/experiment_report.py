"""Experiment report: measured configurations, the terms of a step, laws of scaling, and limits, as data and text."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gcl.drawing.units import TimeUnit, decimal
from ipu_emu.cli.output.scale_report import scale_text
from ipu_emu.predict.experiment.fit import TERMS, Fit, Interval
from ipu_emu.predict.experiment.limits import limits
from ipu_emu.predict.experiment.measuring import Measurements
from ipu_emu.predict.experiment.plan import Configuration
from ipu_emu.predict.experiment.step_use import PARTS
from ipu_emu.predict.laws import amdahl, gustafson, karp_flatt, universal, universal_fit

#: Points of a curve: measured numbers of replicas, then as many times more as an extrapolation goes.
_BEYOND = 2.0
_POINTS = 25


def experiment_facts(runs: Measurements, fit: Fit, repeat: str) -> dict[str, Any]:
    """All measurements and derived numbers; ``repeat``: the command line of the experiment."""
    sources = sorted({use.source for entries in runs.uses.values() for use in entries})
    return {
        "schema": "ipu-emu experiment 2",
        "program": shlex.join(runs.plan.program),
        "repeat": repeat,
        "cores": runs.plan.cores,
        "rounds": runs.rounds,
        "seconds": runs.seconds,
        "load_per_core_of_others": list(runs.loads),
        "time_source": " and ".join(sources),
        "scaling": fit.shares.scaling,
        "scaling_source": fit.shares.source,
        "unit": fit.shares.unit,
        "lanes": fit.lanes,
        "configurations": [_configuration(runs, fit, c) for c in runs.uses],
        "terms": {name: _term(name, value) for name, value in fit.terms.items()},
        "laws": _laws(runs, fit),
        "pod": None,
        "host_io": None,
        "warnings": runs.warnings,
    }


def _term(name: str, value: Interval) -> dict[str, Any]:
    unit, meaning = TERMS[name]
    return {"meaning": meaning, "unit": unit, **asdict(value), "cannot_be_told_from_0": value.is_zero}


def _configuration(runs: Measurements, fit: Fit, configuration: Configuration) -> dict[str, Any]:
    step, speedup = runs.median(configuration, "seconds"), fit.speedups[configuration]
    ratio = configuration.replicas / runs.plan.base.replicas
    samples = fit.shares.samples[configuration]
    return {
        "name": configuration.name,
        **asdict(configuration),
        "step_seconds": step,
        "step_seconds_by_round": [use.seconds for use in runs.uses[configuration]],
        "fitted_step_seconds": fit.seconds[configuration],
        "error": fit.residual(configuration, step),
        "samples_per_step": samples,
        "samples_per_second": samples / step,
        "speedup": speedup.value,
        "speedup_90": [speedup.low, speedup.high],
        "efficiency": speedup.value / ratio,
        "efficiency_90": [speedup.low / ratio, speedup.high / ratio],
        "serial_fraction": karp_flatt(speedup.value, int(ratio)) if ratio >= 2 and ratio % 1 == 0 else None,
        "parts_seconds": {name: runs.median(configuration, name) for name in PARTS},
        "collectives_per_step": runs.median(configuration, "calls"),
        "collective_bytes_per_step": runs.median(configuration, "nbytes"),
        "timed_steps": sum(use.steps for use in runs.uses[configuration]),
        "limits": [vars(limit) for limit in limits(runs, fit, configuration)],
    }


def _laws(runs: Measurements, fit: Fit) -> dict[str, Any]:
    """The laws as speed-ups over the smallest configuration, up to the measured replicas and beyond."""
    base = runs.plan.base
    diagonal = [c for c in runs.uses if c.instances == c.replicas and c.accumulation == base.accumulation]
    last = max(diagonal, default=base)
    compute = fit.terms["t"].value * fit.shares.samples[base] / getattr(base, fit.lanes)
    fixed = fit.terms["c"].value
    if not compute + fixed:
        compute = 1.0
    alone = compute + fixed
    constant = fixed / alone
    reduction = fixed + runs.median(last, "waiting") + runs.median(last, "collectives")
    ratios = [c.replicas / base.replicas for c in diagonal]
    contention, coherence = universal_fit(ratios, [fit.speedups[c].value for c in diagonal])
    most = max([*ratios, 2.0])
    grows = fit.shares.scaling == "weak"
    laws: dict[str, Callable[[float], float]] = {
        "ideal": lambda n: n,
        "Amdahl": lambda n: amdahl(constant, n),
        "Gustafson": lambda n: gustafson(constant, n),
        "GA x T_MB + T_AR": lambda n: (
            (n if grows else 1) * alone / (compute / (1 if grows else n) + reduction) if n > 1 else 1.0
        ),
        "universal": lambda n: universal(contention, coherence, n),
    }
    counts = [1 + (_BEYOND * most - 1) * index / (_POINTS - 1) for index in range(_POINTS)]
    return {
        "constant_share": constant,
        "reduction_seconds": reduction,
        "contention": contention,
        "coherence": coherence,
        "measured_up_to": most,
        "at_4": {name: law(4.0) for name, law in laws.items()},
        "curves": [{"count": count, **{name: law(count) for name, law in laws.items()}} for count in counts],
    }


def experiment_text(facts: Mapping[str, Any]) -> str:
    """The report as text."""
    unit = TimeUnit.of(min(row["step_seconds"] for row in facts["configurations"]) / 10)
    loads = facts["load_per_core_of_others"]
    lines = [
        f"{facts['program']}: {facts['rounds']} rounds, {facts['seconds']:.0f} s, {facts['cores']} cores; medians, "
        f"{facts['scaling']} scaling (by {facts['scaling_source']}); times from {facts['time_source']}; load "
        f"from others {min(loads):.2f} to {max(loads):.2f} per core",
        "",
        _HEAD,
        *(_row(row, unit) for row in facts["configurations"]),
        "",
        f"what a step consists of (90 % intervals; a {facts['unit']}; {facts['lanes']} work at the same time)",
        *(_term_line(name, row, facts["unit"]) for name, row in facts["terms"].items()),
        "",
        *law_lines(facts["laws"]),
        "",
        *(limit_line(row) for row in facts["configurations"]),
    ]
    lines += [f"Try: {advice}" for advice in advices(facts)]
    if facts["pod"]:
        lines += ["", f"the same job on a Pod, predicted: {scale_text(facts['pod'])}"]
    lines += facts["host_io"]["lines"] if facts["host_io"] else []
    lines += [f"Warning: {line}" for line in facts["warnings"]]
    return "\n".join([*lines, "", f"Repeat: {facts['repeat']}"])


_HEAD = (
    "inst. x repl.        step         fit   error      samples/s  speed-up          90 %  efficiency  "
    + "  ".join(f"{name:>11}" for name in PARTS)
)


def _row(row: Mapping[str, Any], unit: TimeUnit) -> str:
    low, high = row["speedup_90"]
    parts = row["parts_seconds"]
    seen = sum(parts.values())
    shares = "  ".join(f"{parts[name] / seen:>11.0%}" if seen else f"{'-':>11}" for name in PARTS)
    return (
        f"{row['name']:<13}  {unit.text(row['step_seconds']):>10}  {unit.text(row['fitted_step_seconds']):>10}  "
        f"{row['error']:>+6.1%}  {row['samples_per_second']:>13,.1f}  {row['speedup']:>7.2f}x  "
        f"{f'{low:.2f} to {high:.2f}':>12}  {row['efficiency']:>10.0%}  {shares}"
    )


def _term_line(name: str, row: Mapping[str, Any], sample: str) -> str:
    values = [row[key] for key in ("value", "low", "high")]
    if row["unit"]:
        unit = next((unit for unit in TimeUnit if unit.value * 1000 > values[0]), TimeUnit.s)
        shown = [f"{value / unit.value:.3g}" for value in values]
        text, low, high = f"{shown[0]} {unit.name}", *shown[1:]
    else:
        text, low, high = (f"{value:.1%}" for value in values)
    more = f" = {decimal(1 / row['value'], 'B/s')}" if name == "byte" and row["value"] else ""
    zero = "; cannot be told from 0" if row["cannot_be_told_from_0"] else ""
    meaning = row["meaning"].replace("sample", sample)
    return f"  {name:<16}  {text:>12}  ({low} to {high}{zero}){more}  {meaning}"


def law_lines(laws: Mapping[str, Any]) -> list[str]:
    """What the laws say about this program, beside the example of the technical notes."""
    at, share = laws["at_4"], laws["constant_share"]
    return [
        f"constant share of the smallest configuration {share:.1%}; on 4 times the replicas: "
        f"{at['Amdahl']:.2f}x with fixed work (Amdahl), {at['Gustafson']:.2f}x with scaled work (Gustafson), "
        f"{at['GA x T_MB + T_AR']:.2f}x by GA x T_MB + T_AR "
        f"(T_AR {laws['reduction_seconds'] * 1e3:.3g} ms), {at['universal']:.2f}x by the universal law "
        f"(contention {laws['contention']:.3f}, coherence {laws['coherence']:.4f})",
        "the technical notes' example, 50 % constant and 4 times the compute: their 2.5x, 62.5 %, is Gustafson's law "
        f"for scaled work; Amdahl's, for fixed work, is {amdahl(0.5, 4):.1f}x, {amdahl(0.5, 4) / 4:.0%}",
    ]


def limit_line(row: Mapping[str, Any]) -> str:
    """The first limit of a configuration."""
    first = row["limits"][0]["text"] if row["limits"] else "no limit: compute takes the time of a step"
    return f"{row['name']}: {first}"


def advices(facts: Mapping[str, Any]) -> list[str]:
    """What to try, the largest loss of any configuration first."""
    every = [limit for row in facts["configurations"] for limit in row["limits"]]
    return list(dict.fromkeys(limit["advice"] for limit in sorted(every, key=lambda limit: -limit["share"])))


def comparison_text(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Two experiments side by side: steps, efficiencies and terms, and which differ beyond the intervals."""
    lines = [f"before  {before['program']}", f"after   {after['program']}", ""]
    lines.append("inst. x repl.      before       after   ratio  efficiency before      after")
    rows = {row["name"]: row for row in before["configurations"]}
    for new in (row for row in after["configurations"] if row["name"] in rows):
        old = rows[new["name"]]
        unit = TimeUnit.of(old["step_seconds"] / 10)
        lines.append(
            f"{new['name']:<13}  {unit.text(old['step_seconds']):>10}  {unit.text(new['step_seconds']):>10}  "
            f"{new['step_seconds'] / old['step_seconds']:>6.2f}  "
            f"{old['efficiency']:>17.0%}  {new['efficiency']:>9.0%}"
            + _differs(old["efficiency_90"], new["efficiency_90"])
        )
    lines.append("")
    for name, new in after["terms"].items():
        if name in before["terms"]:
            old = before["terms"][name]
            verdict = _differs([old["low"], old["high"]], [new["low"], new["high"]])
            lines.append(f"{name:<16}  {old['value']:.4g} -> {new['value']:.4g} {new['unit']}{verdict}")
    return "\n".join(lines)


def _differs(old: Sequence[float], new: Sequence[float]) -> str:
    if new[0] > old[1] or new[1] < old[0]:
        return "  changed: the 90 % intervals are apart"
    return "  within the intervals"
