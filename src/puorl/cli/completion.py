"""`puorl completion`: a script by which a shell completes commands, options, choices and files.

The script is plain shell: completing starts no Python. What it knows is read from the help of every
command, so that what is shown can be completed, and nothing else.
"""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import tyro

from puorl import __version__
from puorl.bench.suites import suite_names
from puorl.cli.main import COMMANDS, main
from puorl.envs import bodies, domains

_WIDE = "1000"  # columns: the help is read, so none of its lines may be wrapped
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_INDENT = 2  # of an option or argument in the help, be there a frame or not
_NAME = r"--?[A-Za-z][\w-]*"
_OPTION = re.compile(
    rf"(?P<names>{_NAME}(?:, {_NAME})*)(?: (?P<value>\S+))?(?: {{2,}}(?P<about>.*))?"
)
_ARGUMENT = re.compile(r"(?P<value>\S+)(?: {2,}(?P<about>.*))?")
_MEMBER = re.compile(r" +• (?P<name>\S+) +(?P<about>.*)")
_ASIDE = re.compile(r"\s*\((?:required|default: [^)]*)\)")
_FILES = re.compile(r"PATH|FILE|DIR|RESULTS")
_MANY = "..."


class Value(NamedTuple):
    """What may stand after an option, or as an argument."""

    name: str
    words: tuple[str, ...]
    """Known ones; empty where anything goes."""
    files: bool
    many: bool


class Option(NamedTuple):
    """An option of a command."""

    names: tuple[str, ...]
    value: Value | None
    """None for a flag."""
    about: str


class Command(NamedTuple):
    """A command, or a command of a command."""

    words: tuple[str, ...]
    """By which it is called, such as ``("bench", "run")``."""
    about: str
    options: tuple[Option, ...]
    argument: Value | None
    members: tuple["Command", ...]


@dataclass(frozen=True)
class Completion:
    """Print a script by which a shell completes commands, options, choices and files.

    The script is complete in itself and starts no Python. Write it anew after an update of puorl.

    Examples:
      puorl completion bash > ~/.local/share/bash-completion/completions/puorl
      puorl completion zsh > "${fpath[1]}/_puorl"
      puorl completion fish > ~/.config/fish/completions/puorl.fish
      source <(puorl completion bash)
    """

    shell: tyro.conf.Positional[Annotated[Literal["bash", "zsh", "fish"], tyro.conf.arg()]]
    """For which shell."""

    def run(self) -> None:
        """Read the help of every command, and write the script."""
        sys.stdout.write(script(self.shell))


def script(shell: str) -> str:
    """The script for one of bash, zsh and fish."""
    lines = _WRITERS[shell](read_commands())
    return "\n".join(lines) + "\n"


# --------------------------------------------------------------------------- what there is


def read_commands() -> list[Command]:
    """Every command with its options, as its help shows them."""
    return [_read((name,), about) for name, (_, about) in COMMANDS.items()]


def _read(words: tuple[str, ...], about: str) -> Command:
    options: list[Option] = []
    arguments: list[Value] = []
    members: list[Command] = []
    title = ""
    lines = _help(words)
    for number, line in enumerate(lines):
        text = line.strip()
        if text in ("positional arguments", "options", "subcommands") or text.endswith(" options"):
            title = text
        elif member := _MEMBER.fullmatch(line):
            members.append(_read((*words, member["name"]), _sentence(member["about"])))
        elif not title or len(line) - len(line.lstrip()) != _INDENT:
            continue
        elif option := _OPTION.fullmatch(text):
            below = lines[number + 1].strip() if number + 1 < len(lines) else ""
            value = _value(option["value"]) if option["value"] else None
            names = tuple(option["names"].split(", "))
            options.append(Option(names, value, _sentence(option["about"] or below)))
        elif title == "positional arguments" and (argument := _ARGUMENT.fullmatch(text)):
            arguments.append(_value(argument["value"]))
    return Command(words, about, tuple(options), next(iter(arguments), None), tuple(members))


def _help(words: Sequence[str]) -> list[str]:
    """Lines of a command's help without frames and colours."""
    said, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _WIDE
    try:
        with contextlib.redirect_stdout(said):
            main([*words, "--help"])
    finally:
        del os.environ["COLUMNS"]
        if columns is not None:
            os.environ["COLUMNS"] = columns
    plain = _COLOUR.sub("", said.getvalue())
    return [re.sub(r"[│╭╮╰╯─]", " ", line).rstrip() for line in plain.splitlines()]


def _value(shown: str) -> Value:
    """What the help's name for a value stands for."""
    known = {
        "BODY": bodies.names(),
        "DOMAIN": domains.names(),
        "ENV": tuple(f"{body}/{name}" for body in bodies.names() for name in domains.names()),
        "FORMAT": ("hdf5", "npz", "csv", "parquet", "minari"),
        "SUITE": suite_names(),
        "UNIT": ("transition", "episode"),
    }
    name = shown.removesuffix(_MANY)
    choices = tuple(name[1:-1].split(",")) if name.startswith("{") else known.get(name, ())
    label = "choice" if name.startswith("{") else name.lower()
    return Value(label, choices, bool(_FILES.search(name)), shown.endswith(_MANY))


def _sentence(about: str) -> str:
    return _ASIDE.sub("", about).strip().rstrip(".")


def _flat(commands: Sequence[Command]) -> Iterator[Command]:
    for command in commands:
        yield command
        yield from _flat(command.members)


def _names(command: Command) -> list[str]:
    return [name for option in command.options for name in option.names]


# ------------------------------------------------------------------------------------ bash


def _bash(commands: Sequence[Command]) -> Iterator[str]:
    yield f"# bash completion for puorl {__version__}; made by: puorl completion bash"
    yield "_puorl() {"
    yield "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}"
    yield "    local command='' option='' options='' words='' files='' i"
    yield "    # bash takes --option=value for three words"
    yield "    [[ $cur == '=' ]] && cur=''"
    yield "    [[ $prev == '=' ]] && prev=${COMP_WORDS[COMP_CWORD-2]}"
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield "        [[ ${COMP_WORDS[i]} == -* ]] && option=${COMP_WORDS[i]}"
    yield "    done"
    yield "    ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]}"
    groups = "|".join(command.words[0] for command in commands if command.members)
    yield f"    if [[ $command =~ ^({groups})$ ]] && ((COMP_CWORD > 2)); then"
    yield '        command+=" ${COMP_WORDS[2]}"'
    yield "    fi"
    yield "    case $command in"
    yield "        '')"
    yield "            options='-h --help -V --version'"
    yield f"            words='{' '.join(command.words[0] for command in commands)}'"
    yield "            ;;"
    for command in _flat(commands):
        yield f"        '{' '.join(command.words)}')"
        yield f"            options='{' '.join(_names(command))}'"
        yield from (f"            {line}" for line in _bash_values(command))
        yield "            ;;"
    yield "    esac"
    yield "    [[ $cur == -* ]] && words=$options files=''"
    yield "    COMPREPLY=()"
    yield "    if [[ $files ]]; then"
    yield "        compopt -o default 2>/dev/null  # nothing of ours: the shell completes files"
    yield "    else"
    yield '        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")'
    yield "    fi"
    yield "}"
    yield "complete -F _puorl puorl"


def _bash_values(command: Command) -> Iterator[str]:
    """What may stand at the cursor: by the word before it, else by the last option."""
    yield "case $prev in"
    yield from _bash_arms(command.options, many=False)
    yield "    *)"
    yield "        case $option in"
    yield from (f"        {arm}" for arm in _bash_arms(command.options, many=True))
    yield f"            *) {_bash_rest(command)} ;;"
    yield "        esac"
    yield "        ;;"
    yield "esac"


def _bash_arms(options: Sequence[Option], *, many: bool) -> Iterator[str]:
    """Options that take the same share a line."""
    arms: dict[str, list[str]] = {}
    for option in options:
        if option.value is not None and option.value.many == many:
            arms.setdefault(_bash_value(option.value), []).extend(option.names)
    yield from (f"    {'|'.join(names)}) {action} ;;" for action, names in arms.items())


def _bash_value(value: Value) -> str:
    return "files=yes" if value.files else f"words='{' '.join(value.words)}'"


def _bash_rest(command: Command) -> str:
    if command.members:
        return f"words='{' '.join(member.words[-1] for member in command.members)}'"
    return "words=$options" if command.argument is None else _bash_value(command.argument)


# ------------------------------------------------------------------------------------- zsh


def _zsh(commands: Sequence[Command]) -> Iterator[str]:
    yield "#compdef puorl"
    yield f"# zsh completion for puorl {__version__}; made by: puorl completion zsh"
    for command in _flat(commands):
        yield f"{_function(command.words)}() {{"
        yield from _zsh_body(command.options, command.argument, command.members, command.words)
        yield "}"
    yield "_puorl() {"
    flags = (
        Option(("-h", "--help"), None, "show the commands"),
        Option(("-V", "--version"), None, "show the version"),
    )
    yield from _zsh_body(flags, None, commands, ())
    yield "}"
    yield "# As a file of fpath this is the function's body; when sourced, it must be registered."
    yield 'if [[ $funcstack[1] == _puorl ]]; then _puorl "$@"; else compdef _puorl puorl; fi'


def _zsh_body(
    options: Sequence[Option],
    argument: Value | None,
    members: Sequence[Command],
    words: tuple[str, ...],
) -> Iterator[str]:
    specs = [_zsh_option(option) for option in options]
    if members:
        yield '    local curcontext="$curcontext" state line'
        yield "    local -a members"
        yield f"    members=({' '.join(_zsh_member(member) for member in members)})"
        specs += ["'1: :->member'", "'*:: :->rest'"]
    elif argument is not None:
        # Further values of an option count as arguments to zsh.
        several = argument.many or any(option.value and option.value.many for option in options)
        specs.append(_quoted(f"{'*' if several else '1'}:{_zsh_value(argument)}"))
    yield f"    _arguments -C {' '.join(specs)}"
    if members:
        yield "    case $state in"
        yield "        member) _describe command members ;;"
        function = f"{_function(words)}_$line[1]"
        yield f"        rest) (( $+functions[{function}] )) && {function} ;;"
        yield "    esac"


def _zsh_option(option: Option) -> str:
    about = option.about.replace("[", "(").replace("]", ")")
    value = "" if option.value is None else f":{_zsh_value(option.value)}"
    others = f"({' '.join(option.names)})" if len(option.names) > 1 else ""
    return " ".join(_quoted(f"{others}{name}[{about}]{value}") for name in option.names)


def _zsh_value(value: Value) -> str:
    action = "_files" if value.files else f"({' '.join(value.words)})" if value.words else " "
    return f"{value.name}:{action}"


def _zsh_member(command: Command) -> str:
    return _quoted(f"{command.words[-1]}:{command.about}")


def _function(words: Sequence[str]) -> str:
    return "_".join(("_puorl", *words))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# ------------------------------------------------------------------------------------ fish


def _fish(commands: Sequence[Command]) -> Iterator[str]:
    yield f"# fish completion for puorl {__version__}; made by: puorl completion fish"
    yield "function __puorl_at -d 'Whether the words before the cursor begin with these'"
    yield "    set -l before (commandline -opc)"
    yield "    set -e before[1]"
    yield "    test (count $before) -ge (count $argv); or return 1"
    yield "    for i in (seq (count $argv))"
    yield '        test "$before[$i]" = "$argv[$i]"; or return 1'
    yield "    end"
    yield "end"
    yield "function __puorl_just -d 'Whether the words before the cursor are these'"
    yield "    test (count (commandline -opc)) -eq (math 1 + (count $argv)); and __puorl_at $argv"
    yield "end"
    yield "complete -c puorl -f"
    yield "complete -c puorl -n __puorl_just -s h -l help -d 'show the commands'"
    yield "complete -c puorl -n __puorl_just -s V -l version -d 'show the version'"
    yield from _fish_members((), commands)
    for command in _flat(commands):
        yield from _fish_members(command.words, command.members)
        if not command.members:
            yield from _fish_command(command)


def _fish_members(words: tuple[str, ...], members: Sequence[Command]) -> Iterator[str]:
    where = " ".join(("__puorl_just", *words))
    for member in members:
        about = _fish_quoted(member.about)
        yield f"complete -c puorl -n '{where}' -a {member.words[-1]} -d {about}"


def _fish_command(command: Command) -> Iterator[str]:
    start = f"complete -c puorl -n '__puorl_at {' '.join(command.words)}'"
    for option in command.options:
        names = " ".join(_fish_name(name) for name in option.names)
        value = "" if option.value is None else f" -r{_fish_value(option.value)}"
        yield f"{start} {names}{value} -d {_fish_quoted(option.about)}"
    if command.argument is not None:
        yield f"{start}{_fish_value(command.argument)}"


def _fish_value(value: Value) -> str:
    if value.files:
        return " -F"
    return f" -f -a '{' '.join(value.words)}'" if value.words else " -f"


def _fish_name(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_WRITERS: dict[str, Callable[[Sequence[Command]], Iterator[str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
