"""Cells of a benchmark side by side: data on all cores first, then one process for each part."""

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import puorl
from puorl.core.progress import progress_bar
from puorl.core.run_folder import Checkpoint
from puorl.envs.behaviour import standard_version
from puorl.pu import fitting, learners
from puorl.pu.config import FilterConfig
from puorl.pu.features import Encoded, fit_encoders
from puorl.pu.learners import make_recipe
from puorl.pu.model import FilterModel
from puorl.pu.units import Unit

# The slowest to simulate first, so that no long one is left for the end.
COST = {"walker2d": 3, "hopper": 2, "halfcheetah": 1}


@dataclass(frozen=True)
class Source:
    """A dataset to collect."""

    body: str
    domain: str
    quality: str
    rows: int
    seed: int
    policy_domain: str | None = None

    def collect(self, cache: Path) -> puorl.Dataset:
        """Make it, or read it if it was made before."""
        return puorl.collect(
            self.body,
            self.domain,
            quality=self.quality,
            rows=self.rows,
            seed=self.seed,
            policy_domain=self.policy_domain,
            threads=1,
            cache=cache,
        )


def behaviours(sources: Iterable[Source]) -> dict[str, Any]:
    """Part of a row's config: versions of the policies that acted, where they are not the first."""
    trained = {source.body for source in sources if source.quality != "random"}
    later = {body: v for body in sorted(trained) if (v := standard_version(body)) > 1}
    return {"behaviours": later} if later else {}


def collect_all(sources: Iterable[Source], cache: Path, workers: int) -> None:
    """Make every dataset once, one a core."""
    begin = time.perf_counter()
    order = sorted(set(sources), key=lambda s: -s.rows * COST[s.body])
    # One core a dataset: matrix products must not start threads of their own.
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn) as pool:
        for _ in pool.map(_collect, [(source, cache) for source in order]):
            pass
    rows = sum(source.rows for source in order)
    print(f"{rows:,} rows in {time.perf_counter() - begin:.0f} s", flush=True)


def _collect(job: tuple[Source, Path]) -> None:
    source, cache = job
    source.collect(cache)


def run_parts(script: str, parts: Sequence[str], arguments: list[str]) -> None:
    """The same script once for each part, at the same time; they share the GPU."""
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    running = [
        subprocess.Popen([sys.executable, script, *arguments, "--part", part], env=environment)
        for part in parts
    ]
    failed = [part for part, each in zip(parts, running, strict=True) if each.wait() != 0]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def fit_many(
    splits: Sequence[puorl.PUSplit], config: FilterConfig, *, seeds: Sequence[int]
) -> list[FilterModel]:
    """Fit a filter for each split by rows, all of one size, in one program."""
    encoded = _encode(splits, config, seeds)
    lanes = [fitting.split_lanes(split, None)[0] for split in splits]
    rows, end = _train(encoded, lanes, config, seeds)
    made = []
    for k, (split, seed) in enumerate(zip(splits, seeds, strict=True)):
        own = learners.Rows(*(column[k : k + 1] for column in rows))
        one = fitting.EpochState(_lane(end.state, k), end.epoch, end.alpha[:, k : k + 1])
        unit = Unit("transition")
        made.append(fitting.calibrate(split, config, unit, seed, encoded[k], own, one, None))
    return made


def keep_when_told(
    splits: Sequence[puorl.PUSplit], config: FilterConfig, *, seeds: Sequence[int]
) -> list[np.ndarray]:
    """(u,) bool a split. Unlabelled rows that classifiers keep which are told the truth.

    They see the filter's inputs and learn from the true domain of every row to train on. The
    threshold is the one that is right most often in the rows for validation.
    """
    encoded = _encode(splits, config, seeds)
    truths = [split.reveal("benchmark") == 0 for split in splits]
    lanes = [_told_lane(split, truth) for split, truth in zip(splits, truths, strict=True)]
    rows, end = _train(encoded, lanes, config, seeds)
    kept = []
    for k, split in enumerate(splits):
        params = _lane(end.state.average, k)
        held_p, held_u = (
            learners.score_rows(params, encoded[k].x[np.asarray(held[k])])[0]
            for held in (rows.held_p, rows.held_u)
        )
        score = learners.score_rows(params, encoded[k].x[split.unlabelled])[0]
        kept.append(score >= best_threshold(held_p, held_u))
    return kept


def best_threshold(score_p: np.ndarray, score_u: np.ndarray) -> float:
    """The score from which on "target" is right most often; infinity where it never is.

    >>> best_threshold(np.array([1.0, 3.0]), np.array([0.0, 2.0, 0.5]))
    1.0
    """
    score = np.concatenate([score_p, score_u])
    gain = np.repeat([1, -1], [len(score_p), len(score_u)])
    order = np.argsort(-score, kind="stable")
    falling, total = score[order], np.cumsum(gain[order])
    last = np.append(falling[1:] != falling[:-1], True)
    best = int(np.argmax(np.where(last, total, -1)))
    return float(falling[best]) if total[best] > 0 and last[best] else float("inf")


def _told_lane(split: puorl.PUSplit, truth: np.ndarray) -> fitting.Positions:
    parts = [np.concatenate(split.part(name)) for name in ("train", "validation")]
    train, held = ([rows[truth[rows]], rows[~truth[rows]]] for rows in parts)
    return train[0], train[1], held[0], held[1]


def _encode(
    splits: Sequence[puorl.PUSplit], config: FilterConfig, seeds: Sequence[int]
) -> list[Encoded]:
    with progress_bar("models", total=0, show=False) as advance:
        return fit_encoders(
            [split.pool.rows for split in splits],
            config.features,
            config.residuals,
            seeds=seeds,
            checkpoint=Checkpoint(None),
            advance=advance,
        )


def _train(
    encoded: Sequence[Encoded],
    lanes: Sequence[fitting.Positions],
    config: FilterConfig,
    seeds: Sequence[int],
) -> tuple[learners.Rows, fitting.EpochState]:
    rows = fitting.stack(lanes, [each.known for each in encoded], seeds[0])
    keys = jnp.concatenate([fitting.lane_keys(seed, 1) for seed in seeds])
    x = np.stack([each.x for each in encoded])
    recipe = make_recipe(config)
    return rows, fitting.train(x, rows, recipe, config, keys, checkpoint=Checkpoint(None))


def _lane(tree: Any, k: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[k : k + 1], tree)


def fit_seeds(
    splits: Sequence[puorl.PUSplit], config: FilterConfig, seeds: Sequence[int]
) -> tuple[list[puorl.DomainFilter], float]:
    """A filter for each split, trained together, and the seconds of one."""
    begin = time.perf_counter()
    models = fit_many(splits, config, seeds=seeds)
    seconds = (time.perf_counter() - begin) / len(splits)
    return [puorl.DomainFilter.of(each) for each in models], seconds


def common_options(parser: argparse.ArgumentParser, out: Path) -> None:
    """Options of every benchmark of this kind."""
    parser.add_argument("--rows", default="1M", help="rows of a split")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds, from 0")
    parser.add_argument("--bodies", nargs="+", default=list(COST), choices=list(COST))
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--cache", type=Path, default=Path("scratch/data"), help="datasets")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--show", action="store_true", help="print the table, measure nothing")
    parser.add_argument("--part", help=argparse.SUPPRESS)


def passed_on(args: argparse.Namespace) -> list[str]:
    """The common options again, for a part's process."""
    words = ["--rows", args.rows, "--seeds", str(args.seeds), "--out", str(args.out)]
    return [*words, "--cache", str(args.cache), "--bodies", *args.bodies]


def device() -> str:
    """What the numbers were computed on."""
    return jax.devices()[0].device_kind


def guarded(cell: str, work: Callable[[], Any]) -> bool:
    """A cell that fails must not take the others with it: say so, go on; whether it worked."""
    begin = time.perf_counter()
    try:
        work()
    except Exception as error:
        print(f"{cell}: FAILED {type(error).__name__}: {error}", flush=True)
        return False
    print(f"{cell}: {time.perf_counter() - begin:.0f} s", flush=True)
    return True
