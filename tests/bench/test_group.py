import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_suite import BUDGET, small

from puorl.bench.group import CURVE_SEED, FINAL_SEED, checkpoint_every, read_curves
from puorl.bench.plan import make_plan
from puorl.bench.runner import run
from puorl.bench.store import Store
from puorl.bench.suites import Budget
from puorl.envs.evaluate import evaluate
from puorl.rl.learner import make
from puorl.rl.policy import Policy


def test_the_usual_curve_has_five_points_and_twenty_checkpoints():
    assert checkpoint_every(make("td3_bc", num_steps=1_000_000), Budget()) == 50_000


@pytest.mark.parametrize("steps", [2, 10, 14, 100, 1_234])
def test_checkpoints_are_whole_cycles_at_any_number_of_updates(steps):
    every = checkpoint_every(make("td3_bc", num_steps=steps), Budget(steps=steps))
    assert every % 2 == 0
    assert 0 < every <= max(2, steps)


def test_curve_and_final_episodes_are_evaluated_as_the_budget_says(tmp_path):
    plan = make_plan(small("olp", qualities=("ME/ME",)), seeds=1)
    run(plan, tmp_path)
    [row] = Store(tmp_path).rows()
    assert [step for step, _ in row["curve"]] == [6, 12]  # checkpoints are at every second update
    assert len(row["returns"]) == BUDGET.episodes
    [path] = tmp_path.glob("groups/*/run/policies/*")
    policy, start = Policy.load(path), {"episodes": BUDGET.curve_episodes, "seed": CURVE_SEED}
    seen = evaluate(policy, "hopper", **start)
    assert row["curve"][-1][1] == pytest.approx(seen.mean_score[0])
    # Final episodes start from other states than those of the curve.
    final = evaluate(policy, "hopper", episodes=BUDGET.episodes, seed=FINAL_SEED)
    np.testing.assert_allclose(row["returns"], final.returns[0])
    assert row["curve"][-1][1] != pytest.approx(final.mean_score[0])


def test_curves_are_read_from_metrics(tmp_path):
    lines = [
        {"step": 1, "lane": "a", "loss": 1.0},
        {"step": 2, "lane": "a", "score": 3.0},
        {"step": 2, "lane": "b", "score": None},
        {"step": 4, "lane": "a", "score": 5.0},
    ]
    (tmp_path / "m").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_curves(tmp_path / "m") == {"a": [[2, 3.0], [4, 5.0]]}
