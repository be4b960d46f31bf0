"""The help, wrapped: the option parser fits its boxes to the terminal, but not what is above."""

import re
import textwrap
from collections.abc import Iterator

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BULLET, _BELOW = "  - ", "    "
_USAGE = "usage: "
_EXAMPLE = "  "


def fitted(text: str, width: int) -> str:
    r"""The same help in lines of at most ``width`` columns; examples stay whole, to be copied.

    >>> print(fitted("Show what is in a file.\n  - one\n    two three", 12), end="")
    Show what is
    in a file.
      - one two
        three
    """
    return "".join(f"{line}\n" for whole in _items(text) for line in _lines(whole, width))


def _items(text: str) -> Iterator[str]:
    """Lines, an item of a list being one."""
    item = ""
    for line in text.splitlines():
        if item and line.startswith(_BELOW):
            item += f" {line.strip()}"
            continue
        if item:
            yield item
        item = line if line.startswith(_BULLET) else ""
        if not item:
            yield line
    if item:
        yield item


def _lines(line: str, width: int) -> list[str]:
    if len(_COLOUR.sub("", line)) <= width:
        return [line]
    indent = ""
    if line.startswith(_BULLET):
        indent = _BELOW
    elif line.startswith(_EXAMPLE):
        return [line]
    elif _COLOUR.sub("", line).startswith(_USAGE):
        indent = " " * len(_USAGE)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
