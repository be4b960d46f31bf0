"""Parts of a split, and its pool: what is held out, and what of a row may be seen.

Nothing here looks at domains: a benchmark's rows and a user's own rows are treated alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from puorl.core.errors import DataError
from puorl.core.hashing import generator
from puorl.data.dataset import Dataset
from puorl.data.transitions import Note, Provenance, Transitions, join_notes, merge_copies
from puorl.data.validate import LABELLED

PARTS = ("train", "validation", "test")
HELD_OUT = 10  # one row in ten for validation and one in ten for test, as in the paper
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


def labelled_mask(dataset: Dataset, labelled: np.ndarray | str | None) -> np.ndarray:
    """(n,) bool. Labelled rows, given by a mask, a condition, or the column of ``load(label=)``."""
    if labelled is None:
        if LABELLED not in dataset.columns:
            raise DataError(
                "labelled: expected a mask, an expression, or data loaded with label=; got none"
            )
        labelled = dataset.columns[LABELLED]
    is_condition = isinstance(labelled, str)
    mask = dataset.labelled_where(labelled) if is_condition else np.asarray(labelled)
    if mask.dtype != bool or mask.shape != (len(dataset),):
        raise DataError(
            f"labelled: expected {len(dataset)} true/false values, one a row, got shape "
            f"{mask.shape}, dtype {mask.dtype}"
        )
    if not mask.any():
        raise DataError("labelled: need at least a few labelled rows, have none")
    if mask.all():
        raise DataError("labelled: need unlabelled rows to choose from, have none")
    return mask


def with_note_on_copies(dataset: Dataset, original: np.ndarray | None) -> Dataset:
    """Say in the provenance how many rows are copies of others."""
    if original is None:
        return dataset
    num_copies = int((original != np.arange(len(original))).sum())
    if num_copies == 0:  # all of them are states in which the machine rests
        return dataset
    notes = (*dataset.provenance.notes, Note("copied_rows", num_copies))
    return replace(dataset, provenance=replace(dataset.provenance, notes=notes))


def hold_out(n: int) -> np.ndarray:
    """(n,) int8. Part of each of ``n`` shuffled rows: exactly 10 % for each of the last two.

    >>> [int((hold_out(10_000) == k).sum()) for k in range(3)]
    [8000, 1000, 1000]
    """
    held = n // HELD_OUT
    return np.repeat(np.arange(3, dtype=np.int8), [n - 2 * held, held, held])


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
        keys=sources[0].provenance.keys,
        missing=tuple(dict.fromkeys(m for s in sources for m in s.provenance.missing)),
        notes=join_notes(notes),
    )
    return Dataset(Transitions(**fields), {}, provenance)
