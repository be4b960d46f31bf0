import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from puorl.bench.plan import make_plan, missing
from puorl.bench.settings import settings_id
from puorl.bench.store import FILE, Store
from puorl.bench.suites import find_suite
from puorl.core.errors import ConfigError, DataError


def row(run, **more):
    return {"run": run, "error": None, **more}


def test_an_absent_store_is_empty_and_reading_makes_nothing(tmp_path):
    store = Store(tmp_path / "results")
    assert (store.rows(), store.latest(), store.find("a")) == ([], {}, None)
    assert not (tmp_path / "results").exists()


def test_rows_come_back_as_they_were_added(tmp_path):
    store = Store(tmp_path)
    rows = [row("a", scores=[0.1, 1e-300]), row("b", text="line\nbreak, ümlaut, \ud800")]
    for each in rows:
        store.append(each)
    assert store.rows() == Store(tmp_path).rows() == rows
    assert (tmp_path / FILE).read_bytes().count(b"\n") == 2


def test_a_jsonl_file_is_the_store_itself(tmp_path):
    Store(tmp_path / "core.jsonl").append(row("a"))
    assert (tmp_path / "core.jsonl").is_file()
    assert Store(tmp_path / "core.jsonl").find("a") == row("a")


def test_the_last_row_without_error_counts_else_the_last(tmp_path):
    store = Store(tmp_path)
    for each in (
        row("repaired", error="killed"),
        row("repaired", n=1),
        row("failed later", n=1),
        row("failed later", error="killed"),
        row("done twice", n=1),
        row("done twice", n=2),
        row("failed twice", error="first"),
        row("failed twice", error="second"),
    ):
        store.append(each)
    latest = store.latest()
    assert latest["repaired"]["n"] == latest["failed later"]["n"] == 1
    assert latest["done twice"]["n"] == 2
    assert latest["failed twice"]["error"] == "second"
    assert store.find("failed later") == latest["failed later"]
    assert len(store.rows()) == 8


def test_a_torn_last_line_is_skipped_with_a_note_and_not_glued_to_the_next(tmp_path):
    store = Store(tmp_path)
    store.append(row("a"))
    with open(store.path, "ab") as file:
        file.write(b'{"run": "torn", "sco')
    assert [r["run"] for r in store.rows()] == ["a"]
    assert store.read().notes == ["runs.jsonl: the last line is not whole, it is skipped"]
    before = store.path.read_bytes()
    store.append(row("b"))
    assert store.path.read_bytes().startswith(before)
    for reader in (store, Store(tmp_path)):
        assert [r["run"] for r in reader.rows()] == ["a", "b"]
        assert reader.read().notes == ["runs.jsonl: line 2 is not a whole row, it is skipped"]


def test_a_row_that_only_lacks_its_line_end_is_not_lost(tmp_path):
    store = Store(tmp_path)
    store.append(row("a"))
    os.truncate(store.path, store.path.stat().st_size - 1)
    assert store.rows() == []
    store.append(row("b"))
    assert [r["run"] for r in store.rows()] == ["a", "b"]


@pytest.mark.parametrize(
    "line", [b"[1]", b"null", b'{"no": "id"}', b'{"run": 3}', b"\xff\xfe", b"{"]
)
def test_lines_that_are_no_rows_are_noted(tmp_path, line):
    store = Store(tmp_path)
    store.path.write_bytes(b"\n" + line + b'\n{"run": "a"}\n')
    assert [r["run"] for r in store.rows()] == ["a"]
    assert store.read().notes == ["runs.jsonl: line 2 is not a whole row, it is skipped"]


def test_a_reader_sees_what_others_add_and_a_replaced_file(tmp_path):
    reader, writer = Store(tmp_path), Store(tmp_path)
    writer.append(row("a"))
    assert len(reader.rows()) == 1
    writer.append(row("b"))
    assert len(reader.rows()) == 2
    reader.path.write_text('{"run": "c"}\n')
    assert [r["run"] for r in reader.rows()] == ["c"]
    reader.path.unlink()
    assert reader.rows() == []


def test_many_processes_lose_nothing_and_tear_nothing(tmp_path):
    code = (
        "import sys; from puorl.bench.store import Store\nstore = Store(sys.argv[1])\n"
        "for n in range(25):\n"
        "    store.append({'run': f'{sys.argv[2]}-{n}', 'error': None, 'x': 'y' * 5000})"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    writers = [subprocess.Popen([*command, str(name)]) for name in range(4)]
    assert [each.wait() for each in writers] == [0] * 4
    contents = Store(tmp_path).read()
    assert contents.notes == []
    assert sorted(r["run"] for r in contents.rows) == sorted(
        f"{name}-{index}" for name in range(4) for index in range(25)
    )


def test_a_killed_writer_leaves_a_store_that_goes_on(tmp_path):
    code = (
        "import sys; from puorl.bench.store import Store\nstore, n = Store(sys.argv[1]), 0\n"
        "while True:\n    store.append({'run': str(n), 'error': None, 'x': 'y' * 50000}); n += 1"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    while len(Store(tmp_path).rows()) < 3:
        assert writer.poll() is None
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    done = [r["run"] for r in Store(tmp_path).rows()]
    Store(tmp_path).append(row("after"))
    assert [r["run"] for r in Store(tmp_path).rows()][-1] == "after"
    assert done == [str(n) for n in range(len(done))]


@pytest.mark.parametrize("bad", [{}, {"run": ""}, {"run": 3}])
def test_a_row_without_id_is_refused(tmp_path, bad):
    with pytest.raises(ConfigError, match="expected a text under 'run'"):
        Store(tmp_path).append(bad)


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}])
def test_what_is_not_json_is_refused_and_nothing_is_written(tmp_path, value):
    store = Store(tmp_path)
    with pytest.raises(ConfigError, match="row a: expected JSON values"):
        store.append(row("a", value=value))
    assert not store.path.exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="expected a file that can be written"):
        Store(tmp_path / "file").append(row("a"))
    (tmp_path / FILE).mkdir()
    with pytest.raises(DataError, match="expected a readable file"):
        Store(tmp_path).rows()


def test_the_disk_taking_a_part_is_an_error(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.append(row("a"))
    whole = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: whole(handle, data[:5]))
    with pytest.raises(DataError, match="only a part"):
        store.append(row("b"))
    monkeypatch.undo()
    store.append(row("b"))
    assert [r["run"] for r in store.rows()] == ["a", "b"]
    assert json.loads(store.path.read_bytes().splitlines()[-1])["run"] == "b"


def test_the_first_row_syncs_the_name_of_its_file(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}"))
    )
    store = Store(tmp_path / "new")
    store.append(row("a"))
    assert synced == [str(tmp_path), str(store.path), str(store.path.parent)]
    store.append(row("b"))
    assert synced[3:] == [str(store.path)]


ROWS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize(
    ("suite", "folder", "num_runs", "num_missing"),
    [
        ("core", "paper", 240, 0),
        ("paper", "paper", 2340, 225),
        ("half", "half", 40, 30),
        ("control", "control", 25, 0),
    ],
)
def test_stored_runs_are_done(suite, folder, num_runs, num_missing):
    plan = make_plan(find_suite(suite), seeds=5)
    left = missing(plan.runs, Store(ROWS / folder).latest())
    assert (len(plan.runs), len(left)) == (num_runs, num_missing)


def test_ids_of_runs_and_trainings_are_those_of_version_0_1_0():
    plan = make_plan(find_suite("core"), seeds=1)
    latest = Store(ROWS / "paper").latest()
    for run in plan.runs:
        row = latest[run.id]
        assert row["setting"] == run.cell.setting.to_dict()
        assert (row["method_settings"], row["config"]) == (run.method.all_settings, run.cell.config)
        content = {"content": row["content_hash"], "returns": None, "seed": run.seed}
        assert row["training"] == settings_id({**content, **run.cell.training})


def test_old_names_are_read_as_new_ones_and_the_file_stays(tmp_path):
    old = {"run": "a", "error": None, "setting": {"labelled_share": 0.01, "target_share": 0.3}}
    old |= {"config": {"policy_every": 2}, "about": {"kept_share": 0.5}, "content": "02cc"}
    store = Store(tmp_path)
    store.path.write_text(json.dumps(old) + "\n")
    assert store.rows() == [
        {
            "run": "a",
            "error": None,
            "setting": {"labelled_fraction": 0.01, "target_fraction": 0.3},
            "config": {"policy_delay": 2},
            "metadata": {"kept_fraction": 0.5},
            "content_hash": "02cc",
        }
    ]
    assert json.loads(store.path.read_text()) == old


def test_a_damaged_row_is_skipped_and_told(tmp_path):
    store = Store(tmp_path)
    for name in "abc":
        store.append(row(name) | {"scores": [98.3]})
    whole = store.path.read_bytes()
    start = whole.index(b"\n") + 1
    for place in range(start, whole.index(b"\n", start)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << (place % 8)
        store.path.write_bytes(flipped)
        found = Store(tmp_path).read()
        names = [each["run"] for each in found.rows]
        if "b" in names:  # the name of the hash was hit, the content was not
            assert found.rows[1]["scores"] == [98.3]
        else:
            assert names == ["a", "c"]
            assert "skipped" in found.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        '{"run": "x", "scores": 3}',
        '{"run": "x", "scores": [true]}',
        '{"run": "x", "error": {"a": 1}}',
        '{"run": "x", "setting": [1]}',
        '{"run": "x", "curve": [3]}',
        '{"run": "x", "seconds": {"group": "1"}}',
        '{"run": "x", "steps": 1e999}',
        '{"run": "x", "config": ' + '{"a":' * 400 + "1" + "}" * 401,
        '{"run": "x", "config": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=lambda text: text[:40],
)
def test_rows_of_another_shape_are_skipped(tmp_path, text):
    store = Store(tmp_path)
    store.append(row("a"))
    with open(store.path, "a") as file:
        file.write(text + "\n")
    store.append(row("b"))
    found = Store(tmp_path).read()
    assert [each["run"] for each in found.rows] == ["a", "b"]
    assert len(found.notes) == 1
