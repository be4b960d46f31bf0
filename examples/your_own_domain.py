"""Write a domain in one line, let a shipped policy act in it, and measure what it loses.

python examples/your_own_domain.py [EPISODES]
"""

import sys

import puorl
from puorl.envs.behaviour import behaviour


def main(episodes: int) -> None:
    """The nominal expert in its own domain and in domains nobody trained it for."""
    expert = behaviour("hopper", "nominal", "expert")
    for domain in ("nominal", "mass:foot=2", "gravity=1.2", "strength:foot=0.5", "broken:leg"):
        result = puorl.evaluate(expert, f"hopper/{domain}", episodes=episodes, seed=0)
        print(f"{domain:18} return {result.mean[0]:6.0f}   length {result.lengths.mean():5.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
