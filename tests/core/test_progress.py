import os
import re
import subprocess
import sys
from types import SimpleNamespace

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


def test_a_short_job_is_silent_where_there_is_no_terminal(capfd):
    with progress_bar("working", total=3) as advance:
        advance(3)
    assert capfd.readouterr() == ("", "")


def lines(monkeypatch, capfd, *, total, steps):
    """What stands on stderr after (amount, seconds since the start) each."""
    seconds = iter([0.0, *(at for _, at in steps)])
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("puorl.core.progress.time", clock)
    with progress_bar("filter", total=total) as advance:
        for amount, _ in steps:
            advance(amount, "alpha 0.300")
    out, err = capfd.readouterr()
    assert out == ""
    return err.splitlines()


def test_where_there_is_no_terminal_a_line_every_ten_seconds(capfd, monkeypatch):
    steps = [(0, 5.0), (50, 9.9), (50, 10.0), (20, 19.9), (80, 20.0), (80, 3605.0)]
    assert lines(monkeypatch, capfd, total=400, steps=steps) == [
        "filter: 25%, alpha 0.300, about 0:15 left",  # 100 of 400 in the 5 s since the first
        "filter: 50%, alpha 0.300, about 0:15 left",  # 200 in 15 s
        "filter: 70%, alpha 0.300, about 25:43 left",  # 280 in 3,600 s
    ]


def test_what_was_done_before_does_not_count_for_the_pace(capfd, monkeypatch):
    steps = [(80, 12.0), (1, 22.0)]
    assert lines(monkeypatch, capfd, total=100, steps=steps) == [
        "filter: 80%, alpha 0.300",
        "filter: 81%, alpha 0.300, about 3:10 left",  # 19 to go, 10 s each
    ]


def test_errors_pass_through():
    with pytest.raises(ZeroDivisionError), progress_bar("working", total=3) as advance:
        advance(1 // 0)
