"""The output that guides show of ipu-emu and gcl.explain is what the commands print.

Lines with "..." are skipped, and so are examples that show measurements, need a file, or take longest (gpt2).
"""

from __future__ import annotations

import re
import shlex

import pytest
from click.testing import CliRunner

from gcl.explain import main as explain
from ipu_emu.cli import main as ipu_emu
from tests.helpers.mpi_jobs import ROOT

COMMANDS = {"ipu-emu": ipu_emu, "python -m gcl.explain": explain}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/guides").glob("*.md"))]


def shown() -> list[tuple[str, str, str]]:
    """Command, arguments and output of every example."""
    examples = []
    for page in PAGES:
        for block in re.findall(r"```\w*\n(.*?)```", page.read_text(), re.DOTALL):
            for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, _, output = example.partition("\n")
                name = next((name for name in COMMANDS if line.removeprefix(".venv/bin/").startswith(f"{name} ")), "")
                arguments = line.partition(name)[2].split("   #")[0] if name else ""
                if name and output.strip() and not re.search(r"hostio|gpt2|\.onnx|\.py|[>|]", arguments):
                    examples.append((name, arguments, output))
    return examples


@pytest.mark.parametrize(("name", "arguments", "output"), shown(), ids=lambda text: str(text)[:60])
def test_the_output_of_an_example(name: str, arguments: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IPU_EMU_SYSTEM", raising=False)
    ended = CliRunner().invoke(COMMANDS[name], shlex.split(arguments), terminal_width=110)
    printed = {" ".join(line.split()) for line in ended.output.splitlines()}
    missing = [line for line in output.splitlines() if "..." not in line and " ".join(line.split()) not in printed]
    assert [line for line in missing if line.strip()] == []
