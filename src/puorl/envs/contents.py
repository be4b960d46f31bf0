"""What the recipes of the published datasets gave where they were first made.

Another machine may differ in the last bits and grow apart from there. Then the same recipe has
another content, and whoever compares results should know: `compare` says so.
"""

import json
import logging
from functools import cache
from importlib.resources import files

_log = logging.getLogger(__name__)


def compare(recipe: str, content: str) -> str | None:
    """A sentence if this recipe is known and its content was another; it is logged too."""
    expected = recorded().get(recipe)
    if expected is None or expected == content:
        return None
    note = (
        f"content {content[:12]} differs from the recorded {expected[:12]} of recipe "
        f"{recipe[:12]}: this machine's last bits are others; statistics should agree"
    )
    _log.warning("%s", note)
    return note


@cache
def recorded() -> dict[str, str]:
    """Recipe to content, as shipped with the package (benchmarks/behaviour/draw.py writes it)."""
    return json.loads((files("puorl.envs") / "contents.json").read_text(encoding="utf-8"))
