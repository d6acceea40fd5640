"""The page of the documentation that lists ONNX's operator cases that are not run, by reason.

``python -m tests.ipu_emu.ops.cases.onnx_case_page`` writes it from ``onnx/data/onnx_cases_skipped.txt``.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from tests.helpers.mpi_jobs import ROOT
from tests.ipu_emu.ops.cases.onnx_cases import node_cases

__all__ = ["PAGE", "SKIPPED", "page", "skipped"]

SKIPPED = Path(__file__).parents[2] / "onnx" / "data" / "onnx_cases_skipped.txt"
PAGE = ROOT / "docs" / "reference" / "onnx-cases.md"
#: The explanation of a reason, by its first words.
_WHY = {
    "element type STRING": "Devices have no strings; convert them to numbers on the host.",
    "element type FLOAT": "PopART 3.4 has no numbers of fewer than 16 bits with a fraction; they are refused.",
    "element type": "PopART 3.4 has no integers of fewer than 8 bits; they are refused.",
    "BFLOAT16": "Weights and values of BFLOAT16 are computed in FLOAT: the results have more digits.",
    "sequences": "Every tensor of a device has one shape. Splits that are read at constant places are resolved.",
    "optional": "Every tensor of a device exists in every run.",
    "op SplitToSequence": "The sequence itself is the result of the case; sequences are not passed to the host.",
    "op SequenceConstruct": "The sequence itself is the result of the case; sequences are not passed to the host.",
    "op Optional": "Every tensor of a device exists in every run.",
    "op Attention": "PopART's opsets have no Attention; other forms of the op run.",
    "op Momentum": "Training ops of ONNX: optimisers are given to the session.",
    "op Ad": "Training ops of ONNX: optimisers are given to the session.",
    "op": "None of PopART's opsets has the op, nor does one of the exporters that are tested write it.",
    "the case": "Opsets start with 6.",
    "FLOAT16": "The tolerance of the case is that of one rounding.",
}


def skipped() -> dict[str, str]:
    """Reason by name."""
    lines = [line.split(maxsplit=1) for line in SKIPPED.read_text().splitlines() if line]
    return dict(lines)


def page() -> str:
    """The text of the page."""
    reasons: dict[str, list[str]] = {}
    for name, reason in skipped().items():
        reasons.setdefault(reason, []).append(name)
    total, left = len(node_cases()), len(skipped())
    lines = [
        "# Operator test cases of ONNX",
        "",
        f"ONNX {onnx.__version__} has {total} operator cases: models of one op with data, in its newest opset and as "
        f"the function of other ops that defines it.\n{total - left} of them run and give the expected results; "
        f"{left} are not run, for these reasons.",
        "",
        "| reason | cases | explanation |",
        "|---|---|---|",
    ]
    ordered = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    for reason, names in ordered:
        why = next(text for start, text in _WHY.items() if reason.startswith(start))
        lines.append(f"| {reason} | {len(names)} | {why} |")
    lines += ["", "## Names", ""]
    for reason, names in ordered:
        lines += [f"**{reason}**", "", ", ".join(f"`{name}`" for name in sorted(names)), ""]
    lines.append("This page is written by `python -m tests.ipu_emu.ops.cases.onnx_case_page`; a test compares it.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
