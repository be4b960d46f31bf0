"""How long does it take to look at many policies? Together, and each asked for itself.

    python benchmarks/speed/evaluate.py [--policies 5 40 120] [--episodes 3 10] [--save]

Networks of 256-256 with random weights, whole HalfCheetah episodes of 1,000 steps. Both sides take
turns, each counts with its best round, and their returns must be equal to the last bit.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from stamped import append

import puorl
from puorl.rl.policy import Policy

RESULTS = Path(__file__).parents[1] / "results" / "evaluate.jsonl"
BODY, WIDTHS = "halfcheetah", (17, 256, 256, 6)


def policies(count: int) -> list[Policy]:
    """Networks that move, with weights drawn from seeds 0, 1, ..."""
    made = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        layers = [
            {"w": rng.normal(size=(a, b)) / np.sqrt(a), "b": np.zeros(b)}
            for a, b in zip(WIDTHS[:-1], WIDTHS[1:], strict=True)
        ]
        made.append(Policy.of("tanh", layers))
    return made


def timed(actors: list, episodes: int) -> tuple[float, np.ndarray]:
    """Seconds, and returns."""
    began = time.perf_counter()
    seen = puorl.evaluate(actors, BODY, episodes=episodes)
    return time.perf_counter() - began, seen.returns


def main() -> None:
    """Both sides for every number of policies and episodes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policies", type=int, nargs="+", default=[5, 40, 120])
    parser.add_argument("--episodes", type=int, nargs="+", default=[3, 10])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help=f"append to {RESULTS.name}")
    given = parser.parse_args()
    for count in given.policies:
        own = policies(count)
        apart = [policy.act for policy in own]  # plain functions cannot be joined
        for episodes in given.episodes:
            rounds = [(timed(own, episodes), timed(apart, episodes)) for _ in range(given.rounds)]
            assert all(np.array_equal(a[1], b[1]) for a, b in rounds), "returns differ"
            together, alone = (min(each[side][0] for each in rounds) for side in (0, 1))
            print(
                f"{count} policies, {episodes} episodes: together {together:.1f} s, "
                f"apart {alone:.1f} s, ratio {alone / together:.2f}"
            )
            measured = {
                "policies": count,
                "episodes": episodes,
                "rounds": given.rounds,
                "together_s": round(together, 2),
                "apart_s": round(alone, 2),
            }
            if given.save:
                append(RESULTS, measured)


if __name__ == "__main__":
    main()
