"""Inputs of `puorl train`: rows of files and of filter folders, and settings of the learner."""

import difflib
import glob
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np

from puorl.cli.options import DataOptions
from puorl.core.errors import ConfigError, DataError, PuorlError
from puorl.core.formatting import parse_count
from puorl.core.run_folder import FILTER_MARKER, SETTINGS, WEIGHT, FilterSettings, read_as
from puorl.data.dataset import Dataset
from puorl.data.episodes import return_range
from puorl.data.formats import expand, load_kept
from puorl.data.formula import is_formula
from puorl.data.lazy import LazyDataset
from puorl.data.lazy import open as open_lazily
from puorl.data.training_set import TrainingSet
from puorl.rl.learner import presets
from puorl.rl.run import describe_rows

_LARGEST = 3.4e38
"""Learners compute with float32."""
_WHOLE = ("column:", "episode")
_MAY_BE_NEGATIVE = ("log_std_offset",)
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class _Rows(NamedTuple):
    """Rows that were read together."""

    files: list[str]
    dataset: Dataset
    weight: np.ndarray | None
    """(n,) float32, or None where all rows count alike."""
    returns: tuple[float, float] | None


def read_training_set(
    paths: Sequence[str], options: DataOptions, *, next_action: bool
) -> TrainingSet:
    """Read all rows of all paths; ``metadata`` of the result lists the files.

    A folder of `puorl filter`, or its file of kept rows, also gives the range of returns of all
    its rows, and weights if it was written in the mode soft.

    Args:
        paths: Files, globs and folders.
        options: Where each field is found, except in what `puorl filter` wrote; there only the
            reward counts, a formula or a column.
        next_action: Whether to add the action that followed each row, where the data has none.

    Raises:
        DataError: Something cannot be read, or is named twice.
    """
    folders, plain = _separate(paths)
    parts = [_read_plain(plain, options)] if plain or not folders else []
    parts += [_read_kept(folder, options.reward, alone=not plain) for folder in folders]
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
    metadata = {"parts": [describe_rows(part.dataset, part.files) for part in parts]}
    return TrainingSet(dataset, np.arange(len(dataset)), weight, returns, metadata=metadata)


def open_training_rows(
    paths: Sequence[str], **names: Any
) -> tuple[LazyDataset, tuple[float, float] | None]:
    """Open rows that are not to be loaded; return them and the range of returns, where known.

    ``names`` are those of `puorl.load`, except for what `puorl filter` wrote.

    Raises:
        DataError: Folders of `puorl filter` beside other paths.
    """
    folders, plain = _separate(paths)
    if not folders:
        return open_lazily(plain, **names), None
    if plain or len(folders) > 1:
        raise DataError("--chunk-rows: expected one folder of puorl filter, or files, not both")
    settings = read_settings(folders[0])
    return open_lazily(folders[0] / settings.kept.file), settings.returns


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


def _read_plain(paths: list[str], options: DataOptions) -> _Rows:
    dataset = options.load(paths)
    files = [str(path) for path in expand(paths, ids=options.format == "minari")]
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


# ------------------------------------------------------------------------------ settings


def parse_settings(learner: str, words: Sequence[str]) -> dict[str, Any]:
    """Parse settings of a learner, each to the type of its field.

    Args:
        learner: Name of the learner.
        words: Each ``name=value``: ``gamma=0.98``, ``layer_norm=false``, ``hidden=64,64``.

    Raises:
        ConfigError: No such learner or setting, or a value of another type.
    """
    return parse_fields(learner, type(presets(learner)["default"]), words)


def parse_fields(subject: str, kind: type, words: Sequence[str]) -> dict[str, Any]:
    """Parse words ``name=value``, each to the type of the field of a dataclass.

    Args:
        subject: What has these settings, for messages.
        kind: The dataclass.
        words: E.g. ``gamma=0.98``, ``layer_norm=false``, ``hidden=64,64``.

    Raises:
        ConfigError: No such field, or a value of another type.
    """
    types = get_type_hints(kind)
    settings: dict[str, Any] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        name = name.replace("-", "_")
        if not equals:
            raise ConfigError(f"--set: expected name=value, got {word!r}")
        if name not in types:
            near = difflib.get_close_matches(name, types, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(
                f"--set: expected a setting of {subject} among {', '.join(sorted(types))}, "
                f"got {name!r}{hint}"
            )
        if name in settings:
            raise ConfigError(f"--set: expected {name} once, got it twice")
        settings[name] = _typed(name, types[name], text)
    return settings


def _typed(name: str, kind: Any, text: str) -> Any:
    if kind is bool:
        if text.lower() not in _FLAGS:
            raise ConfigError(f"--set {name}: expected true or false, got {text!r}")
        return _FLAGS[text.lower()]
    if kind is int:
        return _count(name, text)
    if kind is float:
        return _number(name, text)
    if kind == tuple[int, ...]:
        return tuple(_count(name, part) for part in text.split(","))
    return text


def _count(name: str, text: str) -> int:
    count = parse_count(text, name=f"--set {name}")
    if count < 1:
        raise ConfigError(f"--set {name}: expected 1 or more, got {text!r}")
    return count


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    limits = (
        (abs(number) <= _LARGEST, "a number such as 0.5 or 3e-4"),  # NaN fails, too
        (number > 0.0 or not name.endswith("learning_rate"), "more than 0"),
        (number >= 0.0 or name in _MAY_BE_NEGATIVE, "0 or more"),
        (number <= 1.0 or name != "tau", "a fraction from 0 to 1"),
        # Values of an endless task are bounded only where later rewards count for less.
        (number < 1.0 or name != "gamma", "0 or more and less than 1"),
    )
    for holds, expected in limits:
        if not holds:
            raise ConfigError(f"--set {name}: expected {expected}, got {text!r}")
    return number
