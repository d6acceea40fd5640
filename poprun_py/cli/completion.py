"""Completion: the script that lets bash, zsh or fish complete a command line of poprun-py, made of the table.

    source <(poprun-py --completion bash)                                          in ~/.bashrc
    poprun-py --completion zsh > "${fpath[1]}/_poprun-py"                           once
    poprun-py --completion fish > ~/.config/fish/completions/poprun-py.fish         once

Options and their values come first; from the program on, the shell completes as for the program itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from poprun_py.options.option_table import OPTIONS, Option

__all__ = ["completion_script"]

#: What the value of an option is, by the word that stands for it in the help: for bash, zsh and fish.
_FILES, _FOLDERS, _HOSTS = ("FILE", "NAME|PATH"), ("DIR",), ("LIST", "HOST")


def completion_script(shell: str) -> str:
    """The script for ``bash``, ``zsh`` or ``fish``."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def _bash() -> str:
    names = " ".join(f"--{name}" for option in OPTIONS for name in option.spellings)
    letters = " ".join(f"-{option.letter}" for option in OPTIONS if option.letter)
    with_value = [option for option in OPTIONS if option.read]
    cases = [f"        {_spelled(option)}) {_bash_reply(option)} ;;" for option in with_value]
    return _BASH.format(
        names=f"{names} {letters}",
        with_value="|".join(_spelled(option) for option in with_value),
        cases="\n".join(cases),
    )


def _bash_reply(option: Option) -> str:
    if option.choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$word"))'
    for metavars, action in ((_FILES, "-f"), (_FOLDERS, "-d"), (_HOSTS, "-A hostname")):
        if option.metavar in metavars:
            return f'COMPREPLY=($(compgen {action} -- "$word"))'
    return "COMPREPLY=()"


def _spelled(option: Option, separator: str = "|") -> str:
    letter = [f"-{option.letter}"] if option.letter else []
    return separator.join([f"--{name}" for name in option.spellings] + letter)


_BASH = """\
# Completion of poprun-py for bash: source <(poprun-py --completion bash)
_poprun_py() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" option="" i=1
    COMPREPLY=()
    while ((i < COMP_CWORD)); do  # up to the program; bash takes --option=value for three words
        case "${{COMP_WORDS[i]}}" in
        --) ((i++)); break ;;
        {with_value})
            option="${{COMP_WORDS[i]}}"
            ((i++))
            if [[ "${{COMP_WORDS[i]}}" == "=" ]]; then
                ((i == COMP_CWORD)) && word=""
                ((i < COMP_CWORD)) && ((i++))
            fi
            ((i < COMP_CWORD)) && option=""
            ((i++))
            ;;
        -*) ((i++)) ;;
        *) break ;;
        esac
    done
    case "$option" in
{cases}
        *)
            if ((i < COMP_CWORD)); then
                declare -F _command_offset >/dev/null && _command_offset "$i" || COMPREPLY=($(compgen -f -- "$word"))
            elif [[ "$word" == -* ]]; then
                COMPREPLY=($(compgen -W "{names}" -- "$word"))
            else
                COMPREPLY=($(compgen -A command -- "$word") $(compgen -f -- "$word"))
            fi
            ;;
    esac
}}
complete -o filenames -F _poprun_py poprun-py
"""


def _zsh() -> str:
    specs = [line for option in OPTIONS for line in _zsh_specs(option)]
    body = " \\\n".join(f"    {shlex.quote(spec)}" for spec in specs)
    return (
        f"#compdef poprun-py\n"
        f'# Completion of poprun-py for zsh: poprun-py --completion zsh > "${{fpath[1]}}/_poprun-py"\n'
        f"_poprun_py() {{\n  _arguments -s \\\n{body} \\\n"
        "    '(-):program: _command_names -e' \\\n    '*::arguments: _normal'\n}\n"
        'if [ "$funcstack[1]" = "_poprun-py" ]; then\n  _poprun_py "$@"\nelse\n  compdef _poprun_py poprun-py\nfi\n'
    )


def _zsh_specs(option: Option) -> Iterable[str]:
    text = _first_sentence(option).translate({ord(letter): f"\\{letter}" for letter in "[]:"})
    many = "*" if option.repeats or option.adds else ""
    names = [f"--{name}" for name in option.spellings]
    if option.read is None:
        return [f"{many}{name}[{text}]" for name in [*names, *([f"-{option.letter}"] if option.letter else [])]]
    value = f":{option.metavar.replace(':', ' ')}:{_zsh_action(option)}"
    specs = [f"{many}{name}=[{text}]{value}" for name in names]
    return specs + ([f"{many}-{option.letter}+[{text}]{value}"] if option.letter else [])


def _zsh_action(option: Option) -> str:
    if option.choices:
        return f"({' '.join(option.choices)})"
    actions = ((_FILES, "_files"), (_FOLDERS, "_files -/"), (_HOSTS, "_hosts"))
    return next((action for metavars, action in actions if option.metavar in metavars), " ")


def _fish() -> str:
    with_value = " ".join(_spelled(option, " ") for option in OPTIONS if option.read)
    lines = []
    for option in OPTIONS:
        names = " ".join(f"-l {name}" for name in option.spellings)
        letter = f" -s {option.letter}" if option.letter else ""
        text = _first_sentence(option).replace("\\", "\\\\").replace("'", "\\'")
        lines.append(
            f"complete -c poprun-py -n __poprun_py_options {names}{letter}{_fish_value(option)} -d '{text}'\n"
        )
    return _FISH.format(with_value=with_value) + "".join(lines)


_FISH = """\
# Completion of poprun-py for fish: poprun-py --completion fish > ~/.config/fish/completions/poprun-py.fish
function __poprun_py_program --description 'the words from the program on'
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]
        switch $words[1]
            case --
                set -e words[1]
                break
            case {with_value}
                set -e words[1]
                set -e words[1]
            case '-*'
                set -e words[1]
            case '*'
                break
        end
    end
    string join \\n -- $words
end
function __poprun_py_options --description 'is the program still to come?'
    not count (__poprun_py_program) >/dev/null
end
function __poprun_py_arguments
    complete -C (string join ' ' -- (string escape -- (__poprun_py_program)) (commandline -ct))
end
complete -c poprun-py -f -n 'not __poprun_py_options' -a '(__poprun_py_arguments)'
complete -c poprun-py -f -n __poprun_py_options -a '(__fish_complete_command)'
"""


def _fish_value(option: Option) -> str:
    if option.read is None:
        return ""
    if option.choices:
        return f" -x -a '{' '.join(option.choices)}'"
    if option.metavar in _FILES:
        return " -r -F"
    if option.metavar in _FOLDERS:
        return " -x -a '(__fish_complete_directories)'"
    return " -x -a '(__fish_print_hostnames)'" if option.metavar in _HOSTS else " -x"


def _first_sentence(option: Option) -> str:
    return option.help.partition(". ")[0].removesuffix(".")
