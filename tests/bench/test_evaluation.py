import json

import numpy as np
import pytest

from puorl.bench import group
from puorl.bench.group import Watch, curves, point_every
from puorl.bench.prepare import collect_all
from puorl.bench.settings import Source
from puorl.bench.suites import Budget
from puorl.envs.collect import Cache
from puorl.envs.evaluate import normalised_score
from puorl.rl.learner import make
from puorl.rl.policy import Policy


def steps_with_a_point(budget, every):
    watch = Watch({"a": "hopper"}, budget, every)
    reached = [min(step, budget.steps) for step in range(every, budget.steps + every, every)]
    return [step for step in dict.fromkeys(reached) if watch._is_due(step)]


def test_the_papers_curve_has_five_points_and_twenty_checkpoints():
    every = point_every(make("td3_bc", num_steps=1_000_000), Budget())
    assert every == 50_000
    points = steps_with_a_point(Budget(), every)
    assert points == [200_000, 400_000, 600_000, 800_000, 1_000_000]


@pytest.mark.parametrize("steps", [2, 10, 14, 100, 1_234])
def test_any_number_of_updates_has_whole_cycles_and_ends_with_a_point(steps):
    budget = Budget(steps=steps)
    every = point_every(make("td3_bc", num_steps=steps), budget)
    assert every % 2 == 0
    points = steps_with_a_point(budget, every)
    assert points[-1] == steps
    assert len(points) <= 6


def test_measured_are_mean_return_and_score(monkeypatch):
    policy = Policy.of("tanh", [{"w": np.zeros((11, 3)), "b": np.zeros(3)}])
    watch = Watch({"a": "hopper"}, Budget(steps=10, points=2, episodes=3, curve_episodes=2), 5)
    found = watch.measure(5, {"a": policy})["a"]
    assert found["score"] == pytest.approx(float(normalised_score("hopper", found["return"])))
    final = watch.final({"a": policy})["a"]
    assert final.shape == (3,)
    # Final episodes begin elsewhere than the curve's.
    assert found["return"] not in (final[:2].mean(), final.mean())
    monkeypatch.setattr(group, "evaluate", None)  # nobody is asked without need
    assert watch.measure(3, {"a": policy}) == {}
    assert watch.measure(10, {}) == {}
    assert watch.final({}) == {}


def test_curves_are_read_from_metrics(tmp_path):
    lines = [
        {"step": 1, "lane": "a", "loss": 1.0},
        {"step": 2, "lane": "a", "score": 3.0},
        {"step": 2, "lane": "b", "score": None},
        {"step": 4, "lane": "a", "score": 5.0},
    ]
    (tmp_path / "m").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert curves(tmp_path / "m") == {"a": [[2, 3.0], [4, 5.0]]}


@pytest.mark.parametrize("workers", [1, 2])
def test_collected_rows_are_in_the_cache(tmp_path, monkeypatch, workers):
    monkeypatch.setenv("PUORL_CACHE", str(tmp_path))
    sources = [Source("hopper", name, "random", 20, 0) for name in ("nominal", "body_mass")]
    collect_all(sources, workers=workers, show=False)
    assert len(list(Cache().folder.glob("*.hdf5"))) == 2
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    rows = sources[0].collect()
    assert len(rows) == 20
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
