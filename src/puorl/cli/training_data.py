"""What `puorl train` learns from: files of rows, and folders that `puorl filter` wrote."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from puorl.cli.filter_files import MARKER, RETURNS, SETTINGS, WEIGHT
from puorl.cli.options import DataOptions
from puorl.core.errors import DataError
from puorl.core.files import read_json
from puorl.data.dataset import Dataset
from puorl.data.episodes import return_range
from puorl.data.formats import expand, load
from puorl.data.training_set import TrainingSet


class _Part(NamedTuple):
    files: list[str]
    dataset: Dataset
    weight: np.ndarray | None
    """(n,) float32, or None where all rows count alike."""
    returns: tuple[float, float] | None


def read_training_set(
    paths: Sequence[str], options: DataOptions, *, next_action: bool
) -> TrainingSet:
    """All rows of all paths.

    A folder that `puorl filter` wrote, or the file of kept rows in it, brings the range of returns
    of the whole pool along, and its weights if it was written in the mode soft.

    What was read is told in ``about``: the files of each part, its rows and their fingerprint.

    Args:
        paths: Files, globs and folders.
        options: Where each field is found, in anything but what `puorl filter` wrote.
        next_action: Whether to add the action that followed each row, where the data does not
            name it.

    Raises:
        DataError: Something cannot be read, or is named twice.
    """
    from puorl.rl.run import describe_rows

    folders, plain = _sorted_out(paths)
    parts = [_plain_part(plain, options)] if plain or not folders else []
    parts += [_kept_part(folder) for folder in folders]
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
    about = {"parts": [describe_rows(part.dataset, part.files) for part in parts]}
    return TrainingSet(dataset, np.arange(len(dataset)), weight, returns, about=about)


def _sorted_out(paths: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Folders of the filter, and what else there is."""
    folders: dict[Path, Path] = {}
    plain: list[str] = []
    for path in paths:
        is_pattern = glob.has_magic(path) and not os.path.exists(path)
        found = sorted(glob.glob(path, recursive=True)) if is_pattern else [path]
        for name in found or [path]:  # what matches nothing is complained of in loading
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
    """The folder that `puorl filter` wrote, if the path is one or its kept rows."""
    for folder in (path, path.parent):
        if (folder / SETTINGS).is_file() and (folder / MARKER).is_file():
            if folder == path or _kept_file(folder) == path:
                return folder
    return None


def _kept_file(folder: Path) -> Path:
    return folder / _setting(folder, "kept", "file")


def _setting(folder: Path, *names: str) -> Any:
    content = read_json(folder / SETTINGS)
    try:
        for name in names:
            content = content[name]
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{folder / SETTINGS}: expected {'.'.join(names)} as puorl filter writes it, got none; "
            "run the filter again, or name its file of kept rows elsewhere"
        ) from error
    return content


def _plain_part(paths: list[str], options: DataOptions) -> _Part:
    dataset = options.load(paths)
    files = [str(path) for path in expand(paths, ids=options.format == "minari")]
    return _Part(files, dataset, None, return_range([dataset.rows]))


def _kept_part(folder: Path) -> _Part:
    dataset = load(_kept_file(folder))
    returns = _setting(folder, RETURNS)
    weight = None
    if _setting(folder, "arguments", "mode") == "soft":
        if WEIGHT not in dataset.columns:
            raise DataError(
                f"{_kept_file(folder)}: expected the column {WEIGHT} of the mode soft, got none; "
                "run the filter again"
            )
        weight = dataset.columns[WEIGHT].astype(np.float32)
    files = [str(_kept_file(folder))]
    return _Part(files, dataset, weight, None if returns is None else (returns[0], returns[1]))
