"""PUSplit: a few labelled rows of the target domain, and many unlabelled rows of any domain.

A split is made once, saved as index files and hashes, and read by every later stage. The true
domains, where a benchmark knows them, are reached only through `PUSplit.reveal`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

import puorl.data.split_files as split_files
from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.formatting import check_choice
from puorl.data.dataset import Dataset
from puorl.data.episodes import return_range
from puorl.data.parts import PARTS, Draw, gather, labelled_mask, parts_of_mask, with_note_on_copies
from puorl.data.transitions import find_originals

Unit = Literal["transition", "episode"]
Sampling = Literal["one", "two"]
Parts = Literal["mixed", "stratified"]
Purpose = Literal["oracle", "scoring", "benchmark"]


class HiddenTruth:
    """True domain of each pool row; read only through `PUSplit.reveal`."""

    def __init__(self, origin: Draw) -> None:
        self._origin = origin

    def __repr__(self) -> str:
        return "HiddenTruth(...)"


@dataclass(frozen=True, eq=False)
class PUSplit:
    """A pool of rows, and the positions of its labelled and unlabelled rows."""

    pool: Dataset
    """All rows; with `make_split` their order is independent of their domain."""
    labelled: np.ndarray
    """(p,) int64 positions in the pool: rows known to be of the target domain."""
    unlabelled: np.ndarray
    """(u,) int64 positions in the pool: rows of the target and of other domains."""
    labelled_part: np.ndarray
    """(p,) int8. Part of each labelled row: 0 train, 1 validation, 2 test; or a fold number."""
    unlabelled_part: np.ndarray
    """(u,) int8. The same for the unlabelled rows."""
    unit: Unit
    """Drawn and labelled unit: rows (parts are 80/10/10) or episodes (parts are folds)."""
    sampling: Sampling
    """``one``: labelled rows were picked from the pool; ``two``: they are a separate sample."""
    returns: tuple[float, float] | None
    """Smallest and largest return of complete episodes before drawing; scales IQL's rewards."""
    config: Mapping[str, Any]
    """Settings of the split, JSON-ready."""
    truth: HiddenTruth | None = None
    """Known to `make_split`; None for a split of a user's own rows."""

    def __post_init__(self) -> None:
        """Freeze the index arrays and the settings."""
        for name in split_files.INDEX_FIELDS:
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        object.__setattr__(self, "config", MappingProxyType(dict(self.config)))

    @classmethod
    def from_mask(
        cls,
        dataset: Dataset,
        labelled: np.ndarray | str | None = None,
        *,
        sampling: Sampling = "one",
        unit: Unit = "transition",
        seed: int = 0,
    ) -> "PUSplit":
        """Make a split of a user's own rows.

        Args:
            dataset: All rows. For ``sampling="two"``, join the labelled and the unlabelled file
                with `Dataset.concatenate` and mark the rows of the first.
            labelled: (n,) bool, or an expression such as ``"checked == 1"``; by default the
                column that ``load(label=...)`` made.
            sampling: ``one`` if the labelled rows were picked from the same pool, ``two`` if
                they are a separate sample.
            unit: Hold out single rows, or fold over whole episodes.
            seed: Seed of the parts.

        Raises:
            DataError: No labelled rows, only labelled rows, or a mask that does not fit.
        """
        check_choice("sampling", sampling, get_args(Sampling))
        check_choice("unit", unit, get_args(Unit))
        mask = labelled_mask(dataset, labelled)
        original = find_originals(dataset.rows, np.argsort(~mask, kind="stable"))
        parts = parts_of_mask(dataset, mask, unit, seed, original)
        return cls(
            pool=with_note_on_copies(dataset, original),
            labelled=np.flatnonzero(mask),
            unlabelled=np.flatnonzero(~mask),
            labelled_part=parts[mask],
            unlabelled_part=parts[~mask],
            unit=unit,
            sampling=sampling,
            returns=return_range([dataset.rows]),
            config={"made_by": "from_mask", "sampling": sampling, "unit": unit, "seed": int(seed)},
        )

    def part(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of labelled and unlabelled rows of train, validation or test."""
        check_choice("part", name, PARTS)
        if self.unit != "transition":
            raise ConfigError(f"part {name!r}: unit 'episode' has folds; use labelled_part instead")
        k = PARTS.index(name)
        return self.labelled[self.labelled_part == k], self.unlabelled[self.unlabelled_part == k]

    def reveal(self, purpose: Purpose) -> np.ndarray:
        """Return the true domain of each pool row, (n,) int32: 0 is the target, k the k-th other.

        Only oracle, scoring and benchmark code may call it; a test lists all callers.

        Raises:
            DataError: The domains are unknown: the split was made from a user's mask.
        """
        check_choice("purpose", purpose, get_args(Purpose))
        if self.truth is None:
            raise DataError(
                "the truth of this split is unknown: it was made from a mask, not by make_split"
            )
        return _frozen(self.truth._origin.source)

    @cached_property
    def originals(self) -> np.ndarray | None:
        """(n,) int64. First pool row with the same values, labelled before others; None if none."""
        return find_originals(self.pool.rows, np.concatenate([self.labelled, self.unlabelled]))

    @property
    def fingerprint(self) -> str:
        """Hash of the pool's content and of all index arrays."""
        arrays = {name: getattr(self, name) for name in split_files.INDEX_FIELDS}
        return hashing.of_settings(
            {"pool": self.pool.fingerprint, "index": hashing.of_arrays(arrays)}
        )

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write index files, hashes and settings, but no rows."""
        return split_files.write(self, folder, force=force)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        target: Dataset,
        others: Dataset | Sequence[Dataset] = (),
    ) -> "PUSplit":
        """Read a saved split of the same data; for `from_mask` splits pass the dataset alone.

        Raises:
            DataError: The data is not the data that was split.
        """
        sources = [target, *([others] if isinstance(others, Dataset) else others)]
        saved = split_files.read(folder, sources)
        pool, truth = target, None
        if saved.origin is not None:
            pool = gather(sources, saved.origin, saved.settings["unit"])
            truth = HiddenTruth(saved.origin)
        made = cls(pool=pool, truth=truth, **saved.index, **saved.settings)
        if made.fingerprint != saved.fingerprint:
            raise DataError(
                f"{folder}: made from other data: the rows given are not those that were split; "
                "pass the same target and others, in the same order"
            )
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings as a plain dict: read-only mappings cannot be pickled."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return PUSplit, tuple((values | {"config": dict(self.config)}).values())

    def __repr__(self) -> str:
        return (
            f"PUSplit({len(self.labelled):,} labelled, {len(self.unlabelled):,} unlabelled, "
            f"unit {self.unit}, {self.sampling}-sample)"
        )


def _frozen(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
