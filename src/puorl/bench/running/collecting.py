"""Data first: every dataset of a plan, made once, on as many cores as there are."""

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from puorl.bench.settings import Source
from puorl.core.progress import progress_bar

# The slowest to simulate first, so that no long one is left for the end.
_COST = {"walker2d": 3, "hopper": 2, "halfcheetah": 1}
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def collect_all(sources: Sequence[Source], *, workers: int, show: bool) -> None:
    """Fill the cache with all datasets; those that are in it already are only looked at.

    Args:
        sources: What to make.
        workers: Cores to use; where there are fewer datasets, each gets several. With 1, every
            dataset in turn takes what it finds.
        show: Show a progress bar.
    """
    order = sorted(sources, key=lambda s: -s.rows * _COST.get(s.body, 1))
    total = sum(source.rows for source in order)
    with progress_bar("collecting", total=total, show=show) as advance:
        if min(workers, len(order)) <= 1:
            for source in order:
                source.collect()
                advance(source.rows)
            return
        earlier = {name: os.environ.get(name) for name in _ONE_THREAD}
        threads = max(1, workers // len(order))
        # Matrix products must not start threads of their own.
        os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
        try:
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(min(workers, len(order)), spawn) as pool:
                begun = {pool.submit(_collect, source, threads): source for source in order}
                for done in as_completed(begun):
                    done.result()
                    advance(begun[done].rows)
        finally:
            for name, value in earlier.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value


def _collect(source: Source, threads: int) -> None:
    source.collect(threads=threads)
