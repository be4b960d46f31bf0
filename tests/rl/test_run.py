"""Runs in a folder: what is kept, what is refused, and how they go on; kills are elsewhere."""

import dataclasses
import json
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from puorl.core.errors import ConfigError, DataError
from puorl.data.training_set import TrainingSet
from puorl.rl import run as runs
from puorl.rl import trainer
from puorl.rl.policy import Policy
from puorl.rl.run import Job, run

sys.path.insert(0, str(Path(__file__).parent))
import tiny_runs
from tiny_runs import results

MADE = tiny_runs.small("sums")
"""One learner for all tests, so that they share what is compiled."""
LANES = ["all-seed-0", "all-seed-1", "some-seed-0", "some-seed-1"]


@pytest.fixture(scope="module")
def data():
    return tiny_runs.pool()


@pytest.fixture(scope="module")
def job(data):
    return tiny_runs.job(MADE, data=data)


@pytest.fixture(scope="module")
def whole(job, tmp_path_factory):
    """The folder of an unbroken run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder, job)
    return folder


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def record(folder):
    return json.loads((folder / "record.json").read_text())


class Halt(Exception):
    """Ends a run in the middle."""


def halt_at(step, group=0):
    """An ``on_point`` that ends the run after a point of a group."""
    seen = []

    def on_point(point, lanes):
        del lanes
        seen.append(point.step)
        if point.step == step and seen.count(step) == group + 1:
            raise Halt

    return on_point


# --------------------------------------------------------------------------- what a run leaves


def test_a_run_leaves_policies_metrics_and_its_plan(whole, job):
    assert sorted(path.name for path in whole.iterdir()) == sorted(
        ["checkpoints", "metrics.jsonl", "policies", "record.json", "run.json"]
    )
    assert list((whole / "checkpoints").iterdir()) == []
    plan = json.loads((whole / "run.json").read_text())
    assert plan["groups"] == [LANES[:2], LANES[2:]]
    assert (plan["learner"], plan["steps"], plan["point_every"]) == ("sums", 12, 4)
    assert plan["data"] == job.sets["all"].pool.fingerprint
    assert [(line["step"], line["lane"]) for line in lines(whole)] == [
        (step, lane) for group in (LANES[:2], LANES[2:]) for step in (4, 8, 12) for lane in group
    ]
    assert set(lines(whole)[0]) == {"step", "lane", "loss_0", "loss_1", "q"}
    told = record(whole)
    assert [group["lanes"] for group in told["finished"]] == plan["groups"]
    assert (told["stopped"], told["resumed"]) == ({}, [])
    assert {"puorl", "jax", "device"} <= set(told["versions"])


def test_policies_are_those_of_the_trainer_with_their_normaliser(whole, job, data):
    sets = list(job.sets.values())
    work = trainer.prepare(MADE, sets, [job.lanes[name] for name in LANES[2:]])
    *_, last = trainer.train(work, steps=12, point_every=4)
    expected = runs.policies(work, last.train_state, steps=12)
    for name, policy in zip(LANES[2:], expected, strict=True):
        stored = Policy.load(whole / "policies" / f"{name}.safetensors")
        assert stored.fingerprint == policy.fingerprint
        mean, std = data.obs[:90:2].mean(axis=0), data.obs[:90:2].std(axis=0)
        np.testing.assert_allclose(stored.mean, mean, rtol=1e-5)
        np.testing.assert_allclose(stored.scale, std + 1e-5, rtol=1e-5)
        assert stored.metadata["seed"] == int(name[-1])
        assert (stored.metadata["learner"], stored.metadata["steps"]) == ("sums", 12)


def test_a_single_set_goes_without_saying(job, tmp_path):
    alone = dataclasses.replace(job, sets={"data": job.sets["all"]}, seeds={"data": range(3, 5)})
    outcome = run(tmp_path / "run", alone)
    assert list(outcome.policies) == ["seed-3", "seed-4"]


def test_measures_and_sinks_take_part(job, tmp_path):
    taken = []

    class Sink:
        def write(self, step, lane, values):
            taken.append((step, lane, values["return"]))

        def close(self):
            pass

    def measure(step, policies):
        assert all(isinstance(policy, Policy) for policy in policies.values())
        return {name: {"return": step + i / 10} for i, name in enumerate(policies)}

    run(tmp_path / "run", job, measure=measure, sinks=[Sink()])
    assert taken[:3] == [(4, LANES[0], 4.0), (4, LANES[1], 4.1), (8, LANES[0], 8.0)]
    assert [line["return"] for line in lines(tmp_path / "run")] == [each[2] for each in taken]


def test_a_point_can_be_looked_at_while_training_goes_on(job, tmp_path, monkeypatch):
    """The slowest look sees the policies of its own point, and lines stand in order."""
    trained = threading.Semaphore(0)
    stretch = trainer.run_interval

    def count(*args):
        made = stretch(*args)
        trained.release()
        return made

    def measure(step, policies):
        if step < job.steps:
            trained.acquire(timeout=60)  # this stretch
            assert trained.acquire(timeout=60)  # and the next one, which is over by now
            trained.release()
        else:
            trained.acquire(timeout=60)
        return {name: {"sum": float(each.arrays["0.w"].sum())} for name, each in policies.items()}

    monkeypatch.setattr(trainer, "run_interval", count)
    run(tmp_path / "beside", job, measure=measure, while_training=True)
    monkeypatch.undo()

    def plainly(step, policies):
        del step
        return {name: {"sum": float(each.arrays["0.w"].sum())} for name, each in policies.items()}

    run(tmp_path / "plain", job, measure=plainly)
    assert results(tmp_path / "beside") == results(tmp_path / "plain")
    assert lines(tmp_path / "beside") == lines(tmp_path / "plain")


def test_only_the_last_checkpoints_stay(job, tmp_path):
    kept = []

    def on_point(point, lanes):
        del point, lanes
        kept.append(sorted(path.stem for path in tmp_path.rglob("step-*.safetensors")))

    run(tmp_path / "run", dataclasses.replace(job, steps=16), keep=1, on_point=on_point)
    assert [found[0][-2:] for found in kept] == ["04", "08", "12", "16"] * 2
    assert all(len(found) == 1 for found in kept)


# -------------------------------------------------------------------------------- going on


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(("step", "group"), [(4, 0), (12, 0), (8, 1), (12, 1)])
def test_a_run_that_ended_between_two_points_goes_on(job, whole, tmp_path, step, group, beside):
    folder = tmp_path / "run"
    with pytest.raises(Halt):
        run(folder, job, on_point=halt_at(step, group), while_training=beside)
    assert runs.resume_point(folder) == (group, step)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 99, "lane": "later"}\n{"step": 1')  # what a kill may leave behind
    outcome = run(folder, job, resume=True, while_training=beside)
    assert results(folder) == results(whole)
    assert record(folder)["resumed"] == [{"group": group, "step": step, "resumed": "bitwise"}]
    assert list(outcome.policies) == LANES
    assert list((folder / "checkpoints").iterdir()) == []


def test_lanes_that_began_together_stay_together(data, tmp_path):
    apart = tiny_runs.job(MADE, data=data, most_lanes=1)
    run(tmp_path / "unbroken", apart)
    folder = tmp_path / "broken"
    with pytest.raises(Halt):
        run(folder, apart, on_point=halt_at(8))
    run(folder, dataclasses.replace(apart, most_lanes=None), resume=True)
    assert json.loads((folder / "run.json").read_text())["groups"] == [[name] for name in LANES]
    assert results(folder) == results(tmp_path / "unbroken")


def test_a_finished_run_is_returned_without_training(whole, job, monkeypatch):
    monkeypatch.setattr(trainer, "train", None)
    monkeypatch.setattr(trainer, "prepare", None)
    before = results(whole)
    outcome = run(whole, job, resume=True)
    assert list(outcome.policies) == LANES
    assert outcome.stopped == {}
    for name, policy in outcome.policies.items():
        stored = Policy.load(whole / "policies" / f"{name}.safetensors")
        assert policy.fingerprint == stored.fingerprint
    assert results(whole) == before


def test_going_on_with_other_versions_is_told(job, whole, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    earlier = runs._versions() | {"jax": "0.0.1"}
    with monkeypatch.context() as patch:
        patch.setattr(runs, "_versions", lambda: earlier)
        with pytest.raises(Halt):
            run(folder, job, on_point=halt_at(8))
    run(folder, job, resume=True)
    assert record(folder)["resumed"] == [{"group": 0, "step": 8, "resumed": "not bitwise"}]
    assert record(folder)["versions"] == runs._versions()
    assert (folder / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_resuming_where_nothing_is_begins(job, whole, tmp_path):
    run(tmp_path / "a" / "run", job, resume=True)
    assert results(tmp_path / "a" / "run") == results(whole)


# -------------------------------------------------------------------------------- refusals


@pytest.fixture(scope="module")
def begun(job, tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun") / "run"
    with pytest.raises(Halt):
        run(folder, job, on_point=halt_at(4))
    return folder


def other_job(job, what):
    chosen = job.sets["some"]
    changed = {
        "steps was 12, is 16": {"steps": 16},
        "point_every was 4, is 6": {"point_every": 6},
        "growth was 0.9, is 0.5": {"learner": tiny_runs.sums(growth=0.5)},
        "learner was sums, is bc": {"learner": tiny_runs.small("bc")},
        "the run has also some-seed-1; the run has no some-seed-2": {
            "seeds": {"all": (0, 1), "some": (0, 2)}
        },
        "rows of some differs": {
            "sets": job.sets | {"some": dataclasses.replace(chosen, weight=np.ones(45))}
        },
    }
    if what == "data differs":
        return tiny_runs.job(MADE, data=tiny_runs.pool(seed=1))
    return dataclasses.replace(job, **changed[what])


@pytest.mark.parametrize(
    "what",
    [
        "steps was 12, is 16",
        "point_every was 4, is 6",
        "growth was 0.9, is 0.5",
        "learner was sums, is bc",
        "the run has also some-seed-1; the run has no some-seed-2",
        "rows of some differs",
        "data differs",
    ],
)
def test_another_job_is_refused_by_what_differs(begun, job, what):
    before = results(begun)
    with pytest.raises(ConfigError, match=f"the run kept here is another: {what};"):
        run(begun, other_job(job, what), resume=True)
    assert results(begun) == before


@pytest.mark.parametrize(
    "settings",
    [
        {"weight": np.ones(45)},
        {"reward": np.ones(45)},
        {"critic_weight": np.ones(45)},
        {"score": np.ones(45)},
        {"returns": (0.0, 1.0)},
        {"rows": np.arange(1, 91, 2)},
    ],
)
def test_all_that_is_in_a_set_counts(job, settings):
    chosen = job.sets["some"]
    changed = dataclasses.replace(chosen, **settings)
    assert runs.set_fingerprint(changed) != runs.set_fingerprint(chosen)


def test_groups_count_in_a_set(data):
    marks = {
        runs.set_fingerprint(tiny_runs.grouped(data, *args, **kwargs))
        for args, kwargs in (((10,), {}), ((11,), {}), ((10,), {"top": 0.5}))
    }
    assert len(marks) == 3


def test_folders_that_are_not_ours(job, begun, tmp_path):
    (tmp_path / "letter.txt").write_text("dear ...")
    with pytest.raises(DataError, match=r"expected a new or empty folder, or one with run\.json"):
        run(tmp_path, job, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    with pytest.raises(DataError, match="expected a folder, found a file"):
        run(tmp_path / "letter.txt", job)
    with pytest.raises(DataError, match="--resume"):
        run(begun, job)


def test_numbers_that_make_no_sense_leave_no_folder(job, tmp_path):
    with pytest.raises(ConfigError, match="steps: expected a multiple of 2"):
        run(tmp_path / "run", dataclasses.replace(job, steps=3))
    with pytest.raises(ConfigError, match="expected at least one seed"):
        run(tmp_path / "run", dataclasses.replace(job, seeds={"all": (), "some": ()}))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_state_is_told(job, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Halt):
        run(folder, job, on_point=halt_at(4))
    (state,) = folder.rglob("step-*.safetensors")
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(DataError, match="expected a whole state"):
        run(folder, job, resume=True)


# -------------------------------------------------------------------------------- given up


def test_a_lane_that_is_given_up_says_why_and_leaves_the_others_alone(data, whole, tmp_path):
    sets = {
        "all": TrainingSet.whole(data),
        "some": TrainingSet(data, np.arange(0, 90, 2), reward=np.full(45, 3e38)),
    }
    job = Job(MADE, sets, {"all": (0,), "some": (1,)}, steps=12, point_every=8)
    folder = tmp_path / "run"
    outcome = run(folder, job)
    assert list(outcome.policies) == ["all-seed-0"]
    assert list(outcome.stopped) == ["some-seed-1"]
    assert outcome.stopped["some-seed-1"].step == 2
    assert record(folder)["stopped"]["some-seed-1"]["step"] == 2
    assert [path.name for path in (folder / "policies").iterdir()] == ["all-seed-0.safetensors"]
    # Its last line is that of the stretch in which it ended, though the last stretch is shorter.
    found = [(line["step"], line["lane"]) for line in lines(folder)]
    assert found == [(8, "all-seed-0"), (8, "some-seed-1"), (12, "all-seed-0")]
    assert lines(folder)[1]["q"] is None
    ours, expected = (
        Policy.load(place / "policies" / "all-seed-0.safetensors") for place in (folder, whole)
    )
    assert ours.fingerprint == expected.fingerprint
    again = run(folder, job, resume=True)
    assert again.stopped == outcome.stopped
