import json
import os
import signal
import subprocess
import sys
import time

import pytest

from puorl.core.errors import DataError
from puorl.core.files import atomic_path, check_free, read_json, write_json


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_file_appears_under_its_name_only_when_whole(tmp_path):
    with atomic_path(tmp_path / "a.npz") as part:
        part.write_bytes(b"half")
        assert part.suffix == ".npz"
        assert not (tmp_path / "a.npz").exists()
    assert (tmp_path / "a.npz").read_bytes() == b"half"
    assert names(tmp_path) == ["a.npz"]


def test_failure_leaves_nothing_and_keeps_the_old_file(tmp_path):
    (tmp_path / "a.txt").write_text("old")

    def fail():
        with atomic_path(tmp_path / "a.txt", force=True) as part:
            part.write_text("new")
            raise RuntimeError

    pytest.raises(RuntimeError, fail)
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_nothing_is_overwritten_without_force(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(DataError, match="already exists.*--force"), atomic_path(tmp_path / "a.txt"):
        pass
    assert check_free(tmp_path / "b.txt", force=False) == tmp_path / "b.txt"
    with atomic_path(tmp_path / "a.txt", force=True) as part:
        part.write_text("new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_a_file_that_came_meanwhile_is_not_overwritten(tmp_path):

    def write():
        with atomic_path(tmp_path / "a.txt") as part:
            part.write_text("ours")
            (tmp_path / "a.txt").write_text("theirs")

    pytest.raises(DataError, write)
    assert (tmp_path / "a.txt").read_text() == "theirs"
    assert names(tmp_path) == ["a.txt"]


def test_folders_too(tmp_path):
    for content in ("one", "two"):
        with atomic_path(tmp_path / "run", force=content == "two") as part:
            part.mkdir()
            (part / "file").write_text(content)
        assert (tmp_path / "run" / "file").read_text() == content
    assert names(tmp_path) == ["run"]


def test_a_kill_leaves_no_half_file_under_the_real_name(tmp_path):
    code = (
        "import sys, time; from puorl.core.files import atomic_path\n"
        "with atomic_path(sys.argv[1]) as part:\n"
        "    part.write_text('half'); print('written', flush=True); time.sleep(60)"
    )
    target = tmp_path / "a.txt"
    run = subprocess.Popen([sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline() == b"written\n"
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    run.stdout.close()
    assert not target.exists()
    with atomic_path(target) as part:
        part.write_text("whole")
    assert target.read_text() == "whole"


def test_json_round_trip_and_errors(tmp_path):
    content = {"b": [1, 2.5, None, "ä"], "a": {"x": True}}
    write_json(tmp_path / "a.json", content)
    assert read_json(tmp_path / "a.json") == content
    assert list(json.loads((tmp_path / "a.json").read_text())) == ["b", "a"]
    with pytest.raises(DataError, match="expected a JSON file"):
        read_json(tmp_path / "none.json")
    (tmp_path / "bad.json").write_bytes(b"\xff{")
    with pytest.raises(DataError, match="expected a JSON file"):
        read_json(tmp_path / "bad.json")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "nan.json", {"x": float("nan")})
    assert names(tmp_path) == ["a.json", "bad.json"]


def test_writing_is_quick_enough_to_be_used_everywhere(tmp_path):
    start = time.perf_counter()
    for i in range(20):
        write_json(tmp_path / f"{i}.json", {"i": i})
    assert time.perf_counter() - start < 5
