"""The program `puorl`: finds the command, runs it, and turns its errors into one line."""

import contextlib
import difflib
import io
import os
import shutil
import sys
from importlib import import_module
from inspect import cleandoc
from typing import Any

from puorl import __version__
from puorl.cli.help_text import fitted
from puorl.cli.usage import as_options, one_line
from puorl.core.errors import PuorlError

# Named, not imported: only the chosen command's packages are loaded.
COMMANDS = {
    "demo": ("puorl.cli.demo:Demo", "the whole method at small scale, with a page to look at"),
    "inspect": ("puorl.cli.inspect:Inspect", "show what is in a file, and what is wrong with it"),
    "collect": ("puorl.cli.collect:Collect", "record rows in a simulated domain"),
    "split": ("puorl.cli.split:Split", "hide a few target rows among many others"),
    "filter": ("puorl.cli.filter:Filter", "keep the target's rows, learnt from a few known ones"),
    "train": ("puorl.cli.train:Train", "train policies on rows, offline"),
    "evaluate": ("puorl.cli.evaluate:Evaluate", "run policies in a simulated domain"),
    "report": (
        "puorl.cli.report:Report",
        "tell it all on one page: data, filter, training, result",
    ),
    "bench": ("puorl.cli.bench:Bench", "run the paper's benchmark, report what was found"),
    "doctor": ("puorl.cli.doctor:Doctor", "say what is installed, and what is used"),
    "completion": ("puorl.cli.completion:Completion", "print a script that completes commands"),
}
"""Command to where it is and what it does."""

COMPUTING = ("bench", "demo", "filter", "train")
"""Commands that compute with jax."""

USAGE_ERROR, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
_SMALLER = "take fewer rows, smaller files, or smaller settings"
_NO_DEVICE_MEMORY = "RESOURCE_EXHAUSTED"
"""By this word jax's own error is known, which is not imported for it."""


def main(argv: list[str] | None = None) -> int:
    """Run one command and return the exit code: 0 done, 2 wrong usage or data, 130 interrupted.

    Args:
        argv: Words after the program's name; the process's own by default.
    """
    words = sys.argv[1:] if argv is None else argv
    if argv is None and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without our signs, an odd file name
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # a closed pipe must show here, not at interpreter exit
        return code
    except PuorlError as error:
        return _interrupted() if _by_hand(error) else _complain(as_options(str(error)))
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        # The reader (head, less) has what it wanted; nothing may be written at exit any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):
            return BROKEN_PIPE  # rich has done the same, and would leave with a 1
        raise
    except MemoryError:
        return _complain(f"there is not enough memory for this; {_SMALLER}")
    except RuntimeError as error:
        if _NO_DEVICE_MEMORY not in str(error):
            raise
        return _complain(f"the device has not enough memory for this; {_SMALLER}")
    except OSError as error:  # a full disk, a folder without rights: the user's to repair
        return _complain(str(error))


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
        return _complain(f"unknown command {name!r}; {hint}commands: {', '.join(COMMANDS)}")
    return _run(name, rest)


def _run(name: str, words: list[str]) -> int:
    import tyro  # a tenth of a second that the overview can do without

    module, _, attribute = COMMANDS[name][0].partition(":")
    command: Any = getattr(import_module(module), attribute)
    program, told, said = f"puorl {name}", _Captured(), io.StringIO()
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(said):
            chosen = tyro.cli(
                command,
                args=words,
                prog=program,
                # The whole text: the parser of docstrings would leave the examples out.
                description=cleandoc(command.__doc__),
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as leaving:  # --help (0) or wrong usage (2)
        if leaving.code != 0:
            return _complain(one_line(said.getvalue(), program, words))
        sys.stdout.write(fitted(told.text(), shutil.get_terminal_size().columns))
        return 0
    if name in COMPUTING:
        _wait_for_each_computation()
    chosen.run()
    return 0


class _Captured(io.TextIOWrapper):
    """Holds what is meant for stdout; may have the same colours and signs."""

    def __init__(self) -> None:
        self._held, self._real = io.BytesIO(), sys.stdout
        super().__init__(self._held, encoding=self._real.encoding or "utf-8", errors="replace")

    def isatty(self) -> bool:
        return self._real.isatty()

    def text(self) -> str:
        self.flush()
        return self._held.getvalue().decode(self.encoding)


def _wait_for_each_computation() -> None:
    # On a CPU jax may hang for ever with many computations in flight (jax-ml/jax issue 25861; seen
    # once in the demo). Ours are long: nothing is lost by waiting for each.
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return (
        "usage: puorl COMMAND [OPTIONS]\n\n"
        "Offline reinforcement learning with domain-unlabelled data.\n\n"
        "commands:\n" + "\n".join(lines) + "\n\n"
        "puorl COMMAND --help shows a command's options; puorl --version the version.\n"
    )


def _by_hand(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind it: compiled modules make of it that they cannot be imported."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _interrupted() -> int:
    sys.stderr.write("puorl: interrupted\n")
    return INTERRUPTED


def _complain(message: str) -> int:
    one_line = " ".join(message.split())
    sys.stderr.write(f"puorl: error: {one_line}\n")
    return USAGE_ERROR
