import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import puorl
from puorl.core import files, hashing
from puorl.core.errors import DataError
from puorl.core.files import atomic_path, check_free, lines_of, read_json, write_json


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
        with atomic_path(tmp_path / "run", force=content == "two", marker="file") as part:
            part.mkdir()
            (part / "file").write_text(content)
        assert (tmp_path / "run" / "file").read_text() == content
    assert names(tmp_path) == ["run"]


def test_force_never_replaces_a_folder_of_other_files(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("precious")
    (tmp_path / "file.npz").write_text("rows")
    for path, marker, says in (
        ("home", "split.json", "a folder of other files"),
        ("home", None, "a folder of other files"),
        ("file.npz", "split.json", "found a file"),
    ):
        entered = []
        with pytest.raises(DataError, match=says):
            with atomic_path(tmp_path / path, force=True, marker=marker) as part:
                entered.append(part)
        assert not entered  # said before any work
    assert (tmp_path / "home" / "letter.txt").read_text() == "precious"
    assert names(tmp_path) == ["file.npz", "home"]


def test_force_replaces_an_empty_folder_and_the_folder_one_stands_in(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    for _ in range(2):
        with atomic_path(tmp_path / "run", force=True, marker="mark") as part:
            part.mkdir()
            (part / "mark").write_text("1")
    monkeypatch.chdir(tmp_path / "run")
    with atomic_path(".", force=True, marker="mark") as part:
        part.mkdir()
        (part / "mark").write_text("2")
    assert (tmp_path / "run" / "mark").read_text() == "2"
    assert names(tmp_path) == ["run"]


def test_a_folder_that_came_meanwhile_is_not_replaced(tmp_path):

    def write():
        with atomic_path(tmp_path / "run", marker="mark") as part:
            part.mkdir()
            (part / "mark").write_text("ours")
            (tmp_path / "run").mkdir()
            (tmp_path / "run" / "mark").write_text("theirs")

    with pytest.raises(DataError, match="already exists"):
        write()
    assert (tmp_path / "run" / "mark").read_text() == "theirs"
    assert names(tmp_path) == ["run"]


def test_the_old_folder_comes_back_when_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mark").write_text("old")
    replace = os.replace

    def fail_for_the_new_one(source, target):
        if target == tmp_path / "run" and source.name != "old":
            raise OSError("no")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_for_the_new_one)

    def write():
        with atomic_path(tmp_path / "run", force=True, marker="mark") as part:
            part.mkdir()

    with pytest.raises(DataError, match="can be written"):
        write()
    assert (tmp_path / "run" / "mark").read_text() == "old"
    assert names(tmp_path) == ["run"]


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="expected a place that can be written"):
        write_json(tmp_path / "file" / "a.json", {})


MOMENTS = {
    "before": "print('now', flush=True); time.sleep(60)",
    "half": "part.write_text('half'); print('now', flush=True); time.sleep(60)",
    "whole": "part.write_text('whole'); print('now', flush=True); time.sleep(60)",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_at_any_moment_keeps_the_old_file(tmp_path, moment):
    (tmp_path / "a.txt").write_text("old")
    code = (
        "import sys, time; from puorl.core.files import atomic_path\n"
        f"with atomic_path(sys.argv[1], force=True) as part:\n    {MOMENTS[moment]}"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "a.txt")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"now\n"
        run.kill()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [n for n in names(tmp_path) if not n.startswith(".")] == ["a.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("milliseconds", range(0, 50, 2))
def test_a_kill_while_writing_again_and_again_leaves_a_whole_split(tmp_path, milliseconds):
    code = (
        "import sys, numpy as np, puorl\n"
        "obs = np.arange(4000.0).reshape(2000, 2)\n"
        "data = puorl.Dataset.from_arrays(obs=obs, action=obs)\n"
        "split = puorl.PUSplit.from_mask(data, labelled=np.arange(1999) < 99)\n"
        "puorl.save(data, sys.argv[1] + '/data.npz')\n"
        "split.save(sys.argv[1] + '/split')\n"
        "print('now', flush=True)\n"
        "while True:\n"
        "    split.save(sys.argv[1] + '/split', force=True)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"now\n"
        time.sleep(milliseconds / 1000)
        run.kill()
    # A folder is replaced in two steps; between them the old one stands whole in the shelter.
    kept = [p for p in (tmp_path / "split", *tmp_path.glob(".split.*.part/old")) if p.exists()]
    data = puorl.load(tmp_path / "data.npz")
    assert len(puorl.PUSplit.load(kept[0], data).labelled) == 99


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
    assert list(json.loads((tmp_path / "a.json").read_text())) == ["b", "a", hashing.HASH]
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


@pytest.mark.parametrize(
    "text", ["", "a", "a\n", "a\nb", "\n\n", "1234567\n", "12345678\n1234567\n"]
)
def test_lines_are_those_of_the_file(text, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 9)
    assert list(lines_of(io.StringIO(text), "a.csv")) == text.splitlines(keepends=True)


@pytest.mark.parametrize(("text", "kind"), [("x" * 30, "no line break"), ("\0" * 30, "NUL bytes")])
def test_a_line_without_end_is_refused_where_it_stands(text, kind, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 9)
    file = io.StringIO(f"a\nb\n{text}")
    with pytest.raises(DataError, match=f"a.csv: line 13: expected a line of at most 9.*{kind}"):
        list(lines_of(file, "a.csv", first=11))
    assert file.tell() == 4 + 10  # no more was read than was needed to know


def test_json_is_verified_by_the_hash_that_it_holds(tmp_path):
    content = {"a": (1, 2), 3: {"b": 0.1}, "text": "é", "none": None}
    path = tmp_path / "a.json"
    write_json(path, content)
    read = {"a": [1, 2], "3": {"b": 0.1}, "text": "é", "none": None}
    assert read_json(path) == read
    whole, digest = path.read_bytes(), hashing.of_settings(read)
    for place in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            with contextlib.suppress(DataError):
                # White space was hit, or the name of the hash, which is then one more key.
                seen = read_json(path)
                assert {k: v for k, v in seen.items() if v != digest} == read
    path.write_text('{"a": 1}')  # as version 0.1 wrote it
    assert read_json(path) == {"a": 1}
    path.write_bytes(whole.replace(b"0.1", b"0.2"))
    with pytest.raises(DataError, match="content hash differs .* the file is damaged; fit again"):
        read_json(path, repair="fit again")


def synced_names(monkeypatch):
    """A list to which the name of everything that is synced will be added."""
    found = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: found.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
    )
    return found


@pytest.mark.parametrize("by_lock", [False, True])
def test_names_of_new_folders_are_synced_too(tmp_path, monkeypatch, by_lock):
    synced = synced_names(monkeypatch)
    if by_lock:
        with files.lock(tmp_path / "a" / "b" / "lock"):
            assert sorted(synced) == ["a", tmp_path.name]
    write_json(tmp_path / "a" / "b" / "c.json", {})
    assert {tmp_path.name, "a", "b", "c.json"} == set(synced)


@pytest.mark.parametrize("is_folder", [False, True])
def test_what_is_renamed_has_been_synced_and_then_its_folder(tmp_path, monkeypatch, is_folder):
    events = synced_names(monkeypatch)

    def replaced(old, new):
        events.append("rename")
        rename(old, new)

    rename = os.replace
    monkeypatch.setattr(os, "replace", replaced)
    with atomic_path(tmp_path / "made") as part:
        if is_folder:
            (part / "inner").mkdir(parents=True)
            (part / "inner" / "a").touch()
        else:
            part.touch()
    end = events.index("rename")
    assert sorted(events[:end]) == (["a", "inner", "made"] if is_folder else ["made"])
    assert events[end + 1 :] == [tmp_path.name]


def test_a_library_that_finds_the_disk_full_is_one_line(tmp_path):
    with pytest.raises(DataError, match=r"a\.npz: expected a place .* No space left on device"):
        with atomic_path(tmp_path / "a.npz"):
            raise RuntimeError("file write failed: errno = 28, No space left on device")
    with pytest.raises(RuntimeError, match="a bug"), atomic_path(tmp_path / "a.npz"):
        raise RuntimeError("a bug")
    assert list(tmp_path.iterdir()) == []


def test_room_is_asked_for_before_a_library_writes(tmp_path):
    code = (
        "import pathlib, resource, sys; from puorl.core.files import reserve\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "reserve(path, 900); assert not path.exists()\n"
        "try: reserve(path, 1100)\n"
        "except OSError as error: print(error, path.exists())\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == "[Errno 27] File too large False\n"


def test_a_folder_that_cannot_be_made_is_refused_at_once(tmp_path, monkeypatch):
    def fail(folder):
        raise FileNotFoundError(2, "No such file or directory", str(folder))  # as in /proc

    monkeypatch.setattr(files, "make_folder", fail)
    with (
        pytest.raises(DataError, match="expected a folder that can be written"),
        files.lock(tmp_path / "a" / "lock"),
    ):
        pass
