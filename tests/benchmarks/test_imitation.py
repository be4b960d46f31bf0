"""Whether to imitate the others: clones in a model of our machine."""

import numpy as np
import own_model
import pytest
from imitation import decide, judge_imitation
from own_model import ModelConfig

from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet

SMALL = {"hidden": (16,), "num_steps": 1_000, "num_tuning": 1_000, "learning_rate": 1e-2}


def machine(number, sign, gain, *, seed, edge=np.inf):
    """Episodes of 10 steps; a machine moves as its action says, or the other way round.

    Actions lead to 0, where the reward is best, the faster the larger ``gain`` is.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for number_of in range(number):
        x = rng.uniform(-1, 1)
        for step in range(10):
            u = np.clip(-gain * sign * x + 0.2 * rng.normal(), -1, 1)
            after = x + 0.5 * sign * u
            ends = abs(after) > edge
            rows.append((number_of, x, u, after, 1 - x * x, ends, step == 9 and not ends))
            x = after
            if ends:
                break
    episode, obs, action, after, reward, terminal, timeout = np.array(rows).T
    return Dataset.from_arrays(
        obs=obs[:, None], action=action[:, None], next_obs=after[:, None], reward=reward,
        episode=episode.astype(int), terminal=terminal > 0, timeout=timeout > 0,
    )  # fmt: skip


def judged(ours, theirs):
    pool = Dataset.concatenate([ours, theirs])
    split = PUSplit.from_mask(pool, np.arange(len(pool)) < len(ours) // 2)
    chosen = TrainingSet(pool, np.arange(len(ours)))
    settings = {"clone_steps": 500, "clone_hidden": (16,), "num_starts": 30, "horizon": 15}
    return judge_imitation(split, chosen, **settings, **SMALL)


def test_a_behaviour_that_works_better_here_is_imitated():
    found = judged(machine(20, 1, -0.1, seed=0), machine(100, 1, 1.0, seed=1))
    assert found.imitate == "all"
    assert min(found.differences) > 1.0
    assert len(found.differences) == 3
    assert found.error < 0.1
    assert "Imitate the others: in the model their clone earns" in found.verdict


def test_a_behaviour_that_works_only_there_is_not():
    found = judged(machine(20, 1, 0.6, seed=0), machine(100, -1, 0.6, seed=1))
    assert found.imitate == "none"
    assert max(found.differences) < -1.0
    assert found.error < 0.1
    assert "Do not imitate the others" in found.verdict
    assert set(found.policies) == {"ours", "theirs"}


def test_one_member_that_disagrees_is_enough_for_none():
    ours = np.array([1.0, 2.0, 3.0])
    assert decide({"ours": ours, "theirs": ours + 1}, 0.1).imitate == "all"
    assert decide({"ours": ours, "theirs": ours + [1, 1, -0.1]}, 0.1).imitate == "none"
    assert decide({"ours": ours, "theirs": ours}, 0.1).imitate == "none"


def test_tasks_end_where_logged_ones_did():
    pool = machine(120, 1, -0.5, seed=0, edge=1.0)
    assert pool.terminal.any()
    ours, theirs = np.arange(200), np.arange(200, len(pool))
    model = own_model.fit(pool, ours, theirs, ModelConfig(**SMALL), seed=0)
    assert model.ends[0][0] == pytest.approx(-1.0, abs=0.05)
    assert model.ends[1][0] == pytest.approx(1.0, abs=0.05)

    class Push:
        def act(self, obs):
            return np.ones((len(obs), 1), np.float32)

    start = np.full((4, 1), 0.2, np.float32)
    total = own_model.roll_out(model, Push(), start, 50)
    assert total.shape == (3, 4)
    np.testing.assert_allclose(total, 0.96 + 0.51, atol=0.2)  # from 0.2 to 0.7, and then out
    safe = machine(120, 1, 0.5, seed=0)
    never = own_model.fit(safe, ours, np.arange(200, 1200), ModelConfig(num_steps=1), seed=0)
    assert np.isinf(never.ends).all()


def test_what_is_missing_is_said():
    pool = machine(40, 1, 0.5, seed=0)
    split = PUSplit.from_mask(pool, np.arange(len(pool)) < 20)
    with pytest.raises(DataError, match="expected 100 or more rows of ours and of others, got 50"):
        judge_imitation(split, TrainingSet(pool, np.arange(50)))
    with pytest.raises(ConfigError, match="horizon"):
        judge_imitation(split, TrainingSet(pool, np.arange(200)), horizon=0)
