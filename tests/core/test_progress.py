import os
import re
import subprocess
import sys

import pytest

from puorl.core.progress import progress_bar

pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")

CODE = """
import time
from puorl.core.progress import progress_bar
with progress_bar("working", total=300, unit="steps", show={show}) as advance:
    for _ in range(3):
        time.sleep(0.15)
        advance(100)
"""


def on_a_terminal(code):
    """What a person would see, without the control codes."""
    ours, theirs = pty.openpty()
    env = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # how Linux says that the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait() == 0
    return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen).decode()


def test_shows_how_far_and_how_fast():
    seen = on_a_terminal(CODE.format(show=True))
    assert "working" in seen
    assert re.search(r"100%\s+[\d,]+ steps/s", seen)


def test_is_silent_when_asked():
    assert on_a_terminal(CODE.format(show=False)) == ""


def test_is_silent_where_there_is_no_terminal(capfd):
    with progress_bar("working", total=3) as advance:
        advance(3)
    assert capfd.readouterr() == ("", "")


def test_errors_pass_through():
    with pytest.raises(ZeroDivisionError), progress_bar("working", total=3) as advance:
        advance(1 // 0)
