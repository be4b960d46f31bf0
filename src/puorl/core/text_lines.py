"""Lines of a text file, none of them longer than lines are: memory stays bounded, come what may."""

from collections.abc import Iterator
from typing import TextIO

from puorl.core.errors import DataError

LONGEST_LINE = 2**24
"""Characters; a row of 500,000 numbers has fewer."""


def lines_of(file: TextIO, source: str, *, first: int = 1) -> Iterator[str]:
    """The lines from where the file stands, each with its end.

    Args:
        file: Open text.
        source: Its name, for the message.
        first: Number of the first line.

    Raises:
        DataError: A line is longer than `LONGEST_LINE`.
    """
    number = first
    while text := file.readline(LONGEST_LINE + 1):
        if len(text) > LONGEST_LINE:
            kind = "NUL bytes" if text.startswith("\0") else "no line break"
            raise DataError(
                f"{source}: line {number}: expected a line of at most {LONGEST_LINE:,} characters, "
                f"got {kind} in more than that; the file is damaged or not a text table"
            )
        yield text
        number += 1
