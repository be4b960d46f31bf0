"""`train`: from rows to a policy in one call."""

import contextlib
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from puorl.core.errors import ConfigError, DataError, TrainingError
from puorl.data.dataset import Dataset
from puorl.data.training_set import TrainingSet
from puorl.rl import learner, run, trainer
from puorl.rl import train as training
from puorl.rl.policy import Policy
from puorl.rl.run import TrainResult
from puorl.rl.train import train, train_many
from puorl.rl.trainer import Progress

sys.path.insert(0, str(Path(__file__).parent))
import tiny_runs

TINY = {"hidden": (4,), "batch_size": 8}
SUMS = tiny_runs.small("sums")


@pytest.fixture(scope="module")
def data():
    return tiny_runs.pool()


@pytest.fixture
def sums(monkeypatch):
    """The learner of sums by name, which hardly needs compiling."""
    monkeypatch.setattr(learner, "make", lambda name, **_: SUMS)
    monkeypatch.setattr(learner, "form_of", lambda name, codes: name)


# ------------------------------------------------------------------------- a problem with an answer


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """Policies for one-step episodes with reward -(a - 0.3)^2, actions given as 0 to 10."""
    rng = np.random.default_rng(0)
    inner = rng.uniform(-1, 1, (512, 1))
    obs = np.concatenate([rng.normal(size=(512, 1)), np.full((512, 1), 3.0)], axis=1)
    rows = Dataset.from_arrays(
        obs=obs,
        action=5 + 5 * inner,
        reward=-((inner[:, 0] - 0.3) ** 2),
        next_obs=np.full_like(obs, np.nan),
        terminal=np.ones(512, bool),
    )
    out = tmp_path_factory.mktemp("taught") / "run"
    settings = {"hidden": (32,), "batch_size": 64, "q_weight": 20.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = train_many("td3_bc", rows, 2, steps="2k", seed=7, out=out, **settings)
    return rows, out, settings, list(result.policies.values())


def test_td3_bc_finds_the_best_action_in_the_datas_range(taught):
    rows, _, _, found = taught
    assert [policy.metadata["seed"] for policy in found] == [7, 8]
    for policy in found:
        action = policy.act(rows.obs[:50])
        assert action.shape == (50, 1)
        # The best action is 0.3 inside, so 6.5 outside. The data loses 0.42 a step against it,
        # its mean action, which behaviour cloning alone would take, 0.09.
        assert np.square((action - 6.5) / 5).mean() < 0.03
        np.testing.assert_allclose([policy.low, policy.high], [[0], [10]], atol=0.1)


def test_what_was_saved_acts_the_same(taught):
    rows, out, _, found = taught
    for policy in found:
        name = f"seed-{policy.metadata['seed']}.safetensors"
        stored = Policy.load(out / "policies" / name)
        np.testing.assert_array_equal(stored.act(rows.obs), policy.act(rows.obs))


def test_going_on_with_a_finished_run_gives_the_same_policies(taught):
    rows, out, settings, found = taught
    again = train_many("td3_bc", rows, 2, steps=2000, seed=7, out=out, **settings)
    assert [a.fingerprint for a in again.policies.values()] == [b.fingerprint for b in found]
    with pytest.raises(ConfigError, match="another run: q_weight was 20.0, is 2.5; hidden was"):
        train_many("td3_bc", rows, 2, steps=2000, seed=7, out=out, **TINY)


# ------------------------------------------------------------------------------------- in memory


@pytest.mark.usefixtures("sums")
def test_a_folder_makes_no_difference(data, tmp_path):
    kept = train_many("sums", data, 2, steps=12, out=tmp_path / "run").policies
    held = train_many("sums", data, 2, steps=12).policies
    assert list(held) == list(kept) == ["seed-0", "seed-1"]
    assert all(held[name].fingerprint == kept[name].fingerprint for name in kept)
    one = train("sums", TrainingSet.whole(data), steps=12, seed=1)
    assert isinstance(one, Policy)
    same = held["seed-1"].act(data.obs)
    np.testing.assert_allclose(one.act(data.obs), same, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("sums")
def test_progress_counts_every_update_once(data, monkeypatch):
    told = []

    @contextlib.contextmanager
    def bar(title, *, total, unit, show):
        assert (title, total, unit, show) == ("training", 10, "steps", True)
        yield lambda amount, note: told.append((amount, note))

    def trained(spec, on_checkpoint):
        assert (spec.steps, spec.checkpoint_interval) == (10, 4)
        for step in (4, 8, 10):
            on_checkpoint(Progress(step, None, [], (), seconds=0.5), len(spec.lanes))
        return TrainResult({"seed-0": None}, {})

    monkeypatch.setattr(run, "progress_bar", bar)
    monkeypatch.setattr(run, "CHECKPOINT_INTERVAL", 5)
    monkeypatch.setattr(training, "run_in_memory", trained)
    train_many("sums", data, 2, steps=10, progress=True)
    pace = "steps/s per lane, 2 lanes"
    assert told == [(4, f"8 {pace}"), (4, f"8 {pace}"), (2, f"4 {pace}")]


# ------------------------------------------------------------------------------ rows and rewards


@pytest.mark.parametrize("seeds", [(), (2,)])
def test_it_warns_where_no_complete_episodes_are_known(data, monkeypatch, seeds):
    made = SUMS._replace(scale_rewards=True)
    monkeypatch.setattr(learner, "make", lambda name, **_: made)
    monkeypatch.setattr(learner, "form_of", lambda name, codes: name)
    drawn = TrainingSet(data, np.arange(40))
    with pytest.warns(UserWarning, match="sums: rewards are not scaled") as caught:
        (train_many if seeds else train)("sums", drawn, *seeds, steps=12)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_dataset_brings_the_returns_of_its_own_episodes(data):
    iql = tiny_runs.small("iql")
    chosen = training.as_training_set(data)
    complete = [data.reward[i : i + 10].sum() for i in range(0, 120, 10)]
    assert chosen.returns == pytest.approx((min(complete), max(complete)))
    training.check_rows(iql, chosen)  # no warning, which would be an error
    training.check_rows(tiny_runs.small("td3_bc"), TrainingSet(data, np.arange(9)))


def test_rebrac_finds_the_next_actions_in_the_episodes():
    obs = np.arange(40.0).reshape(20, 2)
    episode = np.arange(20) // 5
    rows = Dataset.from_arrays(
        obs=obs, action=np.zeros((20, 1)), reward=np.ones(20), episode=episode
    )
    assert rows.next_action is None
    chosen = training.as_training_set(rows)
    followed = np.isfinite(rows.with_next_action().next_action).all(axis=1) | rows.terminal
    for name, count in (("rebrac", followed.sum()), ("bc", len(rows))):
        work = trainer.prepare(tiny_runs.small(name), [chosen], [trainer.Lane(0, 0)])
        assert work.sets.num_rows.tolist() == [count]
    assert 0 < followed.sum() < len(rows)


def test_bounds_of_actions_are_part_of_the_run(taught, tmp_path):
    rows, _, settings, _ = taught
    wanted = {"steps": 4, "out": tmp_path / "run"} | settings
    policy = train("td3_bc", rows, action_bounds=(-20, 20), **wanted)
    assert (policy.low.tolist(), policy.high.tolist()) == ([-20], [20])
    again = train("td3_bc", rows, action_bounds=([-20.0], 20), **wanted)
    np.testing.assert_array_equal(again.act(rows.obs), policy.act(rows.obs))
    for other, said in (({}, "action_bounds"), ({"action_bounds": (-5, 20)}, r"was \[\[-20")):
        with pytest.raises(ConfigError, match=said):
            train("td3_bc", rows, **wanted, **other)


def test_what_is_no_data():
    with pytest.raises(ConfigError, match="expected a Dataset or .*, got list"):
        train("bc", [1, 2, 3])


# ----------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learner": "sarsa"}, "learner: expected one of td3_bc"),
        ({"preset": "best"}, "expected a preset among default"),
        ({"colour": 1}, "got colour"),
        ({"steps": 0}, "steps: expected a multiple of 2"),
        ({"steps": 3}, "steps: expected a multiple of 2"),
        ({"steps": "many"}, "steps: expected a whole number"),
        ({"seeds": 2}, "seeds: train returns one policy; use puorl.train_many"),
        ({"seed": -1}, "seed: expected a whole number"),
        ({"resume": True}, "resume: a run in the folder out= is always resumed"),
    ],
)
def test_settings_that_make_no_sense(data, settings, message):
    with pytest.raises(ConfigError, match=message):
        train(**({"learner": "td3_bc", "data": data, "steps": 2} | TINY | settings))


def test_many_are_one_or_more(data):
    with pytest.raises(ConfigError, match="seeds: expected 1 or more"):
        train_many("td3_bc", data, 0, steps=2)


def test_rows_without_rewards_are_refused(data):
    silent = Dataset.from_arrays(obs=data.obs, next_obs=data.obs, action=data.action)
    with pytest.raises(DataError, match="expected rows with a reward"):
        train("td3_bc", silent, steps=2, **TINY)


# ----------------------------------------------------------------------------------- given up


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.usefixtures("sums")
def test_if_every_policy_was_given_up_it_says_why(data, tmp_path, kept):
    wild = TrainingSet(data, np.arange(50), reward=np.full(50, 3e38))
    out = tmp_path / "run" if kept else None
    with pytest.raises(TrainingError, match="given up .seed-4 at step 2: the critic's values"):
        train("sums", wild, steps=12, seed=4, out=out)


@pytest.mark.usefixtures("sums")
def test_policies_that_were_given_up_are_warned_of(data, monkeypatch):
    stop = trainer.Stopped(20, "no number")
    result = TrainResult({"seed-0": None}, {"seed-1": stop})
    monkeypatch.setattr(training, "run_in_memory", lambda *_, **__: result)
    with pytest.warns(UserWarning, match="given up: seed-1 at step 20: no number") as caught:
        assert train_many("sums", data, 2, steps=12) is result
    assert caught[0].filename == __file__
