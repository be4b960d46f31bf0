"""Inputs of `puorl train`, its progress and its trackers."""

import dataclasses
import json
import re
import types

import numpy as np
import pytest
from train_rows import train_rows, words

import puorl
from puorl.cli.main import main
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import write_json
from puorl.core.run_folder import FilterSettings, KeptRows
from puorl.data.episodes import return_range
from puorl.data.training_files import read_training_set
from puorl.rl import learner, metrics, run
from puorl.rl.metrics import Tracker
from puorl.rl.run import TrainProgress
from puorl.rl.settings import parse_settings
from puorl.rl.trainer import Progress


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch):
    monkeypatch.setattr(run, "CHECKPOINT_INTERVAL", 20)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    puorl.save(train_rows(), "rows.npz")
    return tmp_path


def filter_folder(folder, kept, *, mode="hard", returns=(-3.0, 5.0), **arguments):
    """What `puorl filter` leaves, as far as training reads it."""
    puorl.save(kept, folder / "kept.npz")
    write_json(folder / "model" / "filter.json", {})
    settings = FilterSettings(
        arguments={"paths": ["logs.npz"], "mode": mode, **arguments},
        versions={},
        fingerprints={},
        kept=KeptRows("kept.npz", len(kept), kept.fingerprint),
        returns=returns,
    )
    write_json(folder / "settings.json", dataclasses.asdict(settings))
    return folder


def test_kept_rows_that_are_not_those_of_the_filter(here):
    filter_folder(here / "hard", train_rows())
    puorl.save(train_rows(seed=1), here / "hard" / "kept.npz", force=True)
    with pytest.raises(DataError, match="kept.npz: expected the 300 rows that the filter kept"):
        read_training_set(["hard"])


def test_a_formula_replaces_the_reward_of_kept_rows(here):
    filter_folder(here / "hard", train_rows())
    made = read_training_set(["hard"], reward="-abs(reward) - 1")
    np.testing.assert_allclose(made.dataset.reward, -np.abs(train_rows().reward) - 1, rtol=1e-6)
    assert made.returns is None  # those of the filter's settings are of other rewards


def test_a_column_becomes_the_reward_of_kept_rows(here):
    kept = train_rows(reward=None, columns={"kpi": np.arange(300.0), "name": np.array(["a"] * 300)})
    filter_folder(here / "units", kept, unit="column:name")
    made = read_training_set(["units"], reward="kpi")
    np.testing.assert_array_equal(made.dataset.reward, np.arange(300.0))
    assert made.returns == return_range([made.dataset.rows])  # of whole episodes
    for name, said in (
        ("kpj", "unknown name .kpj.; known columns: kpi"),
        ("name", "expected numbers"),
    ):
        with pytest.raises((DataError, ConfigError), match=f"kept.npz: --reward: .*{said}"):
            read_training_set(["units"], reward=name)


def test_the_name_that_the_reward_had_before_the_filter_is_known(here):
    filter_folder(here / "hard", train_rows(), data={"reward": "gain"})
    for name in ("gain", "reward"):
        assert read_training_set(["hard"], reward=name).returns == (-3.0, 5.0)
    with pytest.raises(ConfigError, match="gian"):
        read_training_set(["hard"], reward="gian")


def test_a_formula_may_begin_with_a_minus(here):
    filter_folder(here / "units", train_rows(reward=None, columns={"kpi": np.arange(300.0)}))
    assert main(words("--reward", "-abs(kpi - 5)", data="units")) == 0
    assert main(words("--reward", "-kpi", data="rows.npz", out="none")) == 2  # no such column


def test_only_bc_learns_without_rewards(here, capsys):
    puorl.save(train_rows(reward=None), "bare.npz")
    assert main(words("--learner", "iql", data="bare.npz", out="none")) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "iql: expected rows with a reward" in error
    assert "the learner bc, which needs none" in error
    assert main(words(data="bare.npz")) == 0
    assert "no rewards: bc copies the actions of all rows" in capsys.readouterr().out
    with_rewards = puorl.train("bc", train_rows(), steps=60, hidden=(16, 16), batch_size=16)
    without = puorl.Policy.load("run/policies/seed-0.safetensors")
    obs = train_rows().obs[:5]
    np.testing.assert_allclose(without.act(obs), with_rewards.act(obs), atol=1e-5)


@pytest.mark.parametrize("file", ["../rows.npz", "/etc/passwd", "", "..", "a/b.npz"])
def test_kept_rows_outside_the_folder(here, file):
    filter_folder(here / "hard", train_rows())
    path = here / "hard" / "settings.json"
    content = json.loads(path.read_text())
    del content["file_hash"]
    content["kept"]["file"] = file
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="settings.json: .*kept.file: expected a name inside"):
        read_training_set(["hard"])


def test_weights_count_only_in_the_mode_soft(here):
    weight = np.linspace(0, 1, 300)
    weighted = puorl.Dataset(train_rows().rows, {"weight": weight}, train_rows().provenance)
    soft = filter_folder(here / "soft", weighted, mode="soft")
    hard = filter_folder(here / "hard", weighted, returns=None)
    puorl.save(weighted, "plain.npz")

    def read(*paths):
        return read_training_set([str(p) for p in paths])

    np.testing.assert_array_equal(read(soft).weight, weight.astype(np.float32))
    assert read(soft).returns == (-3.0, 5.0)
    assert read(hard).weight is None
    assert read(hard).returns is None
    assert read("plain.npz").weight is None
    low, high = return_range([train_rows().rows])
    assert read("plain.npz").returns == (low, high)
    both = read(soft, "plain.npz")
    assert both.weight.tolist() == [1.0] * 300 + weight.astype(np.float32).tolist()
    assert both.returns == (min(low, -3.0), max(high, 5.0))
    assert len(read("*rd", soft)) == 600
    with pytest.raises(DataError, match="named twice"):
        read(soft, soft / "kept.npz")
    filter_folder(here / "bare", train_rows(), mode="soft")
    with pytest.raises(DataError, match="expected the column weight"):
        read("bare")
    write_json(here / "bare" / "settings.json", {}, force=True)
    with pytest.raises(DataError, match="settings.json: expected what puorl wrote"):
        read("bare")


def test_the_following_action_is_added_where_it_is_needed(here):
    assert read_training_set(["rows.npz"]).pool.next_action is None
    chosen = read_training_set(["rows.npz"], next_action=True)
    action = chosen.pool.action
    np.testing.assert_array_equal(chosen.pool.next_action[:49], action[1:50])
    assert np.isnan(chosen.pool.next_action[49]).all()


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("iql", ["gamma=0.9", "hidden=64,32"], {"gamma": 0.9, "hidden": (64, 32)}),
        ("iql", ["layer_norm=False"], {"layer_norm": False}),
        ("iql", ["layer-norm=yes", "batch_size=1e3"], {"layer_norm": True, "batch_size": 1000}),
        ("cql", ["init=lecun", "log_std_offset=-2"], {"init": "lecun", "log_std_offset": -2.0}),
        ("bc", [], {}),
    ],
)
def test_settings_have_the_type_of_their_field(name, given, expected):
    found = parse_settings(name, given)
    assert found == expected
    assert [type(v) for v in found.values()] == [type(v) for v in expected.values()]
    assert learner.make(name, num_steps=10, **found).config.batch_size > 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["gamma=much"], "--set gamma: expected a number such as 0.5 or 3e-4, got 'much'"),
        (["gamma=nan"], "--set gamma: expected a number"),
        (["gamma=1"], "--set gamma: expected 0 or more and less than 1"),
        (["layer_norm=2"], "--set layer_norm: expected true or false, got '2'"),
        (["batch_size=0.5"], "--set batch_size: expected a whole number"),
        (["batch_size=0"], "--set batch_size: expected 1 or more"),
        (["hidden=8,"], "--set hidden: expected a whole number"),
        (["gamma=0.9", "gamma=0.8"], "--set: expected gamma once, got it twice"),
        (["gama=0.9"], "got 'gama'; did you mean gamma?"),
        (["zzz=1"], "got 'zzz'"),
    ],
)
def test_wrong_settings_are_named(given, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse_settings("iql", given)


def test_what_was_done_before_counts_and_the_next_group_begins_at_zero(tmp_path, monkeypatch):
    spec = {"learner": "bc", "config": {}, "steps": 100, "data": "0", "point_every": 20}
    write_json(tmp_path / "run.json", spec | {"groups": [["a", "b"], ["c"]]})
    write_json(tmp_path / "record.json", {"finished": [{}], "stopped": {}, "resumed": []})
    state = tmp_path / "checkpoints" / "group-1" / "step-0000000040.safetensors"
    state.parent.mkdir(parents=True)
    state.touch()
    told, totals = [], []

    class Bar:
        def __init__(self, *_, total, **__):
            totals.append(total)

        def __enter__(self):
            return lambda amount, note="", earlier=False: told.append((amount, note, earlier))

        def __exit__(self, *_):
            pass

    monkeypatch.setattr("puorl.rl.run.progress_bar", Bar)
    progress = TrainProgress(tmp_path, types.SimpleNamespace(steps=100))
    assert (progress.resumed_step, progress.logged_until) == (40, None)
    with progress.bar():
        for step in (60, 80, 100, 20):
            progress.on_checkpoint(Progress(step, None, [], (), 0.5), 3)
    assert totals == [200]
    assert told[0] == (140, "", True)
    assert told[1:] == 4 * [(20, "40 steps/s per lane, 3 lanes", False)]
    assert progress.pace == 40


def test_a_resumed_run_goes_on_in_the_trackers_own_run(tmp_path, monkeypatch):
    begun = []

    def wandb(**settings):
        begun.append((settings["id"], settings["resume"]))
        return types.SimpleNamespace(write=lambda *_: None, close=lambda: None)

    def mlflow(name, run_id):
        begun.append((name, run_id))
        return types.SimpleNamespace(write=lambda *_: None, close=lambda: None, run_id="m1")

    monkeypatch.setattr(metrics, "require", lambda *_, **__: None)
    monkeypatch.setattr(metrics, "WandB", wandb)
    monkeypatch.setattr(metrics, "MLflow", mlflow)
    for name in ("wandb", "mlflow", "wandb", "mlflow"):
        sink = Tracker(name, tmp_path / "run", from_step=None)
        sink.close()  # never opened: nothing to close
        for step in (1, 2):
            sink.write(step, "seed-0", {"q": 1.0})
        sink.close()
    first, second = begun[0], begun[2]
    assert first == second
    assert first[1] == "allow"
    assert [begun[1], begun[3]] == [("run", None), ("run", "m1")]
