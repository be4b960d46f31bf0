"""How good the policies of a group are, on the way and at the end."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from puorl.bench.suites import Budget
from puorl.envs.evaluate import evaluate
from puorl.envs.scores import normalised_score
from puorl.rl.learner import Learner
from puorl.rl.policy import Policy

FINAL_SEED, CURVE_SEED = 0, 1
"""Start states of the final episodes and of the curve's; all policies meet the same."""


@dataclass(frozen=True)
class Watch:
    """Looks at policies in the target's domain."""

    bodies: Mapping[str, str]
    """Lane to the body whose task its policy has."""
    budget: Budget
    point_every: int

    def measure(
        self, step: int, policies: Mapping[str, Policy]
    ) -> Mapping[str, Mapping[str, float]]:
        """Return and score of every policy, where a point of the curve is due."""
        if not policies or not self._is_due(step):
            return {}
        episodes = self.budget.curve_episodes
        returns = self._returns(policies, episodes, CURVE_SEED)
        return {
            name: {
                "return": float(each.mean()),
                "score": float(normalised_score(self.bodies[name], each).mean()),
            }
            for name, each in returns.items()
        }

    def final(self, policies: Mapping[str, Policy]) -> dict[str, np.ndarray]:
        """Returns of every policy's final episodes."""
        return self._returns(policies, self.budget.episodes, FINAL_SEED)

    def _returns(
        self, policies: Mapping[str, Policy], episodes: int, seed: int
    ) -> dict[str, np.ndarray]:
        found = {}
        for body in dict.fromkeys(self.bodies[name] for name in policies):
            own = {name: each for name, each in policies.items() if self.bodies[name] == body}
            seen = evaluate(list(own.values()), body, episodes=episodes, seed=seed)
            found |= dict(zip(own, seen.returns, strict=True))
        return found

    def _is_due(self, step: int) -> bool:
        steps, points = self.budget.steps, self.budget.points
        last = max(0, step - self.point_every)
        return step >= steps or step * points // steps > last * points // steps


def point_every(learner: Learner, budget: Budget) -> int:
    """Updates between two checkpoints: as many as the budget has rests, in whole cycles."""
    # On a GPU the next point of the curve is minutes away, and to rest takes seconds.
    rests = budget.rests if jax.default_backend() == "cpu" else 1
    wanted = budget.steps // (budget.points * rests)
    return max(learner.cycle, wanted - wanted % learner.cycle)


def curves(metrics: Path) -> dict[str, list[list[float]]]:
    """Steps and mean scores by lane, as a run wrote them down."""
    found: dict[str, list[list[float]]] = {}
    with open(metrics, encoding="utf-8") as lines:
        for line in lines:
            point = json.loads(line)
            if point.get("score") is not None:
                found.setdefault(point["lane"], []).append([point["step"], point["score"]])
    return found
