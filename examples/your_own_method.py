"""A new method: a subclass of `Method`, a frozen dataclass with a name and `prepare`.

python examples/your_own_method.py [ROWS]

To ship it with the package, move the class to src/puorl/methods/linear.py and add a line to
`METHODS` in base.py: "linear": MethodEntry("puorl.methods.linear.Linear", "Linear").
"""

import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import puorl
from puorl.methods import Method, make


@dataclass(frozen=True)
class Linear(Method):
    """Keep unlabelled rows that a linear model of the labelled rows' dynamics explains."""

    name: ClassVar[str] = "linear"

    recall: float = 0.95
    """Fraction of the labelled rows that the rule itself would keep."""

    def prepare(self, split: puorl.PUSplit, *, seed: int) -> puorl.TrainingSet:
        """Make the training set; nothing is random, so the seed is ignored."""
        del seed
        pool = split.pool.rows
        x = np.concatenate([pool.obs, pool.action, np.ones((len(pool), 1))], axis=1)
        model, *_ = np.linalg.lstsq(x[split.labelled], pool.next_obs[split.labelled])
        error = np.linalg.norm(pool.next_obs - x @ model, axis=1)
        limit = np.quantile(error[split.labelled], self.recall)
        kept = split.unlabelled[error[split.unlabelled] <= limit]
        rows = np.concatenate([split.labelled, kept])
        metadata = {"method": self.name, "seed": None, "num_rows": len(rows), "limit": float(limit)}
        return puorl.TrainingSet(split.pool, rows, returns=split.returns, metadata=metadata)


def machine(rows: int, strength: float, seed: int) -> puorl.Dataset:
    """A cart that is pushed home; the weaker its motor, the harder its controller pushes."""
    rng = np.random.default_rng(seed)
    place, slip = rng.uniform(-1, 1, (rows, 2)), 0.05 * rng.normal(size=(rows, 2))
    push = np.clip(-0.3 * place / strength + 0.1 * rng.normal(size=(rows, 2)), -1, 1)
    after = place + strength * push + slip
    return puorl.Dataset.from_arrays(
        obs=place, action=push, next_obs=after, reward=-np.square(after).sum(axis=1)
    )


def main(rows: int) -> None:
    """Hide one machine in another, and compare the training sets of three methods."""
    split = puorl.make_split(machine(rows, 1.0, 1), machine(rows, 0.4, 2), rows=rows, seed=0)
    truth = split.reveal("benchmark")  # only because we made the data ourselves
    methods: list[Method] = [make("olp"), make("sharing_all"), Linear()]
    for method in methods:
        chosen = method.prepare(split, seed=0)
        fraction = np.mean(truth[chosen.rows] == 0)
        policy = puorl.train("bc", chosen, steps=500, hidden=(32,), batch_size=64)
        push = policy.act(np.array([1.0, 0.0]))[0]  # our controller would push by -0.30
        print(f"{method.name:12} {len(chosen):6} rows, {fraction:.2f} ours; pushes by {push:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
