"""Training sets from files and from folders of `puorl filter`."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError, PuorlError
from puorl.core.run_folder import FILTER_MARKER, SETTINGS, WEIGHT, FilterSettings, read_as
from puorl.data.dataset import Dataset
from puorl.data.episodes import return_range
from puorl.data.expression import is_formula
from puorl.data.formats import expand, load, load_kept
from puorl.data.lazy import LazyDataset
from puorl.data.lazy import open as open_lazily
from puorl.data.training_set import TrainingSet

_WHOLE = ("column:", "episode")


class _Rows(NamedTuple):
    """Rows that were read together."""

    files: list[str]
    dataset: Dataset
    weight: np.ndarray | None
    """(n,) float32, or None where all rows count alike."""
    returns: tuple[float, float] | None


def read_training_set(
    paths: Sequence[str], *, next_action: bool = False, hold_out: str | None = None, **fields: Any
) -> TrainingSet:
    """Read all rows of all paths; ``metadata`` of the result lists the files.

    A folder of `puorl filter`, or its file of kept rows, also gives the range of returns of all
    its rows, and weights if it was written in the mode soft.

    Args:
        paths: Files, globs and folders.
        next_action: Whether to add the action that followed each row, where the data has none.
        hold_out: Condition over columns; rows where it holds are left out.
        **fields: Where each field is found, as for `load`; in what `puorl filter` wrote only
            ``reward`` counts, a formula or a column.

    Raises:
        DataError: Something cannot be read, or is named twice; no row or all rows are held out.
    """
    folders, plain = _separate(paths)
    parts = [_read_plain(plain, fields)] if plain or not folders else []
    parts += [_read_kept(folder, fields.get("reward"), alone=not plain) for folder in folders]
    dataset = Dataset.concatenate([part.dataset for part in parts])
    if next_action and dataset.next_action is None:
        dataset = dataset.with_next_action()
    ends = [end for part in parts if part.returns is not None for end in part.returns]
    weight = None
    if any(part.weight is not None for part in parts):
        weight = np.concatenate(
            [np.ones(len(p.dataset), np.float32) if p.weight is None else p.weight for p in parts]
        )
    returns = (min(ends), max(ends)) if ends else None
    if hold_out is not None:
        kept = ~dataset.where(hold_out)
        # No slip need it be: one condition may serve kept rows of filters that dropped its machine.
        absent = [f"--hold-out: {each}" for each in dataset.absent_values(hold_out)]
        dataset = dataset.with_notes(absent)
        if kept.all() or not kept.any():
            raise DataError(
                f"--hold-out {hold_out}: expected it to hold for some rows and not for all, got "
                f"{len(kept) - kept.sum():,} of {len(kept):,}"
            )
        dataset, weight = dataset[kept], None if weight is None else weight[kept]
    metadata = {"parts": [describe_rows(part.dataset, part.files) for part in parts]}
    return TrainingSet(dataset, np.arange(len(dataset)), weight, returns, metadata=metadata)


def as_training_set(data: TrainingSet | Dataset) -> TrainingSet:
    """Return rows as a training set; a dataset's own complete episodes scale IQL's rewards."""
    if isinstance(data, TrainingSet):
        return data
    if isinstance(data, Dataset):
        return TrainingSet.whole(data, return_range([data.rows]))
    raise ConfigError(
        f"train: expected a Dataset or what DomainFilter.filter gives, got {type(data).__name__}"
    )


def describe_rows(rows: Dataset, files: Sequence[str]) -> dict[str, Any]:
    """Return what a run records of its rows: files, number and fingerprint."""
    return {"files": list(files), "num_rows": len(rows), "fingerprint": rows.fingerprint}


def open_training_rows(
    paths: Sequence[str], **fields: Any
) -> tuple[LazyDataset, tuple[float, float] | None]:
    """Open rows that are not to be loaded; return them and the range of returns, where known.

    ``fields`` are those of `puorl.load`, except for what `puorl filter` wrote.
    """
    folders, plain = _separate(paths)
    if not folders:
        return open_lazily(plain, **fields), None
    if plain or len(folders) > 1:
        raise DataError("--chunk-rows: expected one folder of puorl filter, or files, not both")
    settings = read_settings(folders[0])
    file = folders[0] / settings.kept.file
    lazy = open_lazily(file)
    parts = list(lazy.verified)
    found = parts[0] if file.is_file() else hashing.of_settings({"parts": parts})
    hashing.check(file, settings.kept.fingerprint, found or "", repair="run the filter again")
    return lazy, settings.returns


def _separate(paths: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Separate folders of the filter from other paths."""
    folders: dict[Path, Path] = {}
    plain: list[str] = []
    for path in paths:
        is_pattern = glob.has_magic(path) and not os.path.exists(path)
        found = sorted(glob.glob(path, recursive=True)) if is_pattern else [path]
        for name in found or [path]:  # loading refuses a pattern that matches nothing
            folder = _filter_folder(Path(name))
            if folder is None:
                plain.append(name)
            elif folder.resolve() in folders:
                raise DataError(
                    f"{name}: is named twice, so its rows would count twice; name it once"
                )
            else:
                folders[folder.resolve()] = folder
    return list(folders.values()), plain


def _filter_folder(path: Path) -> Path | None:
    """Return the folder of `puorl filter`, if the path is one or its file of kept rows."""
    for folder in (path, path.parent):
        if (folder / SETTINGS).is_file() and (folder / FILTER_MARKER).is_file():
            if folder == path or folder / read_settings(folder).kept.file == path:
                return folder
    return None


def read_settings(folder: Path) -> FilterSettings:
    """Read the settings of a folder of `puorl filter`."""
    return read_as(FilterSettings, folder / SETTINGS)


def _read_plain(paths: list[str], fields: dict[str, Any]) -> _Rows:
    dataset = load(paths, **fields)
    files = [str(path) for path in expand(paths, ids=fields.get("format") == "minari")]
    return _Rows(files, dataset, None, return_range([dataset.rows]))


def _read_kept(folder: Path, reward: str | None, *, alone: bool) -> _Rows:
    settings = read_settings(folder)
    file = folder / settings.kept.file
    dataset, weight, returns = load_kept(folder, settings.kept), None, settings.returns
    if formula := _formula(reward, dataset, settings, alone=alone):
        try:
            dataset = dataset.with_reward(formula)
        except PuorlError as error:
            raise type(error)(f"{file}: --reward: {error}") from error
        # Kept rows hold whole episodes where units were decided about, or all rows are kept.
        is_whole = settings.is_soft or settings.arguments.get("unit", "").startswith(_WHOLE)
        returns = return_range([dataset.rows]) if is_whole else None
    if settings.is_soft:
        if WEIGHT not in dataset.columns:
            raise DataError(
                f"{file}: expected the column {WEIGHT} of the mode soft, got none; run the filter "
                "again"
            )
        weight = dataset.columns[WEIGHT].astype(np.float32)
    return _Rows([str(file)], dataset, weight, returns)


def _formula(
    reward: str | None, dataset: Dataset, settings: FilterSettings, *, alone: bool
) -> str | None:
    """Return what computes the reward of kept rows; None if they have the one that is named."""
    if not reward or is_formula(reward):
        return reward or None
    fields = settings.arguments.get("data", {})
    names = {*dataset.columns, *dataset.provenance.obs_names, *dataset.provenance.action_names}
    if reward not in names:
        is_named = reward in (fields.get("reward"), "reward") or not alone
        if is_named and dataset.reward is not None:
            return None
    return f"`{reward}`"
