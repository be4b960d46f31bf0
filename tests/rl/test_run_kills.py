"""A kill at any moment costs nothing: in the end all bytes are those of an unbroken run."""

import contextlib
import glob
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from puorl.rl import run as runs
from puorl.rl.run import run

sys.path.insert(0, str(Path(__file__).parent))
import tiny_runs
from tiny_runs import results


@pytest.fixture(scope="module")
def spec():
    return tiny_runs.spec_of(tiny_runs.small("sums"))


@pytest.fixture(scope="module")
def whole(spec, tmp_path_factory):
    """The folder of an unbroken run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder, spec)
    return folder


class Killed(BaseException):
    """Stands for a kill: from now on nothing reaches the disk any more."""


class Disk:
    """Sees every change of a folder, and can die at one of them; Python tells all of them."""

    CHANGES = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"})

    def __init__(self):
        self.folder, self.left, self.seen = None, None, 0
        sys.addaudithook(self._hook)

    def watch(self, folder, dies_at=None):
        self.folder, self.left, self.seen = str(folder), dies_at, 0

    def _hook(self, event, args):
        if self.folder is None or event not in self.CHANGES:
            return
        reading = event == "open" and (args[1] is None or "r" in str(args[1]))
        # Files within a folder that is being removed are told without the folder's name.
        ours = str(args[0]).startswith(self.folder) or event in ("os.remove", "os.rmdir")
        if reading or not ours:
            return
        self.seen += 1
        if self.left is not None and self.seen > self.left:
            raise Killed


@pytest.fixture(scope="module")
def disk():
    made = Disk()
    yield made
    made.folder = None


@pytest.mark.parametrize(
    "number",
    [pytest.param(None, marks=pytest.mark.slow, id="all"), pytest.param(24, id="some")],
)
def test_dying_at_any_change_of_the_folder_changes_nothing(disk, spec, whole, tmp_path, number):
    disk.watch(tmp_path)
    run(tmp_path / "counted", spec)
    changes = disk.seen
    assert changes > 50
    moments = range(changes) if number is None else np.linspace(0, changes - 1, number).astype(int)
    for moment in moments:
        folder = tmp_path / f"at-{moment}"
        disk.watch(tmp_path, int(moment))
        with pytest.raises(Killed):
            run(folder, spec)
        # Once more, soon after it went on; near the end there may be nothing left to do.
        disk.watch(tmp_path, int(moment) % 7)
        with contextlib.suppress(Killed):
            run(folder, spec)
        disk.watch(None)
        run(folder, spec)
        assert results(folder) == results(whole), moment
        assert not list(folder.rglob("*.part")), moment
        assert list((folder / "checkpoints").iterdir()) == [], moment


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Start the program in a process of its own, which is gone when the tests are."""
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    processes = []

    def begin(folder, name, steps, how):
        call = [sys.executable, tiny_runs.__file__, str(folder), name, str(steps), how]
        processes.append(subprocess.Popen(call, env={**os.environ, **settings}))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.wait()


def progress(folder):
    """Something that changes whenever the run does."""
    try:
        size = (folder / "metrics.jsonl").stat().st_size
    except FileNotFoundError:
        size = 0
    # Not Path.glob: folders go while it looks.
    return size, *(
        len(glob.glob(f"{folder}/{where}")) for where in ("checkpoints/*/*", "policies/*")
    )


def kill_in_a_while(process, folder, rng, changes):
    """Kill it after some changes and a little longer; False if it ended before."""
    last, seen, wanted = progress(folder), 0, rng.randrange(changes)
    deadline = time.monotonic() + 300
    while process.poll() is None:
        now = progress(folder)
        seen, last = seen + (now != last), now
        if seen >= wanted and now != (0, 0, 0):
            time.sleep(rng.choice([0.0, rng.uniform(0, 0.002), rng.uniform(0, 0.05)]))
            process.send_signal(signal.SIGKILL)
            return process.wait() == -signal.SIGKILL
        assert time.monotonic() < deadline, "waited in vain"
    assert process.returncode == 0
    return False


@pytest.mark.parametrize(
    ("name", "steps", "kills", "how"),
    [
        ("sums", 40, 3, "plain"),
        ("sums", 40, 3, "background"),
        pytest.param("td3_bc", 400, 20, "plain", marks=pytest.mark.slow),
        pytest.param("td3_bc", 400, 20, "background", marks=pytest.mark.slow),
        pytest.param("td7", 400, 20, "plain", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(
    start, tmp_path, name, steps, kills, how
):
    spec = tiny_runs.spec_of(tiny_runs.small(name, steps), steps=steps)
    unbroken = tmp_path / "unbroken"
    run(unbroken, spec)
    rng = random.Random(f"kills of {name}")
    killed = []
    while len(killed) < kills:  # in one run after the other, if one ends too soon
        broken = tmp_path / f"broken-{len(killed)}"
        while len(killed) < kills:
            process = start(broken, name, steps, how)
            if not kill_in_a_while(process, broken, rng, changes=steps // kills):
                break
            killed.append(runs.resume_point(broken))
        run(broken, spec)
        assert results(broken) == results(unbroken)
    logging.getLogger(__name__).info("groups and updates behind it when killed: %s", killed)
    assert len({*killed}) > kills // 2, killed
