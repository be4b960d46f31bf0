"""Tasks on partitions: resumed, retried, named, and the same for any number of workers."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path
from puorl.core.tasks import Workers, part_path, run_tasks


@dataclass(frozen=True)
class Write:
    """Write the number; note each try beside it, fail or die where it is told to."""

    fails: tuple[int, ...] = ()
    dies: tuple[int, ...] = ()
    times: int = 1
    slow: float = 0.0

    def __call__(self, number: int, folder: Path) -> dict[str, int]:
        seen = folder / f"tries-{number}"
        with open(seen, "a") as file:
            file.write("x")
        time.sleep(self.slow)
        early = seen.stat().st_size <= self.times
        if number in self.dies and early:
            os.kill(os.getpid(), signal.SIGKILL)
        if number in self.fails and early:
            raise ValueError(f"no {number}")
        with atomic_path(part_path(folder, number, ".txt"), force=True) as part:
            part.write_text(str(number) * 100)
        return {"number": number}


def contents(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.glob("part-*"))}


@pytest.mark.parametrize("number", [1, 3])
def test_all_are_done_whatever_is_lost(tmp_path, number):
    plain = run_tasks(Write(), 5, tmp_path / "plain", Workers(number=1))
    assert plain == [{"number": i} for i in range(5)]
    task = Write(dies=(1, 3), fails=(2,))
    made = run_tasks(task, 5, tmp_path / "lost", Workers(number=number))
    assert made == plain
    assert contents(tmp_path / "lost") == contents(tmp_path / "plain")
    tries = [(tmp_path / "lost" / f"tries-{i}").stat().st_size for i in range(5)]
    assert tries == [1, 2, 2, 2, 1]


def test_what_fails_twice_is_named_and_the_rest_goes_on(tmp_path):
    task = Write(fails=(1, 4), times=2)
    with pytest.raises(DataError, match="2 of 6 partitions failed, the first is rows 1: Value"):
        run_tasks(task, 6, tmp_path, Workers(number=2), describe="rows {}".format)
    assert len(contents(tmp_path)) == 2 * 4
    # Only what is left is done.
    made = run_tasks(task, 6, tmp_path, Workers(number=1))
    assert [each["number"] for each in made] == list(range(6))
    assert (tmp_path / "tries-0").stat().st_size == 1
    assert (tmp_path / "tries-4").stat().st_size == 3


@pytest.mark.parametrize("damage", ["flipped", "lost", "record"])
def test_a_damaged_partition_is_made_again_and_no_other(tmp_path, damage):
    run_tasks(Write(), 4, tmp_path, Workers(number=1))
    before = contents(tmp_path)
    path = part_path(tmp_path, 2, ".json" if damage == "record" else ".txt")
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.unlink() if damage == "lost" else path.write_bytes(held)
    made = run_tasks(Write(), 4, tmp_path, Workers(number=1))
    assert made == [{"number": i} for i in range(4)]
    assert contents(tmp_path) == before
    assert [(tmp_path / f"tries-{i}").stat().st_size for i in range(4)] == [1, 1, 2, 1]


DRIVER = """
from pathlib import Path
from test_tasks import Write
from puorl.core.tasks import Workers, run_tasks
if __name__ == "__main__":
    run_tasks(Write(slow=0.3), 8, Path({folder!r}), Workers({engine!r}, 2))
"""


@pytest.mark.parametrize(
    ("engine", "ending"),
    [("local", signal.SIGKILL), ("local", signal.SIGINT), ("ray", signal.SIGINT)],
)
def test_a_killed_driver_leaves_no_worker_and_is_resumed(tmp_path, engine, ending):
    if engine == "ray":
        pytest.importorskip("ray")
    folder = tmp_path / "run"
    script = tmp_path / "driver.py"
    script.write_text(DRIVER.format(folder=str(folder), engine=engine))
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    driver = subprocess.Popen(
        [sys.executable, script],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    while not list(folder.glob("part-*.json")):
        assert driver.poll() is None
        time.sleep(0.02)
    children = Path(f"/proc/{driver.pid}/task/{driver.pid}/children").read_text().split()
    driver.send_signal(ending)
    driver.wait(20)
    deadline = time.monotonic() + 20
    alive = children
    while alive and time.monotonic() < deadline:
        alive = [pid for pid in children if Path(f"/proc/{pid}/stat").exists()]
        time.sleep(0.02)
    assert children
    assert not alive
    before = {p.name: p.stat().st_mtime_ns for p in folder.glob("part-*.json")}
    assert 1 <= len(before) < 8
    made = run_tasks(Write(slow=0.3), 8, folder, Workers(number=2))
    assert len(made) == 8
    assert {n: (folder / n).stat().st_mtime_ns for n in before} == before


def test_wrong_options(tmp_path):
    with pytest.raises(ConfigError, match="engine"):
        Workers("spark")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="address"):
        Workers(address="auto")
    with pytest.raises(ConfigError, match="threads"):
        Workers(number=0)


def test_ray_gives_the_same(tmp_path):
    pytest.importorskip("ray")
    plain = run_tasks(Write(), 4, tmp_path / "plain", Workers(number=1))
    task = Write(dies=(1,), fails=(2,))
    made = run_tasks(task, 4, tmp_path / "ray", Workers("ray", 2))
    assert made == plain
    assert contents(tmp_path / "ray") == contents(tmp_path / "plain")
    with pytest.raises(DataError, match="the first is partition 1: ValueError: no 1"):
        run_tasks(Write(fails=(1,), times=9), 3, tmp_path / "named", Workers("ray", 2))
    assert len(contents(tmp_path / "named")) == 2 * 2
