import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

sys.path.insert(0, str(Path(__file__).parent))
import small_suite
from small_suite import killed_while_training, numbers, small

from puorl.bench import batch as batches
from puorl.bench import group as groups
from puorl.bench.group import training_id
from puorl.bench.plan import make_plan
from puorl.bench.prepare import SettingData, prepare
from puorl.bench.runner import RunOutcome, run, survey
from puorl.bench.store import Store
from puorl.bench.suites import LearnerChoice, find_suite
from puorl.core.files import lock
from puorl.methods import METHODS, MethodEntry
from puorl.methods.baselines import SharingAll
from puorl.rl import pool as rows_of

PATIENCE = 300.0
"""Seconds after which a process that should have ended is taken to wait for ever."""


def check_bookkeeping(out, plan):
    """Every run has one row; every training was trained once, and its rows agree."""
    rows = Store(out).rows()
    assert Counter(row["run"] for row in rows) == Counter(run.id for run in plan.runs)
    trained = [row["training"] for row in rows if row["same_as"] is None]
    assert len(set(trained)) == len(trained) == len({r.expected_training for r in plan.runs})
    by_run = {row["run"]: row for row in rows}
    for row in rows:
        if row["same_as"] is not None:
            first = by_run[row["same_as"]]
            assert first["same_as"] is None
            for name in ("training", "returns", "curve", "content_hash", "num_rows", "seed"):
                assert row[name] == first[name]
    lanes = [
        lane["training"]
        for path in (out / "groups").glob("*/lanes.json")
        for lane in json.loads(path.read_text())["lanes"]
    ]
    assert sorted(lanes) == sorted(trained)


# ------------------------------------------------------------------------------- the suite smoke


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    out = tmp_path_factory.mktemp("smoke")
    plan = make_plan(find_suite("smoke"), seeds=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUORL_CACHE", str(tmp_path_factory.getbasetemp() / "puorl-cache"))
        done = run(plan, out)
    return out, plan, done


def prepared(out, plan, label):
    """What a method had prepared in the first setting, as it was kept."""
    cell = plan.cells[0]
    data = SettingData.load(cell.setting)
    [choice] = [m for m in cell.methods if m.label == label]
    kept = prepare(out / "prepared", data, choice, seed=0)
    return kept, data.split


def test_smoke_rows_are_complete(smoke):
    out, plan, done = smoke
    assert (done.num_trained, done.num_copied, done.num_failed) == (12, 4, 0)
    check_bookkeeping(out, plan)
    for row in Store(out).rows():
        assert row["error"] is None
        assert len(row["returns"]) == len(row["scores"]) == 2
        assert [step for step, _ in row["curve"]] == [20, 40]
        assert row["setting"]["name"].startswith("hopper/body_mass/ME-")
        assert (row["steps"], row["learner"], row["config"]["hidden"]) == (40, "td3_bc", [16])
        assert {"puorl", "jax", "numpy", "python", "mujoco"} <= set(row["versions"])
        assert row["hardware"]["cores"] == os.cpu_count()
        assert len(row["data"]["others"]) == 1
        assert len(row["data"]["recipes"]) == 2
        assert all(row["data"]["recipes"])
        assert row["seconds"]["lanes"] == 12


def test_smoke_sizes_of_every_method(smoke):
    out, _, _ = smoke
    sizes = {row["method"]: row["num_rows"] for row in Store(out).rows()}
    kept = next(r["filter"]["kept"] for r in Store(out).rows() if r["method"] == "pu")
    assert sizes == {
        "olp": 200,
        "sharing_all": 4_000,
        "dara": 4_000,
        "igdf": 4_000,
        "pu": 200 + kept,
        "oracle": 1_200,
    }


def test_smoke_edits_rewards_of_unlabelled_rows_only(smoke):
    out, plan, _ = smoke
    made, split = prepared(out, plan, "dara")
    own, given = made.set.reward, split.pool.reward[made.set.rows]
    np.testing.assert_array_equal(own[:200], given[:200])
    assert (own[200:] != given[200:]).mean() > 0.9
    for label in ("olp", "sharing_all", "igdf", "pu", "oracle"):
        assert prepared(out, plan, label)[0].set.reward is None


def test_smoke_igdf_keeps_96_of_128(smoke):
    out, plan, _ = smoke
    made, _ = prepared(out, plan, "igdf")
    tables = rows_of.tables(
        [made.set], batch_size=256, normalise_states=True, scale_rewards=False, next_action=False
    )
    assert int(tables.first_draws[0]) == 128
    assert int(tables.num_kept[0] - tables.first_draws[0]) == 96


def test_smoke_says_how_good_the_filter_is(smoke):
    out, plan, _ = smoke
    found = [row["filter"] for row in Store(out).rows() if row["method"] == "pu"]
    assert len({json.dumps(each) for each in found}) == 1  # one filter for both training seeds
    assert found[0]["seed"] == 0
    assert found[0]["preset"] == "default, changed"
    assert found[0]["true_alpha"] == pytest.approx(1_000 / 3_800)
    made, split = prepared(out, plan, "pu")
    truth = split.reveal("benchmark") == 0
    kept = np.isin(np.arange(200, 4_000), made.set.rows)
    assert found[0]["accuracy"] == pytest.approx((kept == truth[200:]).mean())
    assert found[0]["recall"] == pytest.approx(kept[truth[200:]].mean())
    assert found[0]["precision"] == pytest.approx(truth[200:][kept].mean())
    others = [row["filter"] for row in Store(out).rows() if row["method"] != "pu"]
    assert others == [None] * len(others)


def test_smoke_again_does_nothing(smoke):
    out, plan, _ = smoke
    before = (out / "runs.jsonl").read_bytes()
    ahead = survey(plan, out)
    assert (ahead.num_done, ahead.num_trainings) == (16, 0)
    done = run(plan, out)
    assert (done.num_trained, done.num_copied, done.num_failed) == (0, 0, 0)
    assert (out / "runs.jsonl").read_bytes() == before


# ------------------------------------------------------------------- kills, neighbours, failures


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A run of the small suite that nobody disturbed."""
    out = tmp_path_factory.mktemp("unbroken")
    plan = make_plan(small(), seeds=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUORL_CACHE", str(tmp_path_factory.getbasetemp() / "puorl-cache"))
        run(plan, out)
    return out, plan


@pytest.fixture
def program(tmp_path_factory):
    """Starts the small suite in a process of its own; what one compiled, the others need not."""
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.getbasetemp() / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def start(out, pause=0.0):
        words = [sys.executable, small_suite.__file__, str(out), str(pause)]
        return subprocess.Popen(words, env=os.environ | kept, stderr=subprocess.PIPE, text=True)

    return start


def artefacts(out):
    """How far a run is, in files and rows."""
    lines = (out / "runs.jsonl").read_bytes().count(b"\n") if (out / "runs.jsonl").exists() else 0
    points = sum(p.read_text().count("\n") for p in (out / "groups").glob("*/pace.jsonl"))
    return lines + points + len(list(out.glob("prepared/*.json")))


def test_killed_at_any_time_it_ends_as_if_it_had_not_been(unbroken, program, tmp_path):
    reference, plan = unbroken
    chance = random.Random(6)
    killed_at = []
    for _ in range(3):
        before = artefacts(tmp_path)
        process = program(tmp_path, pause=0.2)
        goal = before + chance.randint(1, 6)
        while process.poll() is None and artefacts(tmp_path) < goal:
            time.sleep(0.002)
        time.sleep(chance.random() * 0.2)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed_at.append(artefacts(tmp_path))
    assert killed_at[0] > 0
    last = program(tmp_path)
    _, said = last.communicate(timeout=PATIENCE)
    assert (last.returncode, said) == (0, "")
    check_bookkeeping(tmp_path, plan)
    assert numbers(tmp_path) == numbers(reference)
    # No group is begun twice. A kill between the last row and the mark may leave one unmarked.
    assert len(list((tmp_path / "groups").glob("*/lanes.json"))) == 2
    assert len(list((reference / "groups").glob("*/done.json"))) == 2


def test_a_group_goes_on_from_its_last_checkpoint(unbroken, tmp_path):
    reference, plan = unbroken
    with killed_while_training(after=6):
        run(plan, tmp_path)
    assert not (tmp_path / "runs.jsonl").exists()
    run(plan, tmp_path)
    records = [json.loads(p.read_text()) for p in (tmp_path / "groups").glob("*/run/record.json")]
    assert sorted(r["resumed"] for r in records) == [
        [],
        [{"group": 0, "step": 6, "resumed": "bitwise"}],
    ]
    assert numbers(tmp_path) == numbers(reference)


def test_a_kill_between_two_rows_loses_none_and_writes_none_twice(unbroken, tmp_path, monkeypatch):
    reference, plan = unbroken
    appended = Store.append

    def interrupted(self, row):
        if len(self.rows()) == 4:
            raise KeyboardInterrupt
        appended(self, row)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(plan, tmp_path)
    assert len(Store(tmp_path).rows()) == 4
    run(plan, tmp_path)
    check_bookkeeping(tmp_path, plan)
    assert numbers(tmp_path) == numbers(reference)


def test_a_training_begun_in_a_killed_group_is_not_begun_in_another_cell(unbroken, tmp_path):
    reference, plan = unbroken
    with killed_while_training():
        run(plan, tmp_path)
    # A process that comes by the second cell first: it must leave olp and oracle to the first.
    turned = dataclasses.replace(plan, cells=plan.cells[::-1], runs=plan.runs[::-1])
    run(turned, tmp_path)
    check_bookkeeping(tmp_path, plan)
    assert numbers(tmp_path) == numbers(reference)


def test_a_kill_after_the_last_row_of_a_group_keeps_nobody_waiting(unbroken, tmp_path, monkeypatch):
    reference, plan = unbroken

    def interrupted(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(groups.Group, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(plan, tmp_path)
    assert len(Store(tmp_path).rows()) == 6
    run(plan, tmp_path)
    check_bookkeeping(tmp_path, plan)
    assert numbers(tmp_path) == numbers(reference)


def test_a_killed_group_that_nobody_asks_for_keeps_nobody_waiting(unbroken, tmp_path):
    _, plan = unbroken
    with killed_while_training():
        run(plan, tmp_path)
    # Of the first cell only sharing_all is wanted now, which its group has beside olp and oracle.
    runs = [r for r in plan.runs if r.cell is plan.cells[1] or r.method.name == "sharing_all"]
    done = run(dataclasses.replace(plan, cells=plan.cells[::-1], runs=tuple(runs)), tmp_path)
    assert done.num_failed == 0
    assert {r.id for r in runs} <= set(Store(tmp_path).latest())


def test_two_processes_share_a_store(unbroken, program, tmp_path):
    reference, plan = unbroken
    both = [program(tmp_path, pause=0.1) for _ in range(2)]
    said = [process.communicate(timeout=PATIENCE)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    check_bookkeeping(tmp_path, plan)
    assert numbers(tmp_path) == numbers(reference)


def test_more_seeds_train_only_what_is_new(tmp_path):
    suite = small("olp")
    fewer, more = (make_plan(suite, seeds=seeds) for seeds in (1, 2))
    for plan in (fewer, more):
        done = run(plan, tmp_path)
        assert (done.num_trained, done.num_copied, done.num_failed) == (1, 1, 0)
    check_bookkeeping(tmp_path, more)


def test_a_broken_method_is_rows_with_an_error_and_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "broken", MethodEntry("small_suite.Broken"))
    monkeypatch.setitem(METHODS, "unusable", MethodEntry("small_suite.Unusable"))
    suite = small("olp", "broken", "unusable", "sharing_all", qualities=("ME/ME",))
    plan, told = make_plan(suite, seeds=2), []
    done = run(plan, tmp_path, on_message=told.append)
    assert (done.num_trained, done.num_failed) == (4, 4)
    errors = {(row["method"], row["error"]) for row in Store(tmp_path).rows()}
    assert {(name, error) for name, error in errors if error is None} == {
        ("olp", None),
        ("sharing_all", None),
    }
    texts = {name: error for name, error in errors if error is not None}
    assert texts["broken"] == "prepare: ValueError: this method is broken"
    assert texts["unusable"].startswith("train: ConfigError: first_share: expected rows of both")
    assert len(told) == 2
    failed = next(row for row in Store(tmp_path).rows() if row["method"] == "broken")
    assert (failed["returns"], failed["scores"], failed["training"]) == (None, None, None)
    # Not again, unless asked for; then until it works.
    assert run(plan, tmp_path).num_failed == 0
    with monkeypatch.context() as patch:  # even if the clock is set back
        patch.setattr(batches, "now", lambda: "1970-01-01T00:00:00.000000+00:00")
        assert run(plan, tmp_path, retry=True).num_failed == 4
    monkeypatch.setattr(small_suite.Broken, "prepare", SharingAll.prepare)
    again = run(plan, tmp_path, retry=True)
    # The repaired method's rows are those of sharing_all, so nothing has to be trained.
    assert (again.num_trained, again.num_copied, again.num_failed) == (0, 2, 2)
    assert survey(plan, tmp_path).num_failed == 2


def test_data_that_cannot_be_made_fails_its_cell_alone(tmp_path, monkeypatch):
    def no_rows(setting):
        if setting.quality == "ME/ME":
            raise ValueError("no rows")
        return load(setting)

    load = SettingData.load
    monkeypatch.setattr(SettingData, "load", no_rows)
    done = run(make_plan(small("olp"), seeds=1), tmp_path)
    assert (done.num_trained, done.num_failed) == (1, 1)


@pytest.mark.parametrize(
    "error",
    [
        OSError("disk full"),
        MemoryError("none left"),
        SafetensorError("Error while serializing: No space left on device (os error 28)"),
        RuntimeError("file write failed: errno = 28, error message = 'No space left on device'"),
    ],
    ids=repr,
)
def test_faults_of_the_machine_are_no_rows(tmp_path, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr("puorl.bench.batch.prepare", fails)
    with pytest.raises(type(error)):
        run(make_plan(small("olp"), seeds=1), tmp_path)
    assert Store(tmp_path).rows() == []


def test_a_lane_that_is_given_up_is_a_row_with_an_error(tmp_path, monkeypatch):
    trained = groups.train_group

    def one_lost(group, batch, sets, advance):
        found = trained(group, batch, sets, advance)
        lost = next(iter(found))
        found[lost] = groups.LaneResult(None, [], "given up at step 4: a loss is not finite", {})
        return found

    monkeypatch.setattr(groups, "train_group", one_lost)
    plan = make_plan(small("olp", qualities=("ME/ME",)), seeds=2)
    done = run(plan, tmp_path)
    assert (done.num_trained, done.num_failed) == (1, 1)
    lost, kept = Store(tmp_path).rows()
    assert (lost["error"][:8], lost["returns"], lost["scores"]) == ("given up", None, None)
    assert lost["training"] is not None
    assert kept["error"] is None


def test_the_same_content_is_the_same_training_unless_rewards_are_scaled(tmp_path):
    def distinct(learner):
        plan = make_plan(small(learner=LearnerChoice(learner)), seeds=1)
        found = defaultdict(set)
        for cell in plan.cells:
            data = SettingData.load(cell.setting)
            for each in plan.runs_of(cell):
                made = prepare(tmp_path, data, each.method, seed=0)
                found[each.method.name].add(training_id(each, made))
        return {name: len(ids) for name, ids in found.items()}

    assert distinct("td3_bc") == {"olp": 1, "sharing_all": 2, "oracle": 1}
    # The other qualities have other returns, by which IQL scales all rewards.
    assert distinct("iql") == {"olp": 2, "sharing_all": 2, "oracle": 2}


@pytest.mark.parametrize("change", [{"labelled_fraction": 0.1}, {"split_seed": 1}])
def test_who_is_labelled_does_not_change_the_oracle(tmp_path, change):
    [cell, _] = make_plan(small(), seeds=1).cells
    other = dataclasses.replace(cell, setting=dataclasses.replace(cell.setting, **change))
    found = defaultdict(set)
    for each in (cell, other):
        data = SettingData.load(each.setting)
        for method in each.methods:
            made = prepare(tmp_path, data, method, seed=0)
            found[method.name].add(training_id(each.run(method, 0), made))
            found["expected " + method.name].add(each.shared_key(method))
    counts = {name: len(ids) for name, ids in found.items()}
    assert (counts["olp"], counts["oracle"]) == (2, 1)
    assert (counts["expected olp"], counts["expected oracle"]) == (2, 1)


def test_summary_of_nothing_is_nothing(unbroken):
    out, plan = unbroken
    assert run(plan, out) == RunOutcome(0, 0, 0, pytest.approx(0, abs=60))


HOLD = """
import sys, time
from puorl.core.files import lock
with lock(sys.argv[1]) as is_ours:
    print(is_ours, flush=True)
    time.sleep(600)
"""


def test_a_lock_excludes_others_and_ends_with_its_process(tmp_path):
    one, other = tmp_path / "locks" / "a.lock", tmp_path / "locks" / "b.lock"
    command = [sys.executable, "-c", HOLD, str(one)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "True\n"
        with lock(one) as is_ours:
            assert not is_ours
        with lock(other) as is_ours:
            assert is_ours
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with lock(one) as is_ours:
        assert is_ours
        with lock(one) as again:
            assert not again
    with lock(one, wait=True) as is_ours:
        assert is_ours


def test_a_full_disk_that_was_stored_as_a_result_is_run_again(tmp_path):
    plan = make_plan(small("olp", qualities=("ME/ME",)), seeds=1)
    [only] = plan.runs
    text = "train: SafetensorError: Error while serializing: No space left on device (os error 28)"
    Store(tmp_path).append(batches.failed_row(only, None, text))  # as version 0.1 did
    assert survey(plan, tmp_path).num_trainings == 1
    told = []
    with open(Store(tmp_path).path, "a") as file:
        file.write('{"run": "x", "scores": 3}\n')
    assert run(plan, tmp_path, on_message=told.append).num_trained == 1
    assert len(told) == 1
    assert "line 2" in told[0]
    assert run(plan, tmp_path).num_trained == 0
