"""Data made before: a file for each recipe, believed only if its content is as recorded."""

import logging
import os
from pathlib import Path

from puorl.core.errors import PuorlError
from puorl.core.files import read_json, write_json
from puorl.data.dataset import Dataset
from puorl.data.load import load
from puorl.data.save import save

_log = logging.getLogger(__name__)


class Cache:
    """A folder of datasets named by their recipe; several processes may use it at once.

    Files are written under another name and renamed, and a recipe always makes the same bytes on
    one machine, so it does not matter who comes last.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    def path(self, recipe: str) -> Path:
        """Where the rows of a recipe stand; their content's hash stands beside, as JSON."""
        return self.folder / f"{recipe}.hdf5"

    def read(self, recipe: str) -> Dataset | None:
        """The rows of a recipe, or None where there are none or they are damaged (logged)."""
        path = self.path(recipe)
        note = path.with_suffix(".json")
        if not (path.exists() and note.exists()):
            return None
        try:
            expected = read_json(note)["content"]
            dataset = load(path)
        except (PuorlError, KeyError, TypeError) as error:
            _log.warning("%s: damaged, made anew (%s)", path, error)
            return None
        found = dataset.provenance.recipe or {}
        if dataset.fingerprint != expected or found.get("recipe") != recipe:
            _log.warning("%s: damaged, made anew (its content is not as recorded)", path)
            return None
        return dataset

    def write(self, recipe: str, dataset: Dataset) -> None:
        """Keep the rows of a recipe; where that is impossible, a line is logged."""
        path = self.path(recipe)
        try:
            save(dataset, path, force=True)
            write_json(path.with_suffix(".json"), {"content": dataset.fingerprint}, force=True)
        except (OSError, PuorlError) as error:
            _log.warning("%s: not kept for later (%s)", path, error)


def default_folder() -> Path:
    """``$PUORL_CACHE``, or ``puorl`` in the user's cache folder."""
    chosen = os.environ.get("PUORL_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "puorl"
