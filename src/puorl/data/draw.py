"""`make_split`: draw a benchmark split, with its labels, from rows whose domains are known.

Target rows and labels have a random stream of their own, so that settings which differ only in the
other domains share them. A third stream shuffles positions, so that order reveals nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.formatting import check_choice, parse_count
from puorl.core.hashing import generator
from puorl.data.dataset import Dataset
from puorl.data.episodes import return_range
from puorl.data.parts import NUM_FOLDS, Draw, gather, hold_out, parts_of_mask, rows_by_episode
from puorl.data.split import HiddenTruth, Parts, PUSplit, Unit
from puorl.data.transitions import find_originals
from puorl.data.validate import listed

MIN_LABELLED_EPISODES = 5


def make_split(
    target: Dataset,
    others: Dataset | Sequence[Dataset],
    *,
    rows: int | str = 1_000_000,
    target_fraction: float = 0.3,
    labelled_fraction: float = 0.01,
    unit: Unit = "transition",
    seed: int,
    proportions: Sequence[float] | None = None,
    parts: Parts = "mixed",
) -> PUSplit:
    """Draw a benchmark split of known domains; later stages do not see the domains.

    The defaults are the paper's protocol: 300,000 target rows, of which 10,000 are labelled, and
    700,000 rows of other domains; 29/99 of the unlabelled rows are of the target domain.

    Args:
        target: Rows of the domain of interest.
        others: One or several other domains.
        rows: Size of the pool.
        target_fraction: Fraction of the pool that is of the target domain.
        labelled_fraction: Fraction of the pool that is labelled; with episodes, the fraction
            ``labelled_fraction / target_fraction`` of the target's episodes.
        unit: ``transition`` draws and labels single rows, with parts 80/10/10; ``episode`` draws
            and labels whole episodes (at least 5), with folds.
        seed: Seed; target rows and labels do not depend on ``others``.
        proportions: Proportions of the other domains; equal by default.
        parts: How single rows are cut into train, validation and test. ``mixed`` cuts the
            unlabelled rows after mixing, as a user's own rows are cut: the fraction of target rows
            varies by chance from part to part. ``stratified`` cuts every domain by itself, as
            version 0.1 did and the benchmark does: all parts have exactly the pool's fraction,
            so that errors of alpha lack the chance variation that a user's data has.

    Raises:
        DataError: A domain has too few rows, or shapes differ.
        ConfigError: A fraction is impossible.
    """
    others = [others] if isinstance(others, Dataset) else list(others)
    rows = parse_count(rows, name="rows")
    check_choice("unit", unit, get_args(Unit))
    check_choice("parts", parts, get_args(Parts))
    weights = check_proportions(proportions, len(others))
    fractions, is_mixed = (target_fraction, labelled_fraction), parts == "mixed"
    pool, origin = draw_pool(target, others, rows, fractions, weights, unit, seed, mixed=is_mixed)
    n = origin.num_labelled
    return PUSplit(
        pool=pool,
        labelled=np.arange(n),
        unlabelled=np.arange(n, len(origin.row)),
        labelled_part=origin.part[:n],
        unlabelled_part=origin.part[n:],
        unit=unit,
        sampling="one",
        returns=return_range([target.rows, *(o.rows for o in others)]),
        config={
            "made_by": "make_split",
            "rows": rows,
            "target_fraction": float(target_fraction),
            "labelled_fraction": float(labelled_fraction),
            "unit": unit,
            "seed": int(seed),
            "proportions": weights,
        }
        | ({"parts": parts} if is_mixed else {}),  # absent in version 0.1
        truth=HiddenTruth(origin),
    )


def check_proportions(proportions: Sequence[float] | None, count: int) -> list[float]:
    """Return the proportions of the other domains; equal ones by default."""
    if count == 0:
        raise ConfigError("others: expected at least one other domain, got none")
    weights = [1.0] * count if proportions is None else [float(p) for p in proportions]
    if len(weights) != count or min(weights) <= 0 or not math.isfinite(sum(weights)):
        raise ConfigError(
            f"proportions: expected {count} positive numbers, one for each other domain, "
            f"got {proportions}"
        )
    return weights


def apportion(total: int, proportions: Sequence[float]) -> list[int]:
    """Divide ``total`` into whole numbers close to the proportions (largest remainder).

    >>> apportion(10, [1, 1, 1])
    [4, 3, 3]
    """
    exact = np.asarray(proportions, float) / np.sum(proportions) * total
    counts = np.floor(exact + 1e-9).astype(int)
    for k in np.argsort(counts - exact, kind="stable")[: total - counts.sum()]:
        counts[k] += 1
    return counts.tolist()


def draw_pool(
    target: Dataset,
    others: Sequence[Dataset],
    rows: int,
    fractions: tuple[float, float],
    proportions: Sequence[float],
    unit: str,
    seed: int,
    *,
    mixed: bool,
) -> tuple[Dataset, Draw]:
    """Draw the pool of a benchmark split, with the arguments of `puorl.make_split`.

    ``fractions`` are those of target rows and of labelled rows; ``mixed`` cuts single rows into
    parts after mixing, instead of every domain by itself.
    """
    of_target, of_labelled = fractions
    if not 0 < of_labelled < of_target < 1:
        raise ConfigError(
            "expected 0 < labelled_fraction < target_fraction < 1 (labelled rows are target rows), "
            f"got labelled_fraction {of_labelled}, target_fraction {of_target}"
        )
    num_target = round(rows * of_target)
    counts = [num_target, *apportion(rows - num_target, proportions)]
    if unit != "transition":
        origin = draw_episodes(target, others, counts, of_labelled / of_target, seed)
        return gather([target, *others], origin, unit), origin
    num_labelled = round(rows * of_labelled)
    if num_labelled < 1:
        raise ConfigError(f"labelled_fraction: {of_labelled} of {rows} rows is no row; raise it")
    origin = draw_rows(target, others, counts, num_labelled, seed)
    pool = gather([target, *others], origin, unit)
    if mixed:
        original, mask = find_originals(pool.rows), np.arange(len(pool)) < num_labelled
        origin = replace(origin, part=parts_of_mask(pool, mask, unit, seed, original))
    return pool, origin


def draw_rows(
    target: Dataset, others: Sequence[Dataset], counts: Sequence[int], num_labelled: int, seed: int
) -> Draw:
    """Draw single rows without replacement: the paper's protocol; parts 80/10/10 in each domain.

    ``counts`` are rows of the target, then of each other domain.
    """
    _check_sizes(target, others, counts)
    picks = [
        _stream(k, seed).permutation(len(dataset))[: counts[k]]
        for k, dataset in enumerate([target, *others])
    ]
    groups = [(0, picks[0][:num_labelled]), (0, picks[0][num_labelled:])]
    groups += [*enumerate(picks)][1:]
    source = np.concatenate([np.full(len(rows), k, np.int32) for k, rows in groups])
    row = np.concatenate([rows for _, rows in groups]).astype(np.int64, copy=False)
    part = np.concatenate([hold_out(len(rows)) for _, rows in groups])
    shuffled = num_labelled + generator(seed, "split", "order").permutation(len(row) - num_labelled)
    order = np.concatenate([np.arange(num_labelled), shuffled])
    return Draw(source[order], row[order], part[order], num_labelled)


def _stream(k: int, seed: int) -> np.random.Generator:
    """Return the random stream of the target (0) or of the k-th other domain."""
    return generator(seed, "split", "other", k - 1) if k else generator(seed, "split", "target")


def draw_episodes(
    target: Dataset,
    others: Sequence[Dataset],
    counts: Sequence[int],
    labelled_fraction: float,
    seed: int,
) -> Draw:
    """Draw and label whole episodes, with row counts as close as episodes allow."""
    _check_sizes(target, others, counts)
    chosen = [
        _pick_episodes(dataset, counts[k], _stream(k, seed), f"other {k}" if k else "target")
        for k, dataset in enumerate([target, *others])
    ]
    # Counted in the target alone: the length of other episodes must not change the labels.
    num_labelled = max(MIN_LABELLED_EPISODES, round(labelled_fraction * len(chosen[0])))
    if num_labelled >= len(chosen[0]):
        raise DataError(
            f"target: need more than {num_labelled} episodes to leave unlabelled ones, have "
            f"{len(chosen[0])}; raise rows or target_fraction"
        )
    labelled = [(0, rows) for rows in chosen[0][:num_labelled]]
    rest = [(0, rows) for rows in chosen[0][num_labelled:]]
    rest += [(k + 1, rows) for k, some in enumerate(chosen[1:]) for rows in some]
    order = generator(seed, "split", "order").permutation(len(rest))
    ordered = labelled + [rest[i] for i in order]
    folds = [i % NUM_FOLDS for i in range(num_labelled)] + [i % NUM_FOLDS for i in range(len(rest))]
    return Draw(
        source=np.concatenate([np.full(len(rows), k, np.int32) for k, rows in ordered]),
        row=np.concatenate([rows for _, rows in ordered]),
        part=np.concatenate(
            [np.full(len(rows), f, np.int8) for (_, rows), f in zip(ordered, folds, strict=True)]
        ),
        num_labelled=sum(len(rows) for _, rows in labelled),
    )


def _pick_episodes(
    dataset: Dataset, rows: int, stream: np.random.Generator, name: str
) -> list[np.ndarray]:
    """Draw as many episodes as bring the sum of their lengths closest to ``rows``."""
    if dataset.episode is None:
        raise DataError(f"{name}: unit='episode' needs episode ids, and this dataset has none")
    every = rows_by_episode(dataset.episode)
    shuffled = [every[i] for i in stream.permutation(len(every))]
    ends = np.cumsum([len(e) for e in shuffled])
    return shuffled[: int(np.argmin(np.abs(ends - rows))) + 1]


def _check_sizes(target: Dataset, others: Sequence[Dataset], counts: Sequence[int]) -> None:
    shape = (target.obs.shape[1], target.action.shape[1])
    for k, (dataset, need) in enumerate(zip([target, *others], counts, strict=True)):
        name = f"other {k}" if k else "target"
        if (dataset.obs.shape[1], dataset.action.shape[1]) != shape:
            raise DataError(
                f"{name}: expected states and actions of size {shape} as in the target, got "
                f"{(dataset.obs.shape[1], dataset.action.shape[1])}; all domains must share them"
            )
        if dataset.action_codes != target.action_codes:
            raise DataError(
                f"{name}: expected the actions of the target, {_codes(target)}, got "
                f"{_codes(dataset)}; load all with the same discrete_actions="
            )
        if len(dataset) < need:
            raise DataError(
                f"{name}: need {need:,} rows to draw from, there are only {len(dataset):,}; lower "
                "rows or add data"
            )
        if need < 1:
            raise ConfigError(f"{name}: expected at least one row to draw, got {need}")


def _codes(dataset: Dataset) -> str:
    codes = dataset.action_codes
    return "continuous" if codes is None else f"the codes {listed(codes)}"
