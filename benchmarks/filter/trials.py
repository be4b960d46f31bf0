"""First trials of the filter where only the dynamics differ: the same policy in both domains.

python benchmarks/filter/trials.py --out benchmarks/results/filter-trials.jsonl [--rows 1M]

For each body and behaviour (medium, random): 30 % target rows (nominal), 70 % rows with half the
foot's mass, 1 % labelled, one seed. Every variant is scored on held-out unlabelled rows; the truth
is used for scoring and for the variants called supervised, and nowhere else. It wants a GPU.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import puorl
from puorl.core.formatting import parse_count
from puorl.core.run_folder import Checkpoint
from puorl.nn import mlp
from puorl.pu import fitting, learners
from puorl.pu.config import FeatureConfig, FilterConfig, NetworkConfig
from puorl.pu.features import build, fit_scaling
from puorl.pu.learners import LEARNERS

BODIES = ("hopper", "halfcheetah", "walker2d")
BEHAVIOURS = ("medium", "random")
FORWARD_STEPS, FORWARD_BATCH, FORWARD_HIDDEN = 15_000, 1_024, (512, 512)
SUPERVISED_STEPS, SUPERVISED_BATCH = 12_000, 2_048
BLOCK = 100_000


@dataclass(frozen=True)
class Cell:
    """One setting, split, with the truth beside it."""

    name: str
    split: puorl.PUSplit
    is_target: np.ndarray
    """(u,) bool over the unlabelled rows."""
    tested: np.ndarray
    """(u,) bool: rows of the test part."""


def make(body: str, behaviour: str, rows: int) -> Cell:
    """Collect both domains with the same policy and hide one in the other."""
    home = None if behaviour == "random" else "nominal"
    settings: dict[str, Any] = {"quality": behaviour, "policy_domain": home, "cache": False}
    target = puorl.collect(body, "nominal", rows=round(0.3 * rows), seed=0, threads=1, **settings)
    other = puorl.collect(body, "body_mass", rows=round(0.7 * rows), seed=1, threads=1, **settings)
    split = puorl.make_split(target, other, rows=rows, seed=0, parts="stratified")
    is_target = split.reveal("benchmark")[split.unlabelled] == 0
    return Cell(f"{body}/{behaviour}", split, is_target, split.unlabelled_part == 2)


def descend(
    loss: Callable[[mlp.Params, jax.Array, jax.Array], jax.Array], num_steps: int, batch: int
) -> Callable[..., mlp.Params]:
    """Adam with a cosine step size on random batches of (x, y), compiled as one loop."""

    @jax.jit
    def run(params: mlp.Params, x: jax.Array, y: jax.Array, key: jax.Array) -> mlp.Params:
        def step(carry: Any, now: Any) -> tuple[Any, None]:
            params, moments = carry
            key, t = now
            rows = jax.random.randint(key, (batch,), 0, x.shape[0])
            grad = jax.grad(loss)(params, x[rows], y[rows])
            rate = 0.5e-3 * (1.0 + jnp.cos(jnp.pi * t / num_steps))
            return mlp.apply_adam(params, grad, moments, learning_rate=rate), None

        times = jnp.arange(num_steps, dtype=jnp.float32)
        start = (params, mlp.init_adam(params))
        (params, _), _ = jax.lax.scan(step, start, (jax.random.split(key, num_steps), times))
        return params

    return run


def squared(params: mlp.Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Regression loss of a forward model."""
    return jnp.mean(jnp.square(mlp.apply_mlp(params, x) - y))


def weighted_absolute(params: mlp.Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """The same, robust against rows of the other domain; the last column of y is the weight."""
    miss = jnp.sqrt(jnp.square(mlp.apply_mlp(params, x) - y[:, :-1]) + 1e-6)
    return jnp.mean(jnp.broadcast_to(y[:, -1:], miss.shape) * miss)


def cross_entropy(params: mlp.Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Classification loss for y in {0, 1}."""
    logit = learners.logits(params, x)
    return jnp.mean(jnp.where(y > 0.5, jax.nn.softplus(-logit), jax.nn.softplus(logit)))


def by_blocks(function: Callable[..., jax.Array], params: mlp.Params, x: jax.Array) -> np.ndarray:
    """Apply a network to all rows without holding all its activations."""
    compiled = jax.jit(function)
    parts = [compiled(params, x[i : i + BLOCK]) for i in range(0, len(x), BLOCK)]
    return np.concatenate([np.asarray(part) for part in parts])


def signed_log(residual: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Residuals in robust deviations, large ones drawn in: contacts make their spread vary."""
    return np.sign(residual) * np.log1p(np.abs(residual / scale))


class Trial:
    """All variants of one cell; each is measured and written as it comes."""

    def __init__(self, cell: Cell, write: Callable[[dict], None], epochs: int) -> None:
        self.cell, self.write, self.epochs = cell, write, epochs
        rows = cell.split.pool.rows
        self.known = np.ones(len(rows), bool)
        self.raw = build(rows, FeatureConfig(difference=False, standardise=False))
        delta = build(rows, FeatureConfig())
        self.delta = fit_scaling(delta, FeatureConfig())(delta)
        size = rows.obs.shape[1] + rows.action.shape[1]
        self.before, self.change = jnp.asarray(self.delta[:, :size]), self.delta[:, size:]
        self.forward = descend(squared, FORWARD_STEPS, FORWARD_BATCH)
        self.expert = descend(weighted_absolute, FORWARD_STEPS, FORWARD_BATCH)
        self.supervised = descend(cross_entropy, SUPERVISED_STEPS, SUPERVISED_BATCH)

    def run(self) -> None:
        """From the paper's recipe to the ceiling."""
        self.tedn("paper", self.raw, k=1.0)
        self.tedn("delta", self.delta)
        residual = self.change - self.predict(self.forward, self.change)
        scale = 1.48 * np.median(np.abs(residual), axis=0) + 1e-6
        x = np.concatenate([self.delta, signed_log(residual, scale)], axis=1)
        logit, alpha = self.tedn("residual", x)
        for turn in (1, 2):
            x = self.two_experts(logit, alpha)
            logit, alpha = self.tedn(f"experts-{turn}", x)
        self.ceiling("supervised-delta", self.delta)
        self.ceiling("supervised-experts", x)

    def predict(self, train: Callable[..., mlp.Params], y: np.ndarray) -> np.ndarray:
        """What a forward model learnt from (s, a) -> y says of every row's change."""
        sizes = (self.before.shape[1], *FORWARD_HIDDEN, self.change.shape[1])
        params = mlp.init_mlp(jax.random.key(3), sizes)
        params = train(params, self.before, jnp.asarray(y), jax.random.key(4))
        return by_blocks(mlp.apply_mlp, params, self.before)

    def two_experts(self, logit: np.ndarray, alpha: float) -> np.ndarray:
        """One forward model for each side of the last decision; their residuals are features."""
        split = self.cell.split
        cut = np.quantile(logit[split.unlabelled], 1 - np.clip(alpha, 0.02, 0.98))
        weight = 1 / (1 + np.exp(-np.clip(logit - cut, -30, 30)))
        weight[split.labelled] = 1.0
        residuals = []
        for one in (weight, 1 - weight):
            y = np.concatenate([self.change, one[:, None]], axis=1, dtype=np.float32)
            residuals.append(self.change - self.predict(self.expert, y))
        nearer = np.minimum(*map(np.abs, residuals))
        scale = 1.48 * np.median(nearer, axis=0) + 1e-6
        norms = [np.log(1e-6 + np.abs(r / scale).mean(1, keepdims=True)) for r in residuals]
        parts = [self.delta, *(signed_log(r, scale) for r in residuals), *norms]
        x = np.concatenate([*parts, norms[1] - norms[0]], axis=1, dtype=np.float32)
        return fit_scaling(x, FeatureConfig())(x)

    def tedn(self, name: str, x: np.ndarray, *, k: float = 4.0) -> tuple[np.ndarray, float]:
        """Fit TEDn on features x and measure it."""
        begin = time.perf_counter()
        recipe = replace(LEARNERS["tedn"], bbe_constant=k, num_main=self.epochs)
        config = FilterConfig(network=NetworkConfig())
        rows = fitting.stack(fitting.split_lanes(self.cell.split, None), [self.known], seed=0)
        keys = fitting.lane_keys(0, 1)
        last = fitting.train(
            x.astype(np.float32), rows, recipe, config, keys, checkpoint=Checkpoint(None)
        )
        params = jax.tree.map(lambda leaf: leaf[0], last.state.params)
        logit = by_blocks(learners.logits, params, jnp.asarray(x, jnp.float32))
        self.measure(name, logit, float(last.alpha[-1, 0]), begin)
        return logit, float(last.alpha[-1, 0])

    def ceiling(self, name: str, x: np.ndarray) -> None:
        """The same network told the truth about the training part."""
        begin = time.perf_counter()
        split, cell = self.cell.split, self.cell
        train_u = split.unlabelled_part == 0
        rows = np.concatenate([split.part("train")[0], split.unlabelled[train_u]])
        y = np.concatenate([np.ones(len(split.part("train")[0])), cell.is_target[train_u]])
        params = mlp.init_mlp(jax.random.key(5), (x.shape[1], 256, 256, 2))
        shown = jnp.asarray(x[rows], jnp.float32)
        params = self.supervised(params, shown, jnp.asarray(y, jnp.float32), jax.random.key(6))
        logit = by_blocks(learners.logits, params, jnp.asarray(x, jnp.float32))
        self.measure(name, logit, float(cell.is_target.mean()), begin)

    def measure(self, name: str, logit: np.ndarray, alpha: float, begin: float) -> None:
        """Accuracy on the test part, of the plain decision and of keeping the top alpha."""
        cell = self.cell
        logit = logit[cell.split.unlabelled]
        cut = np.quantile(logit, 1 - alpha)
        truth, score = cell.is_target[cell.tested], logit[cell.tested]
        self.write(
            {
                "cell": cell.name,
                "variant": name,
                "accuracy": float(((score > 0) == truth).mean()),
                "accuracy_top_alpha": float(((score > cut) == truth).mean()),
                "auc": auc(score, truth),
                "alpha": alpha,
                "true_alpha": float(cell.is_target.mean()),
                "seconds": round(time.perf_counter() - begin, 2),
                "rows": len(cell.split.pool),
                "seed": 0,
                "jax": jax.__version__,
                "device": jax.devices()[0].device_kind,
            }
        )


def auc(score: np.ndarray, truth: np.ndarray) -> float:
    """Chance that a target row scores above another one."""
    rank = np.empty(len(score))
    rank[np.argsort(score)] = np.arange(len(score))
    ours = int(truth.sum())
    return float((rank[truth].sum() - ours * (ours - 1) / 2) / (ours * (len(truth) - ours)))


def main() -> None:
    """Make the cells side by side, then try everything on each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", default="1M")
    parser.add_argument("--bodies", nargs="+", default=BODIES)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--workers", type=int, default=6)
    given = parser.parse_args()
    wanted = [(body, behaviour) for behaviour in BEHAVIOURS for body in given.bodies]
    with ProcessPoolExecutor(given.workers, multiprocessing.get_context("spawn")) as pool:
        made = [pool.submit(make, *pair, parse_count(given.rows)) for pair in wanted]
        cells = [one.result() for one in made]

    def write(row: dict) -> None:
        print(json.dumps(row), flush=True)
        with open(given.out, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    for cell in cells:
        Trial(cell, write, given.epochs).run()


if __name__ == "__main__":
    main()
