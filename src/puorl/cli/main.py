"""The program `puorl`: run the chosen command, and print an error as one line."""

import _thread
import contextlib
import difflib
import io
import os
import signal
import sys
import threading
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from textwrap import indent
from typing import Any

from puorl import __version__
from puorl.core.errors import GOES_ON, PuorlError, machine_fault, printable

USAGE_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
_SMALLER = "take fewer rows, smaller files, or smaller settings"
_NO_DEVICE_MEMORY = "RESOURCE_EXHAUSTED"
"""Part of the message of jax's own error, whose class is not imported here."""


def _summaries(folder: Path) -> dict[str, str]:
    """Read the first line of every module, so that listing commands imports none of them."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        with open(path, encoding="utf-8") as file:
            head, _, summary = file.readline().partition("`: ")
        if head == f'"""`puorl {path.stem}':
            found[path.stem] = summary.strip().rstrip('".')
    return found


COMMANDS = _summaries(Path(__file__).parent)
"""Name of each command to its summary."""


def load_command(name: str) -> Any:
    """Import a command's module and return its dataclass."""
    return getattr(import_module(f"puorl.cli.{name}"), name.capitalize())


def parsing() -> tuple[Any, ...]:
    """Return how the option parser reads commands."""
    import tyro  # takes a tenth of a second, which the overview does not need

    return tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff


def help_text(command: type) -> str:
    """Return a command's docstring, with the further lines of each paragraph indented."""
    # The option parser joins lines into one, except those that begin with a space.
    blocks = cleandoc(command.__doc__ or "").split("\n\n")
    joined = (indent(each, "  ", lambda line: not line.startswith(" ")) for each in blocks)
    return "\n\n".join(each.removeprefix("  ") for each in joined)


def main(argv: list[str] | None = None) -> int:
    """Run one command and return the exit code: 0 done, 2 wrong usage or data, 130 interrupted.

    Args:
        argv: Words after the program's name; the process's own by default.
    """
    if argv is not None:
        return _guarded(argv)
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The terminal's encoding may lack characters of a help text or a file name.
        sys.stdout.reconfigure(errors="replace")
    sys.unraisablehook = _repeat_interrupt
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        from puorl.core.resources import keep_programs

        keep_programs()
    code = _guarded(sys.argv[1:])
    # The work is done: a Ctrl-C while the interpreter leaves would end it without a word.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if code == INTERRUPTED:
        # Threads of jax are still at work, and would crash in the interpreter's own exit.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)
    return code


def _repeat_interrupt(dropped: "sys.UnraisableHookArgs") -> None:
    """Repeat a Ctrl-C that came in a callback of the garbage collector, where Python drops it."""
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        threading.Timer(0.01, _thread.interrupt_main).start()  # at once it would come in here
    else:
        sys.__unraisablehook__(dropped)


def _open_closed_streams() -> None:
    """Open standard streams that the caller closed (>&-): a data file must not take their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))


def _guarded(words: list[str]) -> int:
    """Run one command, and turn what it raises into a line and an exit code."""
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # a closed pipe must raise here, not at interpreter exit
        return code
    except PuorlError as error:
        interrupt = _interrupt_behind(error)
        return _fail(_with_repair(error)) if interrupt is None else _interrupted(interrupt)
    except KeyboardInterrupt as error:
        return _interrupted(error)
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; nothing may be written at exit any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):
            return BROKEN_PIPE  # rich has redirected stdout likewise, and would exit with 1
        raise
    except MemoryError:
        return _fail(f"there is not enough memory for this; {_SMALLER}")
    except Exception as error:
        if isinstance(error, RuntimeError) and _NO_DEVICE_MEMORY in str(error):
            return _fail(f"the device has not enough memory for this; {_SMALLER}")
        if not isinstance(error, OSError) and machine_fault(error) is None:
            raise
        return _fail(_with_repair(error))  # a full disk, a folder without rights


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(_overview())
        return 0
    if words[0] in ("-V", "--version"):
        sys.stdout.write(f"puorl {__version__}\n")
        return 0
    name, *rest = words
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return _fail(f"unknown command {name!r}; {hint}commands: {', '.join(COMMANDS)}")
    return _run(name, rest)


def _run(name: str, words: list[str]) -> int:
    import tyro

    command = load_command(name)
    try:
        chosen = tyro.cli(
            command,
            args=_with_formulas(words),
            prog=f"puorl {name}",
            description=help_text(command),
            config=parsing(),
        )
    except SystemExit as leaving:  # --help (0) or wrong usage (2), which the parser has printed
        if isinstance(leaving.__context__, BrokenPipeError):
            raise
        return int(leaving.code or 0)
    chosen.run()
    return 0


def _with_formulas(words: list[str]) -> list[str]:
    """Join --reward with a formula that begins with a minus, which looks like an option.

    >>> _with_formulas(["--reward", "-abs(x)", "--out", "run"])
    ['--reward=-abs(x)', '--out', 'run']
    """
    joined: list[str] = []
    for word in words:
        is_negative = word.startswith("-") and not word.startswith("--") and word != "-h"
        if joined[-1:] == ["--reward"] and is_negative:
            joined[-1] = f"--reward={word}"
        else:
            joined.append(word)
    return joined


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return (
        "usage: puorl COMMAND [OPTIONS]\n\n"
        "Offline reinforcement learning with domain-unlabelled data.\n\n"
        "commands:\n" + "\n".join(lines) + "\n\n"
        "puorl COMMAND --help shows a command's options; puorl --version the version.\n"
    )


def _with_repair(error: Exception) -> str:
    """Return the message, with what to do about a fault of the machine."""
    text = str(error) or repr(error)
    if machine_fault(error) is None or GOES_ON in text:
        return text
    return f"{text}; no finished file was changed: once repaired, run the same command again"


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Find Ctrl-C among the causes: compiled modules turn it into an ImportError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error


def _interrupted(error: KeyboardInterrupt) -> int:
    sys.stderr.write("; ".join(["puorl: interrupted", *map(str, error.args)]) + "\n")
    return INTERRUPTED


def _fail(message: str) -> int:
    sys.stderr.write(f"puorl: error: {printable(' '.join(message.split()))}\n")
    return USAGE_ERROR
