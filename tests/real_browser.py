"""A page in a real headless Chromium: how wide it is, what sticks out, what is there."""

import re
import shutil
import subprocess
from html import escape
from typing import NamedTuple

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = (360, 1280)
"""A phone and a screen."""
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

_MEASURE = """<!DOCTYPE html><body><iframe id="f" width="{width}" height="800" srcdoc="{page}">
</iframe><script>
document.getElementById("f").onload = (event) => {{
  const inner = event.target.contentDocument;
  inner.querySelectorAll("details").forEach((each) => {{ each.open = true; }});
  const beyond = [...inner.querySelectorAll("main *")].filter(
    (each) => each.getBoundingClientRect().right > {width} + 0.5);
  const moves = (each) => each !== null && each.tagName !== "MAIN" && (
    inner.defaultView.getComputedStyle(each).overflowX === "auto" || moves(each.parentElement));
  const wide = beyond.filter((each) => !({may_move} && moves(each.parentElement)));
  const drawn = [...inner.querySelectorAll("svg[role=img]")];
  const cut = drawn.filter((svg) => {{
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].some((text) => {{
      const box = text.getBoundingClientRect();
      return box.left < frame.left - 1 || box.right > frame.right + 1;
    }});
  }});
  const shown = [...inner.images].filter((each) => each.naturalWidth > 0);
  document.title = ["measured", inner.documentElement.scrollWidth, wide.length, cut.length,
    drawn.length, shown.length].join(" ");
}};
</script></body>"""


class Seen(NamedTuple):
    """What a browser makes of a page."""

    width: int
    num_wide: int
    """Elements that stick out."""
    num_cut: int
    """Figures with words beyond their edge."""
    num_figures: int
    num_images: int
    """Pictures that were decoded."""
    said: str
    """What the browser wrote, its console included."""


def look(html, width, folder, *, may_move=False):
    """Open a page in a frame of this width; all that can be unfolded is unfolded.

    With ``may_move`` what lies in a box that can be moved sideways does not stick out.
    """
    outer = folder / f"outer-{width}.html"
    outer.write_text(
        _MEASURE.format(width=width, page=escape(html), may_move=str(may_move).lower()),
        encoding="utf-8",
    )
    command = (
        f"{CHROMIUM} --headless=new --no-sandbox --disable-gpu --window-size=1400,900 "
        f"--user-data-dir={folder / 'profile'} --enable-logging=stderr --dump-dom"
    ).split()
    run = subprocess.run(
        [*command, outer.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    found = re.search(r"<title>measured (\d+) (\d+) (\d+) (\d+) (\d+)</title>", run.stdout)
    assert found is not None, run.stderr[-2000:]
    return Seen(*map(int, found.groups()), run.stderr)


def fits(html, width, folder, *, may_move=False):
    """Assert that nothing sticks out or is cut and that the console is silent; what was seen."""
    seen = look(html, width, folder, may_move=may_move)
    assert seen.width <= width
    assert (seen.num_wide, seen.num_cut) == (0, 0)
    assert "CONSOLE" not in seen.said
    return seen
