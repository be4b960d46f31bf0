"""Runs in a folder: what is kept, what is refused, and how they go on; kills are elsewhere."""

import dataclasses
import json
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from puorl.core import files
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import read_json
from puorl.data.training_set import TrainingSet
from puorl.rl import run as runs
from puorl.rl import trainer
from puorl.rl.policy import Policy
from puorl.rl.run import RunSpec, background_task, run

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
def spec(data):
    return tiny_runs.spec_of(MADE, data=data)


@pytest.fixture(scope="module")
def whole(spec, tmp_path_factory):
    """The folder of an unbroken run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(folder, spec)
    return folder


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def record(folder):
    return read_json(folder / "record.json")


class Halt(Exception):
    """Ends a run in the middle."""


def halt_at(step, group=0):
    """An ``on_checkpoint`` that ends the run after a point of a group."""
    seen = []

    def on_checkpoint(point, lanes):
        del lanes
        seen.append(point.step)
        if point.step == step and seen.count(step) == group + 1:
            raise Halt

    return on_checkpoint


# --------------------------------------------------------------------------- what a run leaves


def test_a_run_leaves_policies_metrics_and_its_plan(whole, spec):
    assert sorted(path.name for path in whole.iterdir()) == sorted(
        ["checkpoints", "metrics.jsonl", "policies", "record.json", "run.json"]
    )
    assert list((whole / "checkpoints").iterdir()) == []
    plan = json.loads((whole / "run.json").read_text())
    assert plan["groups"] == [LANES[:2], LANES[2:]]
    assert (plan["learner"], plan["steps"], plan["checkpoint_interval"]) == ("sums", 12, 4)
    assert plan["data"] == spec.sets["all"].pool.fingerprint
    assert [(line["step"], line["lane"]) for line in lines(whole)] == [
        (step, lane) for group in (LANES[:2], LANES[2:]) for step in (4, 8, 12) for lane in group
    ]
    assert set(lines(whole)[0]) == {"step", "lane", "loss_0", "loss_1", "q"}
    told = record(whole)
    assert [group["lanes"] for group in told["finished"]] == plan["groups"]
    assert (told["stopped"], told["resumed"]) == ({}, [])
    assert {"puorl", "jax", "device"} <= set(told["versions"])


def test_policies_are_those_of_the_trainer_with_their_normaliser(whole, spec, data):
    sets = list(spec.sets.values())
    job = trainer.prepare(MADE, sets, [spec.lanes[name] for name in LANES[2:]])
    *_, last = trainer.train(job, steps=12, interval=4)
    expected = trainer.policies(job, last.train_state, steps=12)
    for name, policy in zip(LANES[2:], expected, strict=True):
        stored = Policy.load(whole / "policies" / f"{name}.safetensors")
        assert stored.fingerprint == policy.fingerprint
        mean, std = data.obs[:90:2].mean(axis=0), data.obs[:90:2].std(axis=0)
        np.testing.assert_allclose(stored.mean, mean, rtol=1e-5)
        np.testing.assert_allclose(stored.scale, std + 1e-5, rtol=1e-5)
        assert stored.metadata["seed"] == int(name[-1])
        assert (stored.metadata["learner"], stored.metadata["steps"]) == ("sums", 12)


def test_a_single_set_goes_without_saying(spec, tmp_path):
    alone = dataclasses.replace(spec, sets={"data": spec.sets["all"]}, seeds={"data": range(3, 5)})
    outcome = run(tmp_path / "run", alone)
    assert list(outcome.policies) == ["seed-3", "seed-4"]


def test_measures_and_sinks_take_part(spec, tmp_path):
    taken = []

    class Sink:
        def write(self, step, lane, values):
            taken.append((step, lane, values["return"]))

        def close(self):
            pass

    def measure(previous, step, policies):
        assert all(isinstance(policy, Policy) for policy in policies.values())
        assert step - previous == 4
        return {name: {"return": step + i / 10} for i, name in enumerate(policies)}

    run(tmp_path / "run", spec, evaluate=measure, sinks=[Sink()])
    assert taken[:3] == [(4, LANES[0], 4.0), (4, LANES[1], 4.1), (8, LANES[0], 8.0)]
    assert [line["return"] for line in lines(tmp_path / "run")] == [each[2] for each in taken]


def test_a_point_can_be_looked_at_while_training_goes_on(spec, tmp_path, monkeypatch):
    """The slowest look sees the policies of its own point, and lines stand in order."""
    trained = threading.Semaphore(0)
    stretch = trainer.run_interval

    def count(*args):
        made = stretch(*args)
        trained.release()
        return made

    def measure(previous, step, policies):
        if step < spec.steps:
            trained.acquire(timeout=60)  # this stretch
            assert trained.acquire(timeout=60)  # and the next one, which is over by now
            trained.release()
        else:
            trained.acquire(timeout=60)
        return {name: {"sum": float(each.arrays["0.w"].sum())} for name, each in policies.items()}

    monkeypatch.setattr(trainer, "run_interval", count)
    run(tmp_path / "background", spec, evaluate=measure, in_background=True)
    monkeypatch.undo()

    def plainly(previous, step, policies):
        del previous, step
        return {name: {"sum": float(each.arrays["0.w"].sum())} for name, each in policies.items()}

    run(tmp_path / "plain", spec, evaluate=plainly)
    assert results(tmp_path / "background") == results(tmp_path / "plain")
    assert lines(tmp_path / "background") == lines(tmp_path / "plain")


def test_only_the_last_checkpoints_stay(spec, tmp_path):
    kept = []

    def on_checkpoint(point, lanes):
        del point, lanes
        kept.append(sorted(path.stem for path in tmp_path.rglob("step-*.safetensors")))

    run(tmp_path / "run", dataclasses.replace(spec, steps=16), keep=1, on_checkpoint=on_checkpoint)
    assert [found[0][-2:] for found in kept] == ["04", "08", "12", "16"] * 2
    assert all(len(found) == 1 for found in kept)


# -------------------------------------------------------------------------------- going on


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(("step", "group"), [(4, 0), (12, 0), (8, 1), (12, 1)])
def test_a_run_that_ended_between_checkpoints_is_resumed(
    spec, whole, tmp_path, step, group, background
):
    folder = tmp_path / "run"
    with pytest.raises(Halt):
        run(folder, spec, on_checkpoint=halt_at(step, group), in_background=background)
    assert runs.resume_point(folder) == (group, step)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 99, "lane": "later"}\n{"step": 1')  # what a kill may leave behind
    outcome = run(folder, spec, in_background=background)
    assert results(folder) == results(whole)
    assert record(folder)["resumed"] == [{"group": group, "step": step, "resumed": "bitwise"}]
    assert list(outcome.policies) == LANES
    assert list((folder / "checkpoints").iterdir()) == []


def test_lanes_that_began_together_stay_together(data, tmp_path):
    apart = tiny_runs.spec_of(MADE, data=data, most_lanes=1)
    run(tmp_path / "unbroken", apart)
    folder = tmp_path / "broken"
    with pytest.raises(Halt):
        run(folder, apart, on_checkpoint=halt_at(8))
    run(folder, dataclasses.replace(apart, most_lanes=None))
    assert json.loads((folder / "run.json").read_text())["groups"] == [[name] for name in LANES]
    assert results(folder) == results(tmp_path / "unbroken")


def test_a_finished_run_is_returned_without_training(whole, spec, monkeypatch):
    monkeypatch.setattr(trainer, "train", None)
    monkeypatch.setattr(trainer, "prepare", None)
    before = results(whole)
    outcome = run(whole, spec)
    assert list(outcome.policies) == LANES
    assert outcome.stopped == {}
    for name, policy in outcome.policies.items():
        stored = Policy.load(whole / "policies" / f"{name}.safetensors")
        assert policy.fingerprint == stored.fingerprint
    assert results(whole) == before


def test_a_resumed_run_keeps_its_checkpoint_interval(spec, whole, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Halt):
        run(folder, spec, on_checkpoint=halt_at(4))
    run(folder, dataclasses.replace(spec, checkpoint_interval=6))
    assert results(folder) == results(whole)


def test_a_run_of_the_first_version_is_resumed(data, tmp_path):
    """Its files have other names for the interval, the policy delay and the invocations."""
    made = tiny_runs.small("td3_bc", 12)
    spec = dataclasses.replace(tiny_runs.spec_of(made, data=data), invocation={"paths": ["a"]})
    run(tmp_path / "unbroken", spec)
    folder = tmp_path / "run"
    begun = spec.to_dict()
    begun["point_every"] = begun.pop("checkpoint_interval")
    begun["config"]["policy_every"] = begun["config"].pop("policy_delay")
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(begun | {"version": 1}))
    with pytest.raises(Halt):
        run(folder, spec, on_checkpoint=halt_at(8))
    kept = record(folder)
    kept["asked"] = kept.pop("invocations")
    (folder / "record.json").write_text(json.dumps(kept))
    assert runs.read_spec(folder) == spec.to_dict() | {"version": 1}
    assert runs.read_record(folder)["invocations"] == [{"paths": ["a"]}]
    run(folder, dataclasses.replace(spec, invocation={"paths": ["b"]}))
    assert results(folder) == results(tmp_path / "unbroken")
    assert record(folder)["invocations"] == [{"paths": ["a"]}, {"paths": ["b"]}]
    assert "asked" not in record(folder)


def test_files_that_hold_something_else_are_named(tmp_path):
    assert runs.read_spec(tmp_path) is None
    for name, read in (("run.json", runs.read_spec), ("record.json", runs.read_record)):
        (tmp_path / name).write_text("[]")
        with pytest.raises(DataError, match=f"{name}: expected what puorl wrote"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("name", "steps", "settings", "expected"),
    [
        ("bc", 100, {}, 100),
        ("bc", 12_000, {}, 5_000),
        ("td3_bc", 7, {}, 6),
        ("bc", 100, {"eval_interval": 100}, 100),
        ("bc", 100_000, {"eval_interval": 12_000}, 4_000),
        ("td3_bc", 100_000, {"eval_interval": 7}, 6),
        ("td3_bc", 1_000_000, {"eval_interval": 200_000, "per_eval": 4}, 50_000),
        ("td3_bc", 14, {"eval_interval": 0, "per_eval": 4}, 2),
        ("bc", 60, {"per_eval": 3}, 20),
    ],
)
def test_checkpoints_are_whole_cycles_and_evaluations_fall_on_them(name, steps, settings, expected):
    made = tiny_runs.small(name, steps)
    assert runs.checkpoint_interval(made, steps, **settings) == expected


def test_going_on_with_other_versions_is_told(spec, whole, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    earlier = trainer.versions() | {"jax": "0.0.1"}
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "versions", lambda: earlier)
        with pytest.raises(Halt):
            run(folder, spec, on_checkpoint=halt_at(8))
    run(folder, spec)
    assert record(folder)["resumed"] == [{"group": 0, "step": 8, "resumed": "not bitwise"}]
    assert record(folder)["versions"] == trainer.versions()
    assert (folder / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def test_folders_above_are_made(spec, whole, tmp_path):
    run(tmp_path / "a" / "run", spec)
    assert results(tmp_path / "a" / "run") == results(whole)


# -------------------------------------------------------------------------------- refusals


@pytest.fixture(scope="module")
def begun(spec, tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun") / "run"
    with pytest.raises(Halt):
        run(folder, spec, on_checkpoint=halt_at(4))
    return folder


def test_the_library_itself_locks_the_folder_of_a_run(spec, tmp_path):
    with files.lock(tmp_path / ".run.lock"):  # as another process holds it
        with pytest.raises(DataError, match="another run is filling this folder"):
            run(tmp_path / "run", spec)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("is_finished", [True, False])
def test_metrics_that_were_changed_are_refused(whole, begun, spec, tmp_path, is_finished):
    folder = shutil.copytree(whole if is_finished else begun, tmp_path / "run")
    path = folder / "metrics.jsonl"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"1", b"2", 1))
    with pytest.raises(DataError, match="metrics.jsonl: content hash differs"):
        run(folder, spec)
    path.write_bytes(content)
    run(folder, spec)
    assert results(folder) == results(whole)


def other_spec(spec, what):
    chosen = spec.sets["some"]
    changed = {
        "steps was 12, is 16": {"steps": 16},
        "growth was 0.9, is 0.5": {"learner": tiny_runs.sums(growth=0.5)},
        "learner was sums, is bc": {"learner": tiny_runs.small("bc")},
        "the run has also some-seed-1; the run has no some-seed-2": {
            "seeds": {"all": (0, 1), "some": (0, 2)}
        },
        "rows of some differs": {
            "sets": spec.sets | {"some": dataclasses.replace(chosen, weight=np.ones(45))}
        },
    }
    if what == "data differs":
        return tiny_runs.spec_of(MADE, data=tiny_runs.pool(seed=1))
    return dataclasses.replace(spec, **changed[what])


@pytest.mark.parametrize(
    "what",
    [
        "steps was 12, is 16",
        "growth was 0.9, is 0.5",
        "learner was sums, is bc",
        "the run has also some-seed-1; the run has no some-seed-2",
        "rows of some differs",
        "data differs",
    ],
)
def test_another_spec_is_refused_by_what_differs(begun, spec, what):
    before = results(begun)
    with pytest.raises(ConfigError, match=f"the folder holds another run: {what};"):
        run(begun, other_spec(spec, what))
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
def test_all_that_is_in_a_set_counts(spec, settings):
    chosen = spec.sets["some"]
    changed = dataclasses.replace(chosen, **settings)
    assert runs.set_fingerprint(changed) != runs.set_fingerprint(chosen)


def test_groups_count_in_a_set(data):
    marks = {
        runs.set_fingerprint(tiny_runs.grouped(data, *args, **kwargs))
        for args, kwargs in (((10,), {}), ((11,), {}), ((10,), {"top": 0.5}))
    }
    assert len(marks) == 3


def test_folders_that_are_not_ours(spec, tmp_path):
    (tmp_path / "letter.txt").write_text("dear ...")
    with pytest.raises(DataError, match=r"expected a new or empty folder, or one with run\.json"):
        run(tmp_path, spec)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    with pytest.raises(DataError, match="expected a folder, found a file"):
        run(tmp_path / "letter.txt", spec)


def test_numbers_that_make_no_sense_leave_no_folder(spec, tmp_path):
    with pytest.raises(ConfigError, match="steps: expected a multiple of 2"):
        run(tmp_path / "run", dataclasses.replace(spec, steps=3))
    with pytest.raises(ConfigError, match="expected at least one seed"):
        run(tmp_path / "run", dataclasses.replace(spec, seeds={"all": (), "some": ()}))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_state_is_told(spec, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Halt):
        run(folder, spec, on_checkpoint=halt_at(4))
    (state,) = folder.rglob("step-*.safetensors")
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(DataError, match="expected a whole checkpoint"):
        run(folder, spec)


# -------------------------------------------------------------------------------- given up


def test_a_lane_that_is_given_up_says_why_and_leaves_the_others_alone(data, whole, tmp_path):
    sets = {
        "all": TrainingSet.whole(data),
        "some": TrainingSet(data, np.arange(0, 90, 2), reward=np.full(45, 3e38)),
    }
    spec = RunSpec(MADE, sets, {"all": (0,), "some": (1,)}, 12, checkpoint_interval=8)
    folder = tmp_path / "run"
    outcome = run(folder, spec)
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
    again = run(folder, spec)
    assert again.stopped == outcome.stopped


# -------------------------------------------------------------------------------- background tasks


def test_one_thing_is_done_after_the_other_and_all_at_the_end():
    done, go = [], threading.Event()

    def first():
        assert go.wait(60)
        done.append("first")

    with background_task() as task:
        task.start(first)
        assert done == []
        go.set()
        task.start(lambda: done.append("second"))
        assert done[0] == "first"
    assert done == ["first", "second"]


def test_an_error_is_raised_where_the_next_thing_begins_or_at_the_end():
    def fail():
        raise ValueError("no room")

    with background_task() as task:
        task.start(fail)
        with pytest.raises(ValueError, match="no room"):
            task.start(lambda: None)
    with pytest.raises(ValueError, match="no room"), background_task() as task:
        task.start(fail)


def test_what_was_begun_is_done_even_after_an_error():
    done, go = [], threading.Event()

    def slowly():
        assert go.wait(60)
        done.append("kept")

    def training():
        with background_task() as task:
            task.start(slowly)
            go.set()
            raise KeyError("training")

    with pytest.raises(KeyError):
        training()
    assert done == ["kept"]


def test_of_two_errors_the_earlier_one_is_told():
    def fail():
        raise OSError("disk full")

    def training():
        with background_task() as task:
            task.start(fail)
            raise ValueError("training")

    with pytest.raises(OSError, match="disk full"):
        training()
