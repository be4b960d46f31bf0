"""Random draws of a split: source rows, labels, parts, and the pool that they make.

Target rows and labels have a random stream of their own, so that settings which differ only in the
other domains share them. A third stream shuffles positions, so that order reveals nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from puorl.core.errors import ConfigError, DataError
from puorl.core.hashing import generator
from puorl.data.dataset import Dataset
from puorl.data.transitions import Provenance, Transitions, find_originals, join_notes, merge_copies
from puorl.data.validate import listed

PARTS = ("train", "validation", "test")
HELD_OUT = 10  # one row in ten for validation and one in ten for test, as in the paper
MIN_LABELLED_EPISODES = 5
NUM_FOLDS = 5


@dataclass(frozen=True)
class Draw:
    """Drawn rows in pool order: labelled rows first, the rest shuffled."""

    source: np.ndarray
    """(n,) int32. 0 is the target, k the k-th other domain."""
    row: np.ndarray
    """(n,) int64. Row in that source."""
    part: np.ndarray
    """(n,) int8. Index into `PARTS`, or the fold where whole episodes are drawn."""
    num_labelled: int


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


def hold_out(n: int) -> np.ndarray:
    """(n,) int8. Part of each of ``n`` shuffled rows: exactly 10 % for each of the last two.

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


def rows_by_episode(episode: np.ndarray) -> list[np.ndarray]:
    """Return the row indices of each episode, in recording order, by ascending id."""
    order = np.argsort(episode, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(episode[order])) + 1)


def parts_of_mask(
    dataset: Dataset, mask: np.ndarray, unit: str, seed: int, original: np.ndarray | None
) -> np.ndarray:
    """(n,) int8. Draw the part of each row, without a look at domains: 80/10/10, or episode folds.

    Copies of a row, or of a whole episode, get the same part.
    """
    parts = np.empty(len(mask), np.int8)
    if unit == "transition":
        is_first = True if original is None else original == np.arange(len(mask))
        for name, side in (("labelled", mask), ("unlabelled", ~mask)):
            rows = np.flatnonzero(side & is_first)
            shuffled = generator(seed, "split", "parts", name).permutation(rows)
            parts[shuffled] = hold_out(len(rows))
        return parts if original is None else parts[original]
    if dataset.episode is None:
        raise DataError("unit='episode' needs episode ids, and this dataset has none")
    every = rows_by_episode(
        merge_copies(np.unique(dataset.episode, return_inverse=True)[1], dataset.rows)
    )
    labelled = [e for e in every if mask[e].any()]
    rest = [e for e in every if not mask[e].any()]
    # Every fold needs labelled and unlabelled episodes.
    num_folds = max(1, min(NUM_FOLDS, len(labelled), len(rest)))
    for name, group in (("labelled", labelled), ("unlabelled", rest)):
        order = generator(seed, "split", "parts", name).permutation(len(group))
        for place, i in enumerate(order):
            parts[group[i]] = place % num_folds
    return parts


def gather(sources: Sequence[Dataset], origin: Draw, unit: str) -> Dataset:
    """Build the pool: drawn rows with the fields that all sources have.

    Only the values of the rows may reveal their domain. So extra columns are dropped. Whole
    episodes get new numbers in random order and times that start at 0. Rows drawn one by one get
    no episode and no time, which unlabelled target rows would share with labelled ones. Where one
    domain is float32, all become float32: the precision would reveal the domain.
    """
    held = [s.rows.arrays() for s in sources]
    hidden = ("episode", "time") if unit == "transition" else ()
    common = [name for name in held[0] if all(name in h for h in held) and name not in hidden]
    places = [np.flatnonzero(origin.source == k) for k in range(len(sources))]
    fields = {}
    for name in common:
        dtype = min((h[name].dtype for h in held), key=lambda kind: kind.itemsize)
        fields[name] = np.empty((len(origin.row), *held[0][name].shape[1:]), dtype)
        for h, place in zip(held, places, strict=True):
            fields[name][place] = h[name][origin.row[place]]
    if "episode" in common:
        # Numbers in order of appearance would reveal domains: the labelled rows come first.
        _, codes = np.unique(fields["episode"], return_inverse=True)
        pairs = codes * (int(origin.source.max()) + 1) + origin.source
        ids, codes = np.unique(pairs, return_inverse=True)
        stream = generator(0, "split", "episode ids")
        fields["episode"] = stream.permutation(len(ids))[codes]
    if {"episode", "time"} <= set(common):
        # A date would reveal when, and so on which machine, an episode was recorded.
        _, first, codes = np.unique(fields["episode"], return_index=True, return_inverse=True)
        fields["time"] = fields["time"] - fields["time"][first][codes]
    notes = [note for s in sources for note in s.provenance.notes]
    if len({s.obs.dtype for s in sources}) > 1:
        notes.append(f"{fields['obs'].dtype} as the narrowest domain: precision would tell them")
    provenance = Provenance(
        source=tuple(text for s in sources for text in s.provenance.source),
        format="split",
        obs_names=sources[0].provenance.obs_names,
        action_names=sources[0].provenance.action_names,
        action_codes=sources[0].action_codes,
        missing=tuple(dict.fromkeys(m for s in sources for m in s.provenance.missing)),
        notes=join_notes(notes),
    )
    return Dataset(Transitions(**fields), {}, provenance)


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
