"""Completion: the candidates for the last word of a command line, and the shell scripts that request them.

    source <(poprun-py --completion bash)                                          in ~/.bashrc
    poprun-py --completion zsh > "${fpath[1]}/_poprun-py"                           once
    poprun-py --completion fish > ~/.config/fish/completions/poprun-py.fish         once

The scripts run poprun-py with _POPRUN_PY_COMPLETE set and the words up to the cursor, and read these lines:

    words, files, folders, hosts, program or arguments      what to complete
    a number                                                characters of the word that stay (arguments: see below)
    candidate <tab> description                             any number of lines, for "words" only

``arguments``: from the word of that number on, counted from 0, the line is completed as a command of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from poprun_py.options.option_names import UnknownOption, find_long, find_short
from poprun_py.options.option_table import OPTIONS, Option
from poprun_py.options.parsed_options import is_assignment

#: Metavariable of an option -> kind of its value; the values of all others are free text.
_VALUES = {"FILE": "files", "NAME|PATH": "files", "DIR": "folders", "LIST": "hosts", "HOST": "hosts"}


@dataclass(frozen=True)
class Completion:
    """What to complete; ``number`` and ``candidates`` (word, description) as in the module's docstring."""

    kind: str
    number: int = 0
    candidates: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "\n".join([self.kind, str(self.number), *map("\t".join, self.candidates)]) + "\n"


def complete(words: Sequence[str]) -> Completion:
    """Complete the last of ``words``, which are those after ``poprun-py``; it may be empty."""
    *before, word = words or [""]
    position = 0
    while position < len(before):
        current = before[position]
        if current == "--":
            return _program(position + 1, before)
        if current == "-" or not (current.startswith("-") or is_assignment(current)):
            if before[position + 1 : position + 2] != ["="]:
                return _program(position, before)
            position += 3  # bash splits NAME=VALUE into three words
            continue
        position += 1
        option = _option(current)
        if option and option.read and current in (f"-{option.letter}", f"--{current[2:].partition('=')[0]}"):
            if [*before, word][position] == "=":  # bash splits --option=value into three words
                position += 1
            if position >= len(before):
                return _value(option, word.removeprefix("="), 0)
            position += 1
    if not word.startswith("-"):
        return Completion("program")
    return _option_word(word)


def completion_script(shell: str) -> str:
    """Return the script for ``bash``, ``zsh`` or ``fish``."""
    return {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell]


def _program(position: int, before: Sequence[str]) -> Completion:
    return Completion("arguments", position) if position < len(before) else Completion("program")


def _option(word: str) -> Option | None:
    try:
        return find_long(word[2:].partition("=")[0]) if word.startswith("--") else find_short(word[1:2], word)
    except UnknownOption:
        return None


def _option_word(word: str) -> Completion:
    """Complete ``--na``, or the value in ``--name=va`` and ``-Xva``."""
    name, equals, value = word.partition("=")
    option = _option(name) if equals or (len(word) > 2 and not word.startswith("--")) else None
    if option and word.startswith("--"):
        return _value(option, value, len(name) + 1)
    if option and option.read:
        return _value(option, word[2:], 2)
    return Completion("words", 0, tuple(pair for pair in _names() if pair[0].startswith(word)))


def _value(option: Option, value: str, number: int) -> Completion:
    kind = _VALUES.get(option.metavar, "words")
    choices = option.choices if option.read else ()
    return Completion(kind, number, tuple((choice, "") for choice in choices if choice.startswith(value)))


def _names() -> Iterator[tuple[str, str]]:
    for option in OPTIONS:
        names = [f"--{name}" for name in option.spellings] + ([f"-{option.letter}"] if option.letter else [])
        description = option.help.partition(". ")[0].removesuffix(".")
        yield from ((name, description) for name in names)


_BASH = """\
# Completion of poprun-py for bash: source <(poprun-py --completion bash)
_poprun_py() {
    local kind number word="${COMP_WORDS[COMP_CWORD]}"
    { read -r kind; read -r number; mapfile -t COMPREPLY; } \\
        < <(_POPRUN_PY_COMPLETE=1 poprun-py "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    [[ "$word" == "=" ]] && word=""
    local kept="${word:0:number}"
    case "$kind" in
        words) COMPREPLY=("${COMPREPLY[@]%%$'\\t'*}") ;;
        files) mapfile -t COMPREPLY < <(compgen -f -- "${word:number}") ;;
        folders) mapfile -t COMPREPLY < <(compgen -d -- "${word:number}") ;;
        hosts) mapfile -t COMPREPLY < <(compgen -A hostname -- "${word:number}") ;;
        program) mapfile -t COMPREPLY < <(compgen -A command -A file -- "$word") ;;
        arguments)
            if declare -F _command_offset >/dev/null; then
                _command_offset $((number + 1))
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$word")
            fi
            return ;;
    esac
    COMPREPLY=("${COMPREPLY[@]/#/"$kept"}")
}
complete -o filenames -F _poprun_py poprun-py
"""

_ZSH = """\
#compdef poprun-py
# Completion of poprun-py for zsh: poprun-py --completion zsh > "${fpath[1]}/_poprun-py"
_poprun_py() {
  local -a lines
  local tab=$'\\t'
  lines=("${(@f)$(_POPRUN_PY_COMPLETE=1 poprun-py "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  local kind=$lines[1] number=$lines[2]
  shift 2 lines
  if [[ $kind == arguments ]]; then
    shift $((number + 1)) words
    (( CURRENT -= number + 1 ))
    _normal
    return
  fi
  (( number )) && compset -p $number
  case $kind in
    words) (( $#lines )) && { lines=("${${lines[@]/$tab/:}[@]%:}"); _describe value lines } ;;
    files) _files ;;
    folders) _files -/ ;;
    hosts) _hosts ;;
    program) _command_names -e ;;
  esac
}
if [ "$funcstack[1]" = "_poprun-py" ]; then
  _poprun_py "$@"
else
  compdef _poprun_py poprun-py
fi
"""

_FISH = """\
# Completion of poprun-py for fish: poprun-py --completion fish > ~/.config/fish/completions/poprun-py.fish
function __poprun_py_complete
    set -l words (commandline -opc)
    set -l token (commandline -ct)
    set -l lines (env _POPRUN_PY_COMPLETE=1 poprun-py $words[2..-1] "$token" 2>/dev/null)
    set -l number $lines[2]
    set -l kept (string sub -l $number -- "$token")
    set -l value (string sub -s (math $number + 1) -- "$token")
    switch $lines[1]
        case words
            set -l candidates $lines[3..-1]
            string join \\n -- "$kept"$candidates
        case files
            set -l candidates (__fish_complete_path "$value")
            string join \\n -- "$kept"$candidates
        case folders
            set -l candidates (__fish_complete_directories "$value")
            string join \\n -- "$kept"$candidates
        case hosts
            set -l candidates (__fish_print_hostnames)
            string join \\n -- "$kept"$candidates
        case program
            __fish_complete_command
        case arguments
            complete -C (string join ' ' -- (string escape -- $words[(math $number + 2)..-1]) "$token")
    end
end
complete -c poprun-py -f -a '(__poprun_py_complete)'
"""
