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


def lines(monkeypatch, capfd, *, total, steps, before=0):
    """What stands on stderr after (amount, seconds since the start) each."""
    seconds = iter([0.0, 0.0, *(at for _, at in steps)])
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("puorl.core.progress.time", clock)
    with progress_bar("filter", total=total) as advance:
        advance(before, earlier=True)
        for amount, _ in steps:
            advance(amount, "alpha 0.300")
    out, err = capfd.readouterr()
    assert out == ""
    return err.splitlines()


def test_where_there_is_no_terminal_a_line_every_ten_seconds(capfd, monkeypatch):
    steps = [(40, 5.0), (30, 9.9), (30, 10.0), (20, 19.9), (80, 20.0), (80, 3605.0)]
    assert lines(monkeypatch, capfd, total=400, steps=steps) == [
        "filter: 25%, alpha 0.300, about 0:25 left",  # 60 of 400 in the 5 s since the first piece
        "filter: 50%, alpha 0.300, about 0:19 left",  # 160 in 15 s
        "filter: 70%, alpha 0.300, about 30:00 left",  # 240 in 3,600 s
    ]


def test_compiling_does_not_count_for_the_pace(capfd, monkeypatch):
    # The first piece took a minute, the others a second; notes without work change nothing.
    steps = [(0, 1.0), (10, 61.0), (0, 61.5), (10, 62.0), (10, 71.5)]
    assert lines(monkeypatch, capfd, total=100, steps=steps) == [
        "filter: 10%, alpha 0.300",
        "filter: 30%, alpha 0.300, about 0:37 left",  # 70 to go, 20 in 10.5 s
    ]


def test_what_was_done_before_does_not_count_for_the_pace(capfd, monkeypatch):
    # A resumed run compiles, too: its own first piece says nothing of the pace.
    steps = [(1, 30.0), (1, 42.0)]
    assert lines(monkeypatch, capfd, total=100, steps=steps, before=80) == [
        "filter: 81%, alpha 0.300",
        "filter: 82%, alpha 0.300, about 3:36 left",  # 18 to go, 12 s each
    ]


def test_errors_pass_through():
    with pytest.raises(ZeroDivisionError), progress_bar("working", total=3) as advance:
        advance(1 // 0)
