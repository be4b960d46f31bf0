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
from puorl.pu import fitting, learners
from puorl.pu.config import FilterConfig
from puorl.pu.features import fit_encoders
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
    checkpoint = Checkpoint(None)
    with progress_bar("models", total=0, show=False) as advance:
        encoded = fit_encoders(
            [split.pool.rows for split in splits],
            config.features,
            config.residuals,
            seeds=seeds,
            checkpoint=checkpoint,
            advance=advance,
        )
    lanes = [fitting.split_lanes(split, None)[0] for split in splits]
    rows = fitting.stack(lanes, [each.known for each in encoded], seeds[0])
    keys = jnp.concatenate([fitting.lane_keys(seed, 1) for seed in seeds])
    x = np.stack([each.x for each in encoded])
    end = fitting.train(x, rows, make_recipe(config), config, keys, checkpoint=checkpoint)
    made = []
    for k, (split, seed) in enumerate(zip(splits, seeds, strict=True)):
        own = learners.Rows(*(column[k : k + 1] for column in rows))
        state = jax.tree.map(lambda leaf, k=k: leaf[k : k + 1], end.state)
        one = fitting.EpochState(state, end.epoch, end.alpha[:, k : k + 1])
        unit = Unit("transition")
        made.append(fitting.calibrate(split, config, unit, seed, encoded[k], own, one, None))
    return made


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
