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
from puorl.rl import learner, trainer
from puorl.rl import train as training
from puorl.rl.policy import Policy
from puorl.rl.train import train
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
        found = train("td3_bc", rows, steps="2k", seeds=2, seed=7, out=out, **settings)
    return rows, out, settings, found


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
    again = train("td3_bc", rows, steps=2000, seeds=2, seed=7, out=out, resume=True, **settings)
    assert [a.fingerprint for a in again] == [b.fingerprint for b in found]
    with pytest.raises(ConfigError, match="is another: q_weight was 20.0, is 2.5; hidden was"):
        train("td3_bc", rows, steps=2000, seeds=2, seed=7, out=out, resume=True, **TINY)


# ------------------------------------------------------------------------------------- in memory


@pytest.mark.usefixtures("sums")
def test_a_folder_makes_no_difference(data, tmp_path):
    kept = train("sums", data, steps=12, seeds=2, out=tmp_path / "run")
    held = train("sums", data, steps=12, seeds=2)
    assert [a.fingerprint for a in held] == [b.fingerprint for b in kept]
    one = train("sums", TrainingSet.whole(data), steps=12)
    assert isinstance(one, Policy)
    np.testing.assert_allclose(one.act(data.obs), held[0].act(data.obs), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("sums")
def test_progress_counts_every_update_once(data, monkeypatch):
    told = []

    @contextlib.contextmanager
    def bar(title, *, total, unit, show):
        assert (title, total, unit, show) == ("training", 10, "steps", True)
        yield lambda amount, note: told.append((amount, note))

    def trained(made, chosen, numbers, steps, every, on_point):
        assert (steps, every, len(chosen)) == (10, 4, len(data))
        for step in (4, 8, 10):
            on_point(Progress(step, None, [], (), seconds=0.5), len(numbers))
        return [None], {}

    monkeypatch.setattr(training, "progress_bar", bar)
    monkeypatch.setattr(training, "POINT_EVERY", 5)
    monkeypatch.setattr(training, "_in_memory", trained)
    train("sums", data, steps=10, seeds=2, progress=True)
    pace = "steps/s over 2 lane(s)"
    assert told == [(4, f"16 {pace}"), (4, f"16 {pace}"), (2, f"8 {pace}")]


# ------------------------------------------------------------------------------ rows and rewards


def test_it_warns_once_where_no_complete_episodes_are_known(data, monkeypatch):
    made = SUMS._replace(scale_rewards=True)
    monkeypatch.setattr(learner, "make", lambda name, **_: made)
    drawn = TrainingSet(data, np.arange(40))
    with pytest.warns(UserWarning, match="sums: rewards are not scaled") as caught:
        train("sums", drawn, steps=12, seeds=2)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_dataset_brings_the_returns_of_its_own_episodes(data):
    iql = tiny_runs.small("iql")
    chosen = training.as_training_set(data)
    complete = [data.reward[i : i + 10].sum() for i in range(0, 120, 10)]
    assert chosen.returns == pytest.approx((min(complete), max(complete)))
    training.check_rewards(iql, chosen)  # no warning, which would be an error
    training.check_rewards(tiny_runs.small("td3_bc"), TrainingSet(data, np.arange(9)))


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
        ({"seeds": 0}, "seeds: expected 1 or more"),
        ({"seed": -1}, "seed: expected a whole number"),
        ({"resume": True}, "expected a folder out="),
    ],
)
def test_settings_that_make_no_sense(data, settings, message):
    with pytest.raises(ConfigError, match=message):
        train(**({"learner": "td3_bc", "data": data, "steps": 2} | TINY | settings))


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


def test_policies_that_were_given_up_are_warned_of():
    found = Policy.of("tanh", [{"w": np.zeros((3, 2)), "b": np.ones(2)}])
    stop = training.Stopped(20, "no number")
    with pytest.warns(UserWarning, match="given up: seed-1 at step 20: no number"):
        assert training._handed_over([found], {"seed-1": stop}, seeds=2) == [found]
