"""Help: the text of --help, generated from the option table."""

from __future__ import annotations

from itertools import groupby

from click.formatting import HelpFormatter

from poprun_py.options.option_table import OPTIONS, Option

_INTRODUCTION = (
    "Start a program as several instances (processes) that share the replicas of a model; end all of them when "
    "one fails. Everything after the program is passed to the program.",
    "--option value and --option=value are the same. Option names may be abbreviated while they are unambiguous. "
    "NAME=VALUE before the program sets a variable in its environment.",
)

#: Group of options -> its introduction.
GROUPS: dict[str, str] = {
    "Shape": "An instance is a process, a replica is a copy of the model. With 8 replicas in 2 instances, instance 0 "
    "has replicas 0 to 3 and instance 1 has replicas 4 to 7.",
    "Hosts": "Instances on other hosts are started over ssh, or with srun in a Slurm allocation. The program and "
    "Python must be at the same paths there.",
    "Placement": "On each host, every instance is bound to its own share of the CPUs and memory.",
    "MPI": "An MPI implementation starts the instances and connects them.",
    "Output": "Each line of output is tagged with its instance and stream: [1,0]<stdout>: ...",
    "Execution": "When an instance fails, the job is ended, and its exit code is that of the instance.",
    "V-IPU": "Partitions are emulated: they are created on demand, and only limit the size of a job. "
    "IPU_EMU_SYSTEM=pod16 (pod4, pod64, ...) sets the size of the emulated system, which limits every job.",
    "General": "",
}

_EXAMPLES = (
    ("Four replicas in two instances:", "poprun-py --num-instances 2 --num-replicas 4 python train.py --epochs 3"),
    (
        "The same on two hosts, with the topology and only the output of instance 0:",
        "poprun-py --host h0,h1 --num-instances 2 --num-replicas 4 --print-topology=yes "
        "--only-output-from-instance 0 ./train.sh",
    ),
    (
        "Show the plan without starting anything:",
        "poprun-py --num-instances 2 --num-replicas 4 --dry-run python train.py",
    ),
)


def help_text(width: int = 100) -> str:
    """Return the help text, wrapped to ``width`` columns."""
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
    """The command, broken into lines with backslashes."""
    lines = [""]
    for word in command.split():
        if len(lines[-1]) + len(word) + 3 > width:
            lines[-1] += " \\"
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".lstrip()
    return lines


def spelling(option: Option) -> str:
    """Return the option as --help writes it: ``-H, --host LIST``."""
    letter = f"-{option.letter}, " if option.letter else ""
    return f"{letter}--{option.name}" + (f" {option.metavar}" if option.metavar else "")
