"""Prediction text: a prediction as text."""

from __future__ import annotations

from typing import Any

from gcl.drawing.units import TimeUnit, counted, memory


def text(facts: dict[str, Any], *, explain: bool = False) -> str:
    """The prediction in ``facts``; with ``explain`` memory, calibration and other rates too."""
    parts = [_head(facts), _terms(facts), _summary(facts)]
    if explain:
        parts += [_memory(facts), _calibration(facts)]
    if "what_if" in facts:
        parts.append(_what_if(facts["what_if"]))
    if facts["warnings"]:
        parts.append("\n".join(f"Warning: {line}" for line in facts["warnings"]))
    parts.append(facts["memory"].get("remedies", ""))
    return "\n\n".join(part for part in parts if part)


def _head(facts: dict[str, Any]) -> str:
    job, (low, high) = facts["job"], facts["samples_per_second_90"]
    what = f"training with {job['optimiser']}" if job["training"] else "inference"
    words = [
        f"{job['model']}, {what}, micro-batches of {job['batch']}, {job['accumulation']} accumulated",
        f"{job['replicas']} x {job['ipus']} IPUs of {job['system']}",
    ]
    step = facts["step_seconds"]
    lines = [", ".join(words), ""]
    interval = f"  (90 %: {_rate(low, 0)} to {_rate(high, 0)})" if facts["calibration"] else ""
    lines.append(f"predicted     {_rate(facts['samples_per_second'])} samples/s{interval}")
    if facts["calibration"]:
        rate = _rate(facts["uncalibrated_samples_per_second"])
        lines.append(f"uncalibrated  {rate} samples/s, at nominal rates")
    batch = job["global_batch_samples"]
    lines.append(f"step          {TimeUnit.of(step).text(step)}, global batch {batch:,.0f}")
    return "\n".join(lines)


def _rate(value: float, digits: int = 1) -> str:
    """A rate with ``digits`` after the point, or with three significant ones if it is below 10."""
    return f"{value:,.{digits}f}" if value >= 10 else f"{value:.3g}"


def _terms(facts: dict[str, Any]) -> str:
    step = facts["step_seconds"]
    unit = TimeUnit.of(step / 100)
    rows = [(name, seconds) for name, seconds in facts["terms_seconds"].items() if seconds]
    width = max(len(unit.number(seconds)) for _, seconds in rows)
    lines = ["terms of the step"]
    for name, seconds in rows:
        bar, number = "#" * round(40 * seconds / step), f"{unit.number(seconds):>{width}} {unit.name}"
        lines.append(f"  {name:<10} {number}  {seconds / step:6.1%}  {bar}".rstrip())
    return "\n".join(lines)


def _summary(facts: dict[str, Any]) -> str:
    classes = {name: seconds for name, seconds in facts["slot_seconds_by_class"].items() if seconds}
    total = sum(classes.values())
    named = [(name, seconds / total) for name, seconds in classes.items()]
    shares = ", ".join(f"{name} {share:.0%}" for name, share in named if share >= 0.005)
    needs = facts["memory"]
    fullest = max(needs["ipus"], key=lambda ipu: (ipu["verdict"] == needs["verdict"], ipu["high_bytes"]))
    efficiency, job = facts["efficiency"], facts["job"]
    latency, per_sample = facts["micro_batch_latency_seconds"], 1 / facts["samples_per_second"]
    lines = [
        f"limited by    {facts['limiting']}; busiest is IPU {facts['busiest_ipu']} ({shares})",
        f"utilisation   {facts['mfu']:.1%} of the matrix peak; {facts['hfu']:.1%} with recomputation",
        f"latency       {TimeUnit.of(latency).text(latency)} of a micro-batch, from the host to its last result; "
        f"1 / throughput is {TimeUnit.of(per_sample).text(per_sample)} per sample",
        f"scaling       {efficiency['share_of_ideal']:.1%} of ideal ({facts['job']['replicas']} times one replica)",
        f"memory        {needs['verdict']}: IPU {fullest['ipu']} needs {memory(fullest['low_bytes'])} to "
        f"{memory(fullest['high_bytes'])} of {memory(needs['limit_bytes'])}",
    ]
    if job["instances"]:
        on_host = -(-job["instances"] // job["hosts"])
        lines.append(
            f"instances     up to {on_host} on each of {counted(job['hosts'], 'host')}: a host should have as many "
            "NUMA nodes, else they slow each other down"
        )
    if facts["seconds_to_train"]:
        lines.append(f"to train      {facts['seconds_to_train'] / 60:,.1f} min, without evaluation and checkpoints")
    return "\n".join(lines)


def _memory(facts: dict[str, Any]) -> str:
    lines = ["memory of each IPU"]
    for ipu in facts["memory"]["ipus"]:
        parts = ", ".join(f"{name} {memory(nbytes)}" for name, nbytes in ipu["parts_bytes"].items() if nbytes)
        blocks = ipu["blocks"]
        names = f"{blocks[0]} .. {blocks[-1]}" if len(blocks) > 1 else "".join(blocks)
        lines.append(f"  IPU {ipu['ipu']:<2} {ipu['verdict']:<12} {len(blocks):>3} blocks, {names}")
        bounds = f"{memory(ipu['low_bytes'])} to {memory(ipu['high_bytes'])}"
        lines.append(f"         {parts}; with code and what a compiler adds, {bounds}")
    lines.append(
        f"  all variables of a replica: {memory(facts['memory']['formula_literal_bytes'])} by the literal formula, "
        f"{memory(facts['memory']['formula_deduplicated_bytes'])} deduplicated"
    )
    return "\n".join(lines)


def _calibration(facts: dict[str, Any]) -> str:
    calibration = facts["calibration"]
    if not calibration:
        return ""
    lines = [f"calibration {calibration['file']}, {calibration['rows']} rows"]
    for row in calibration["parameters"]:
        known = f"± {row['sigma']:.3f}" if row["identified"] else "(not identified)"
        lines.append(f"  {row['name']:<24} {row['value']:6.3f} {known:<17} {row['unit']}: {row['meaning']}")
    return "\n".join(lines)


def _what_if(rows: list[dict[str, Any]]) -> str:
    width = max(len(row["change"]) for row in rows)
    lines = [
        f"  {row['change']:<{width}}  {row['samples_per_second']:>14,.1f} samples/s  x {row['speedup']:.3f}"
        for row in rows
    ]
    return "what if\n" + "\n".join(lines)
