"""Drawing rows for a split: which source rows, which of them labelled, which part each falls into.

Target rows and labels come from a random stream of their own, so two settings that differ only in
their negatives share them. Positions are shuffled by a third stream: order tells nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.hashing import generator
from puorl.data.dataset import Dataset

PARTS = ("train", "validation", "test")
HELD_OUT = 10  # one row in ten for validation and one in ten for test, as in the paper
MIN_LABELLED_EPISODES = 5
NUM_FOLDS = 5


@dataclass(frozen=True)
class Draw:
    """One entry a drawn row, in pool order: labelled rows first, the rest shuffled."""

    source: np.ndarray
    """(n,) int32. 0 is the target, k the k-th of the others."""
    row: np.ndarray
    """(n,) int64. Row in that source."""
    part: np.ndarray
    """(n,) int8. Index into PARTS, or fold number when whole episodes are drawn."""
    num_labelled: int


def shares(total: int, proportions: Sequence[float]) -> list[int]:
    """Cut ``total`` into whole parts as close to the proportions as can be (largest remainder).

    >>> shares(10, [1, 1, 1])
    [4, 3, 3]
    """
    exact = np.asarray(proportions, float) / np.sum(proportions) * total
    counts = np.floor(exact + 1e-9).astype(int)
    for k in np.argsort(counts - exact, kind="stable")[: total - counts.sum()]:
        counts[k] += 1
    return counts.tolist()


def draw_rows(
    target: Dataset, others: Sequence[Dataset], counts: Sequence[int], num_labelled: int, seed: int
) -> Draw:
    """The paper's protocol: single rows without replacement, 80/10/10 inside every group.

    Args:
        target: The domain of interest.
        others: The other domains.
        counts: How many rows to take of the target, then of each other.
        num_labelled: How many of the target's rows are labelled.
        seed: Seed of all streams.
    """
    _check_sizes(target, others, counts)
    picks = generator(seed, "split", "target").permutation(len(target))[: counts[0]]
    groups = [(0, picks[:num_labelled]), (0, picks[num_labelled:])]
    for k, other in enumerate(others):
        stream = generator(seed, "split", "other", k)
        groups.append((k + 1, stream.permutation(len(other))[: counts[k + 1]]))
    source = np.concatenate([np.full(len(rows), k, np.int32) for k, rows in groups])
    row = np.concatenate([rows for _, rows in groups]).astype(np.int64, copy=False)
    part = np.concatenate([hold_out(len(rows)) for _, rows in groups])
    shuffled = num_labelled + generator(seed, "split", "order").permutation(len(row) - num_labelled)
    order = np.concatenate([np.arange(num_labelled), shuffled])
    return Draw(source[order], row[order], part[order], num_labelled)


def hold_out(n: int) -> np.ndarray:
    """(n,) int8. Part of each of ``n`` already shuffled rows: exactly 10 % each for the last two.

    >>> [int((hold_out(10_000) == k).sum()) for k in range(3)]
    [8000, 1000, 1000]
    """
    held = n // HELD_OUT
    return np.repeat(np.arange(3, dtype=np.int8), [n - 2 * held, held, held])


def draw_episodes(
    target: Dataset,
    others: Sequence[Dataset],
    counts: Sequence[int],
    labelled_fraction: float,
    seed: int,
) -> Draw:
    """Whole episodes: row counts are met as closely as episodes allow, labels fall on episodes.

    Args:
        target: The domain of interest.
        others: The other domains.
        counts: How many rows to take of the target, then of each other.
        labelled_fraction: Share of the target's drawn episodes that is labelled.
        seed: Seed of all streams.
    """
    _check_sizes(target, others, counts)
    chosen = [_pick_episodes(target, counts[0], generator(seed, "split", "target"), "target")]
    for k, other in enumerate(others):
        stream = generator(seed, "split", "other", k)
        chosen.append(_pick_episodes(other, counts[k + 1], stream, f"other {k + 1}"))
    # Counted in the target alone: how long the others' episodes are must not change the labels.
    num_labelled = max(MIN_LABELLED_EPISODES, round(labelled_fraction * len(chosen[0])))
    if num_labelled >= len(chosen[0]):
        raise DataError(
            f"target: {num_labelled} episodes are to be labelled but only {len(chosen[0])} were "
            "drawn, so none would be left among the unlabelled; raise rows= or target_fraction="
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


def rows_by_episode(episode: np.ndarray) -> list[np.ndarray]:
    """The row indices of each episode, in recording order, by ascending id."""
    order = np.argsort(episode, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(episode[order])) + 1)


def _pick_episodes(
    dataset: Dataset, rows: int, stream: np.random.Generator, name: str
) -> list[np.ndarray]:
    """Episodes in random order, as many as bring the sum of lengths closest to ``rows``."""
    if dataset.episode is None:
        raise DataError(f"{name}: unit='episode' needs episode ids, and this dataset has none")
    every = rows_by_episode(dataset.episode)
    shuffled = [every[i] for i in stream.permutation(len(every))]
    ends = np.cumsum([len(e) for e in shuffled])
    return shuffled[: int(np.argmin(np.abs(ends - rows))) + 1]


def _check_sizes(target: Dataset, others: Sequence[Dataset], counts: Sequence[int]) -> None:
    shape = (target.obs.shape[1], target.action.shape[1])
    for name, dataset, need in zip(
        ["target", *(f"other {k + 1}" for k in range(len(others)))],
        [target, *others],
        counts,
        strict=True,
    ):
        if (dataset.obs.shape[1], dataset.action.shape[1]) != shape:
            raise DataError(
                f"{name}: expected states and actions of size {shape} as in the target, got "
                f"{(dataset.obs.shape[1], dataset.action.shape[1])}; all domains must share them"
            )
        if len(dataset) < need:
            raise DataError(
                f"{name}: {need:,} rows are to be drawn but there are only {len(dataset):,}; "
                "lower rows= or bring more data"
            )
        if need < 1:
            raise ConfigError(f"{name}: expected at least one row to draw, got {need}")
