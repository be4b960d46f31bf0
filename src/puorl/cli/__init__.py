"""The command line: one module for each command.

A command is a module of this package whose first line is its summary, written as in `puorl split`,
and which has a dataclass of the module's name with a method ``run``. Nothing else lists commands.
"""

from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from textwrap import indent
from typing import Any


def _summaries() -> dict[str, str]:
    """Read the first line of every module, so that listing commands imports none of them."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        with open(path, encoding="utf-8") as file:
            head, _, summary = file.readline().partition("`: ")
        if head == f'"""`puorl {path.stem}':
            found[path.stem] = summary.strip().rstrip('".')
    return found


COMMANDS = _summaries()
"""Name of each command to its summary."""


def load_command(name: str) -> Any:
    """Import a command's module and return its dataclass."""
    return getattr(import_module(f"{__name__}.{name}"), name.capitalize())


def help_text(command: type) -> str:
    """Return a command's docstring, with the further lines of each paragraph indented."""
    # The option parser joins lines into one, except those that begin with a space.
    blocks = cleandoc(command.__doc__ or "").split("\n\n")
    joined = (indent(each, "  ", lambda line: not line.startswith(" ")) for each in blocks)
    return "\n\n".join(each.removeprefix("  ") for each in joined)
