"""The rows of a log from which policies are judged: labelled episodes that none was trained on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from puorl.core.errors import DataError, PuorlError
from puorl.data.dataset import Dataset
from puorl.data.formats import load
from puorl.data.labels import read_labels
from puorl.data.training_files import read_training_set
from puorl.data.transitions import row_hashes
from puorl.rl.run import read_record

_APART = "train again with --hold-out EXPR, and name the same rows here with --labelled EXPR"


class HeldOut(NamedTuple):
    """Held-out episodes, and notes on how they were chosen."""

    dataset: Dataset
    notes: tuple[str, ...]


def read_held_out(
    paths: Sequence[str],
    labelled: str | None,
    runs: Sequence[str],
    names_of: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    **names: Any,
) -> HeldOut:
    """Read labelled episodes on which none of the runs was trained.

    Args:
        paths: The log.
        labelled: Condition or file that marks the target's rows; all rows if None.
        runs: Folders of `puorl train`, whose training rows are read again and left out.
        names_of: Turns the options that a run stored into arguments of `puorl.load`.
        **names: Where each field of the log is found, as for `puorl.load`.

    Raises:
        DataError: No labelled episodes, or all of them were trained on.
    """
    notes: list[str] = []
    if labelled is None:
        dataset = load(list(paths), **names)
        notes.append("all rows of --data are taken as the target's; else mark them with --labelled")
    else:
        known = read_labels(paths, labelled, require_both=False, **names)
        dataset = known.pool[_whole_episodes(known.pool, known.mask)]
        if len(dataset) == 0:
            raise DataError(
                f"--labelled {labelled}: expected whole episodes whose rows are all labelled, got "
                "none; policies are judged by episodes, so label these"
            )
    trained, unread = _trained_rows(runs, names_of)
    notes += unread
    if len(trained) and dataset.episode is not None:
        seen = np.isin(row_hashes(dataset.rows), trained)
        lost = np.unique(dataset.episode[seen])
        keep = ~np.isin(dataset.episode, lost)
        if not keep.any():
            raise DataError(
                f"--data: expected episodes that no policy was trained on, got none: all "
                f"{len(lost):,} were; {_APART}"
            )
        if len(lost):
            dataset = dataset[keep]
            one = "1 episode was" if len(lost) == 1 else f"{len(lost):,} episodes were"
            notes.append(f"{one} left out: policies were trained on them")
    return HeldOut(dataset, tuple(notes))


def _whole_episodes(pool: Dataset, mask: np.ndarray) -> np.ndarray:
    """(n,) bool. Rows of episodes that are labelled from the first row to the last."""
    if pool.episode is None:
        return mask
    return ~np.isin(pool.episode, np.unique(pool.episode[~mask]))


def _trained_rows(
    runs: Sequence[str], names_of: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> tuple[np.ndarray, list[str]]:
    """Return hashes of all rows that runs were trained on, and notes on those not found."""
    hashes, notes = [np.empty(0, np.uint64)], []
    for run in runs:
        try:
            asked = read_record(run)["invocations"][-1]
            chosen = read_training_set(
                asked["paths"], hold_out=asked.get("hold_out"), **names_of(asked["fields"])
            )
            hashes.append(row_hashes(chosen.pool.rows))
        except (PuorlError, LookupError, TypeError, OSError):
            notes.append(
                f"{run}: its training rows cannot be read here, so nobody checked that --data "
                "holds other episodes"
            )
    return np.concatenate(hashes), notes
