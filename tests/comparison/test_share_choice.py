"""How much to share: 0 unless the evidence is clear."""

import numpy as np
import pytest

from puorl.comparison import choose_share
from puorl.comparison.result import Comparison, Outcome
from puorl.comparison.share_choice import choose
from puorl.core.errors import ConfigError
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu.config import FilterConfig, NetworkConfig

QUICK = FilterConfig(
    residuals=None, network=NetworkConfig(hidden=(8,), learning_rate=1e-2), num_main=10
)


def judged(*scores, **changes):
    """Amounts 0, 0.25, ... with the values of their policies."""
    outcomes = [Outcome("pu_share", f"share {i}", 10, tuple(s)) for i, s in enumerate(scores)]
    outcomes[1:] = [Outcome(**(vars(each) | changes)) for each in outcomes[1:]]
    return choose(
        Comparison(tuple(outcomes), "a test", "value"), [0.0, 0.25, 0.5, 0.75][: len(outcomes)]
    )


def test_only_a_clear_gain_is_chosen():
    none = [10.0, 10.2, 9.8]
    found = judged(none, [10.5, 9.9, 10.4], [14.0, 14.3, 13.9], [8.0, 8.1, 8.2])
    assert found.share == 0.5
    assert found.differences[0.5].value == pytest.approx(14.2 / 1 - 10.0 - 2 / 15, abs=0.01)
    assert found.differences[0.5].is_above_zero
    assert not found.differences[0.25].is_above_zero
    assert "Share 0.5 is judged clearly better than PU" in found.verdict
    assert judged(none, [10.5, 9.9, 10.4]).share == 0.0
    assert "use PU (share 0)" in judged(none, [10.5, 9.9, 10.4]).verdict


def test_more_amounts_need_clearer_evidence():
    none, better = [10.0, 10.4, 9.6], [11.1, 11.4, 10.6]
    alone = judged(none, better).differences[0.25]
    among = judged(none, better, none, none).differences[0.25]
    assert among.half_width > 1.2 * alone.half_width
    assert among.value == alone.value


def test_lost_and_doubtful_policies_are_not_chosen():
    none, better = [10.0, 10.2, 9.8], [14.0, 14.3, 13.9]
    assert judged(none, better).share == 0.25
    assert judged(none, better, num_stopped=1).share == 0.0
    assert judged(none, better, num_doubtful=2).share == 0.0
    assert judged(none, ()).share == 0.0


def machine(number, sign, *, seed):
    """Episodes of 8 steps of a machine that obeys, or does the opposite."""
    rng = np.random.default_rng(seed)
    x, rows = 0.0, []
    for i in range(8 * number):
        x = rng.uniform(-1, 1) if i % 8 == 0 else x
        u = np.clip(-0.4 * sign * x + 0.3 * rng.normal(), -1, 1)
        rows.append((x, u, 0.8 * x + 0.4 * sign * u, 1 - x * x))
        x = rows[-1][2]
    obs, action, after, reward = np.array(rows).T
    return Dataset.from_arrays(
        obs=obs[:, None], action=action[:, None], next_obs=after[:, None], reward=reward,
        episode=np.arange(8 * number) // 8, timeout=np.arange(8 * number) % 8 == 7,
    )  # fmt: skip


def test_amounts_are_trained_and_judged():
    ours, others, judge = machine(10, 1, seed=0), machine(20, -1, seed=1), machine(6, 1, seed=2)
    pool = Dataset.concatenate([ours, others])
    split = PUSplit.from_mask(pool, np.arange(len(pool)) < 40)
    small = {"hidden": (8,), "batch_size": 16}
    settings = {
        "method": small | {"num_steps": 20, "num_members": 2, "config": QUICK},
        "ope": small | {"updates": 60, "critics": 2, "model_updates": 10},
    }
    found = choose_share(split, judge, shares=[0.5], seeds=2, steps=20, **settings, **small)
    assert found.share in (0.0, 0.5)
    assert [each.title for each in found.comparison.outcomes] == ["share 0", "share 0.5"]
    assert [len(each.scores) for each in found.comparison.outcomes] == [2, 2]
    assert set(found.differences) == {0.5}
    with pytest.raises(ConfigError, match="seeds: expected two or more"):
        choose_share(split, judge, seeds=1, **settings)
