"""Help: the text of --help, made of the table of options."""

from __future__ import annotations

from itertools import groupby

from click.formatting import HelpFormatter

from poprun_py.options.option_table import OPTIONS, Option

__all__ = ["GROUPS", "help_text", "spelling"]

_INTRODUCTION = (
    "Start a program as several instances that share the replicas of a model, watch over them, and end them all "
    "when one fails. Everything after the program belongs to the program.",
    "--option value and --option=value are the same, and options may be shortened as long as they stay unambiguous. "
    "Before the program, NAME=VALUE sets a variable for it.",
)

#: Group of options -> what to know before reading it.
GROUPS: dict[str, str] = {
    "Shape": "An instance is a process, a replica a copy of the model; with 8 replicas in 2 instances, instance 0 "
    "has replicas 0 to 3 and instance 1 has replicas 4 to 7.",
    "Hosts": "Other hosts are reached by ssh, or by srun inside an allocation of Slurm; program and Python must be "
    "in the same places there.",
    "Placement": "On each host the instances are kept apart, on CPUs and memory of their own.",
    "MPI": "An MPI starts the instances and connects them.",
    "Output": "Each line is tagged with its instance: [1,0]<stdout>: ...",
    "Execution": "The job ends when the first instance fails, with its exit code.",
    "V-IPU": "Partitions are emulated: they are created as they are needed, and limit nothing but a job that is "
    "larger. IPU_EMU_SYSTEM=pod16 (pod4, pod64, ...) limits every job.",
    "General": "",
}

_EXAMPLES = (
    ("Four replicas in two processes:", "poprun-py --num-instances 2 --num-replicas 4 python train.py --epochs 3"),
    (
        "The same on two hosts, showing who runs where and only what instance 0 says:",
        "poprun-py --host h0,h1 --num-instances 2 --num-replicas 4 --print-topology=yes "
        "--only-output-from-instance 0 ./train.sh",
    ),
    ("Look at the plan, start nothing:", "poprun-py --num-instances 2 --num-replicas 4 --dry-run python train.py"),
)


def help_text(width: int = 100) -> str:
    """The whole text, wrapped to ``width`` columns."""
    out = HelpFormatter(width=width, max_width=width)
    out.write_usage("poprun-py", "[options] [NAME=VALUE ...] program [program arguments]")
    for paragraph in _INTRODUCTION:
        out.write_paragraph()
        with out.indentation():
            out.write_text(paragraph)
    for group, options in groupby(OPTIONS, key=lambda option: option.group):
        with out.section(group):
            if GROUPS[group]:
                out.write_text(GROUPS[group])
                out.write_paragraph()
            out.write_dl([(spelling(option), option.help) for option in options], col_max=34)
    _write_examples(out)
    return out.getvalue()


def _write_examples(out: HelpFormatter) -> None:
    with out.section("Examples"):
        for number, (text, command) in enumerate(_EXAMPLES):
            out.write("\n" if number else "")
            out.write_text(text)
            first, *more = _broken(command, out.width - 8)
            out.write(f"    {first}\n" + "".join(f"      {line}\n" for line in more))


def _broken(command: str, width: int) -> list[str]:
    """The command in lines that a shell takes together."""
    lines = [""]
    for word in command.split():
        if len(lines[-1]) + len(word) + 3 > width:
            lines[-1] += " \\"
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
    return lines


def spelling(option: Option) -> str:
    """``-H, --host LIST``"""
    letter = f"-{option.letter}, " if option.letter else ""
    return f"{letter}--{option.name}" + (f" {option.metavar}" if option.metavar else "")
