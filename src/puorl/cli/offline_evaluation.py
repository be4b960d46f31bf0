"""HeldOut policies from a log: the rows that `puorl evaluate --offline` uses, and its output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from puorl.cli.options import DataOptions
from puorl.core.errors import DataError, PuorlError
from puorl.core.stats import mean_estimate
from puorl.data.copies import row_hashes
from puorl.data.dataset import Dataset
from puorl.data.labels import read_labels
from puorl.data.training_files import read_training_set
from puorl.rl.run import read_record

if TYPE_CHECKING:  # importing it loads jax
    from puorl.ope.values import OfflineEvaluation, Value

_APART = "train again with --hold-out EXPR, and name the same rows here with --labelled EXPR"


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Held-out episodes, and notes on how they were chosen."""

    dataset: Dataset
    notes: tuple[str, ...]


def read_held_out(
    paths: Sequence[str], labelled: str | None, options: DataOptions, runs: Sequence[str]
) -> HeldOut:
    """Read labelled episodes on which none of the runs was trained.

    Args:
        paths: The log.
        labelled: Condition or file that marks the target's rows; all rows if None.
        options: Where each field is found.
        runs: Folders of `puorl train`, whose training rows are read again and left out.

    Raises:
        DataError: No labelled episodes, or all of them were trained on.
    """
    notes: list[str] = []
    if labelled is None:
        dataset = options.load(paths)
        notes.append("all rows of --data are taken as the target's; else mark them with --labelled")
    else:
        known = read_labels(paths, labelled, require_both=False, **options.arguments())
        dataset = known.pool[_whole_episodes(known.pool, known.mask)]
        if len(dataset) == 0:
            raise DataError(
                f"--labelled {labelled}: expected whole episodes whose rows are all labelled, got "
                "none; policies are judged by episodes, so label these"
            )
    trained, unread = _trained_rows(runs)
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
            notes.append(f"{len(lost):,} episodes were left out: policies were trained on them")
    return HeldOut(dataset, tuple(notes))


def _whole_episodes(pool: Dataset, mask: np.ndarray) -> np.ndarray:
    """(n,) bool. Rows of episodes that are labelled from the first row to the last."""
    if pool.episode is None:
        return mask
    return ~np.isin(pool.episode, np.unique(pool.episode[~mask]))


def _trained_rows(runs: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Return hashes of all rows that runs were trained on, and notes on those not found."""
    hashes, notes = [np.empty(0, np.uint64)], []
    for run in runs:
        try:
            asked = read_record(run)["invocations"][-1]
            fields: Mapping[str, Any] = asked["fields"]
            chosen = read_training_set(
                asked["paths"],
                hold_out=asked.get("hold_out"),
                **DataOptions(**fields).arguments(),
            )
            hashes.append(row_hashes(chosen.pool.rows))
        except (PuorlError, LookupError, TypeError, OSError):
            notes.append(
                f"{run}: its training rows cannot be read here, so nobody checked that --data "
                "holds other episodes"
            )
    return np.concatenate(hashes), notes


# ------------------------------------------------------------------------------- output


def as_json(
    seen: "OfflineEvaluation", groups: Sequence[str], notes: Sequence[str]
) -> dict[str, Any]:
    """Collect everything that was estimated, JSON-ready."""
    content = seen.to_dict()
    for each, group in zip(content["policies"], groups, strict=True):
        each["group"] = group
    return content | {"notes": [*notes, *seen.notes]}


def show(
    seen: "OfflineEvaluation", groups: Sequence[str], notes: Sequence[str], console: Console
) -> None:
    """Print a line for each policy and estimator, the ranking, and what to mind."""
    from puorl.ope.values import text_of

    for note in (*notes, *seen.notes):
        console.print(Text(f"note: {note}", style="dim"))
    bar = text_of(seen.behaviour.estimate)
    console.print(
        f"discounted return ({seen.gamma:g} a step) from {seen.num_episodes:,} logged starts; "
        f"the log's own: {bar}"
    )
    cells = [("estimate", "by", "rests on", "policy")]
    for policy, values in seen.values.items():
        cells += [(*_cells(value, name), policy) for name, value in values.items()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        console.print(Text(line.rstrip(), style="" if number else "bold"), soft_wrap=True)
    for policy, values in seen.values.items():
        for name, value in values.items():
            if value.is_doubtful:
                console.print(Text(f"{Path(policy).stem}, {name}: {value.trust}", style="yellow"))
    for group in dict.fromkeys(groups):
        rows = [v[seen.default] for v, own in zip(seen.values.values(), groups, strict=True)
                if own == group]  # fmt: skip
        if group and len(rows) > 1:
            mean = mean_estimate([value.estimate.value for value in rows])
            text = f"{group}: mean of {len(rows)} policies by {seen.default}: {text_of(mean)}"
            console.print(Text(f"{text} (95 % interval over policies)"))
    if len(seen.values) > 1:
        console.print(Text(f"by {seen.default}: {seen.ranking().sentence}"))


def _cells(value: "Value", name: str) -> tuple[str, str, str]:
    from puorl.ope.values import text_of

    mark = " (doubtful)" if value.is_doubtful else ""
    return text_of(value.estimate), f"{name}{mark}", f"{value.effective_size:,.1f} episodes"
