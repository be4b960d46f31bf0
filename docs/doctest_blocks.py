"""Let the API reference show doctests of docstrings as code, also outside an Examples section."""

import re

import griffe

DOCTEST = re.compile(r"(?m)^>>> .*\n?(?:^(?!\s*$).*\n?)*")


class DoctestBlocks(griffe.Extension):
    """Fence every paragraph that begins with ``>>>``."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring and ">>> " in obj.docstring.value:
            obj.docstring.value = DOCTEST.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
