"""PUSplit: a few rows known to be the target's, and many of which nobody says whose they are.

Made once, saved as index files and hashes, read by every later stage. The truth, where a benchmark
knows it, stays behind `PUSplit.reveal`.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.formatting import parse_count
from puorl.core.hashing import generator
from puorl.data import draw, split_files
from puorl.data.dataset import Dataset, join_notes
from puorl.data.episodes import return_range
from puorl.data.transitions import Provenance, Transitions
from puorl.data.validate import LABELLED

Unit = Literal["transition", "episode"]
Sampling = Literal["one", "two"]
Purpose = Literal["oracle", "scoring", "benchmark"]


class HiddenTruth:
    """Where each pool row was drawn from; opened only through `PUSplit.reveal`."""

    def __init__(self, origin: draw.Draw) -> None:
        self._origin = origin

    def __repr__(self) -> str:
        return "HiddenTruth(...)"


@dataclass(frozen=True, eq=False)
class PUSplit:
    """One pool of rows, and two lists of positions in it."""

    pool: Dataset
    """All rows; their order says nothing about their domain when `make_split` drew them."""
    labelled: np.ndarray
    """(p,) int64 positions in the pool: known to be the target's."""
    unlabelled: np.ndarray
    """(u,) int64 positions in the pool: target and others, mixed."""
    labelled_part: np.ndarray
    """(p,) int8. Part of each labelled row: 0 train, 1 validation, 2 test; or a fold number."""
    unlabelled_part: np.ndarray
    """(u,) int8. The same for the unlabelled rows."""
    unit: Unit
    """What was drawn and labelled: rows (parts are 80/10/10) or episodes (parts are folds)."""
    sampling: Sampling
    """``one``: labels were cut from the pool's own rows; ``two``: they are a sample apart."""
    returns: tuple[float, float] | None
    """Smallest and largest return of complete episodes before drawing: scales IQL's rewards."""
    config: Mapping[str, Any]
    """How the split was made, JSON-ready."""
    truth: HiddenTruth | None = None
    """What `make_split` knows; None for a split of a user's own rows."""

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
        """A split of your own rows, of which some are known to be the target's.

        Args:
            dataset: All rows. For ``sampling="two"``, join the labelled file and the unlabelled
                one with `Dataset.concatenate` and mark the rows of the first.
            labelled: (n,) bool, or an expression such as ``"checked == 1"``; by default the
                column that ``load(label=...)`` made.
            sampling: ``one`` if the labelled rows were picked from the same pool, ``two`` if
                they are a sample of their own.
            unit: Hold out single rows, or fold over whole episodes.
            seed: Seed of the parts.

        Raises:
            DataError: No labelled rows, only labelled rows, or a mask that does not fit.
        """
        _check_choice("sampling", sampling, get_args(Sampling))
        _check_choice("unit", unit, get_args(Unit))
        mask = _mask(dataset, labelled)
        parts = _folds(dataset, mask, seed) if unit == "episode" else _hold_out(mask, seed)
        return cls(
            pool=dataset,
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
        """Pool positions of the labelled and the unlabelled rows of train, validation or test."""
        _check_choice("part", name, draw.PARTS)
        if self.unit != "transition":
            raise ConfigError(
                f"part {name!r}: a split of unit 'episode' has {draw.NUM_FOLDS} folds instead; "
                "use labelled_part and unlabelled_part"
            )
        k = draw.PARTS.index(name)
        return self.labelled[self.labelled_part == k], self.unlabelled[self.unlabelled_part == k]

    def reveal(self, purpose: Purpose) -> np.ndarray:
        """(n,) int32 over the pool: 0 for a target row, k for a row of the k-th other domain.

        Only oracle, scoring and benchmark code may ask; a test lists who does.

        Raises:
            DataError: Nobody knows: the split was made from a user's mask.
        """
        _check_choice("purpose", purpose, get_args(Purpose))
        if self.truth is None:
            raise DataError(
                "the truth of this split is unknown: it was made from a mask, not by make_split"
            )
        return _frozen(self.truth._origin.source)

    @property
    def fingerprint(self) -> str:
        """Hash of the pool's content and of every index."""
        arrays = {name: getattr(self, name) for name in split_files.INDEX_FIELDS}
        return hashing.of_settings(
            {"pool": self.pool.fingerprint, "index": hashing.of_arrays(arrays)}
        )

    def save(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write index files, hashes and settings; the rows stay where they are."""
        return split_files.write(self, folder, force=force)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        target: Dataset,
        others: Dataset | Sequence[Dataset] = (),
    ) -> "PUSplit":
        """Read a saved split over the same data; for `from_mask` splits pass the dataset alone.

        Raises:
            DataError: The data is not the data that was split.
        """
        saved = split_files.read(folder, [target, *_listed(others)])
        pool, truth = target, None
        if saved.origin is not None:
            pool = gather([target, *_listed(others)], saved.origin, saved.settings["unit"])
            truth = HiddenTruth(saved.origin)
        made = cls(pool=pool, truth=truth, **saved.index, **saved.settings)
        if made.fingerprint != saved.fingerprint:
            raise DataError(
                f"{folder}: made from other data: the rows given are not those that were split; "
                "pass the same target and others, in the same order"
            )
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Read-only mappings cannot travel between processes; plain ones can."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return _rebuilt, (values | {"config": dict(self.config)},)

    def __repr__(self) -> str:
        return (
            f"PUSplit({len(self.labelled):,} labelled, {len(self.unlabelled):,} unlabelled, "
            f"unit {self.unit}, {self.sampling}-sample)"
        )


def _rebuilt(values: dict[str, Any]) -> PUSplit:
    return PUSplit(**values)


def make_split(
    target: Dataset,
    others: Dataset | Sequence[Dataset],
    *,
    rows: int | str = 1_000_000,
    target_fraction: float = 0.3,
    labelled_fraction: float = 0.01,
    unit: Unit = "transition",
    seed: int,
    proportions: Sequence[float] | None = None,
) -> PUSplit:
    """Draw a benchmark split: domains are known here, hidden from everyone after.

    With the defaults this is the paper's protocol: 300,000 target rows, of which 10,000 are
    labelled, hidden among 700,000 others; 29/99 of the unlabelled rows are the target's.

    Args:
        target: Rows of the domain of interest.
        others: One or several other domains.
        rows: Size of the pool.
        target_fraction: Share of the pool that is the target's.
        labelled_fraction: Fraction of the pool that is labelled; of episodes, of the target's
            that comes to the same (``labelled_fraction / target_fraction``).
        unit: ``transition`` draws and labels single rows, with parts 80/10/10; ``episode`` draws
            and labels whole episodes (at least 5), with folds.
        seed: Seed; target rows and labels do not depend on ``others``.
        proportions: How the others share their rows; equal by default.

    Raises:
        DataError: A domain has too few rows, or shapes differ.
        ConfigError: A share is impossible.
    """
    others = _listed(others)
    rows = parse_count(rows, name="rows")
    _check_choice("unit", unit, get_args(Unit))
    weights = _proportions(proportions, len(others))
    _check_shares(target_fraction, labelled_fraction)
    num_target = round(rows * target_fraction)
    counts = [num_target, *draw.shares(rows - num_target, weights)]
    if unit == "transition":
        num_labelled = round(rows * labelled_fraction)
        if num_labelled < 1:
            raise ConfigError(
                f"labelled_fraction: {labelled_fraction} of {rows} rows is no row; raise it"
            )
        origin = draw.draw_rows(target, others, counts, num_labelled, seed)
    else:
        of_target = labelled_fraction / target_fraction
        origin = draw.draw_episodes(target, others, counts, of_target, seed)
    n = origin.num_labelled
    return PUSplit(
        pool=gather([target, *others], origin, unit),
        labelled=np.arange(n),
        unlabelled=np.arange(n, len(origin.row)),
        labelled_part=origin.part[:n],
        unlabelled_part=origin.part[n:],
        unit=unit,
        sampling="one",
        returns=return_range([target.rows, *(o.rows for o in others)]),
        config={
            "made_by": "make_split",
            "rows": rows,
            "target_fraction": float(target_fraction),
            "labelled_fraction": float(labelled_fraction),
            "unit": unit,
            "seed": int(seed),
            "proportions": weights,
        },
        truth=HiddenTruth(origin),
    )


def gather(sources: Sequence[Dataset], origin: draw.Draw, unit: Unit) -> Dataset:
    """The pool: drawn rows under the fields that all sources have, without extra columns.

    Nothing beside the rows' own values may tell the domains apart. Extra columns stay behind.
    Whole episodes get new numbers in random order and a clock that starts at 0. Rows drawn one by
    one have no episode and no time: unlabelled rows of the target would share both with labelled
    ones. Where one domain is float32, all are: the last digits would tell.
    """
    held = [s.rows.arrays() for s in sources]
    untold = ("episode", "time") if unit == "transition" else ()
    common = [name for name in held[0] if all(name in h for h in held) and name not in untold]
    places = [np.flatnonzero(origin.source == k) for k in range(len(sources))]
    fields = {}
    for name in common:
        dtype = min((h[name].dtype for h in held), key=lambda kind: kind.itemsize)
        fields[name] = np.empty((len(origin.row), *held[0][name].shape[1:]), dtype)
        for h, place in zip(held, places, strict=True):
            fields[name][place] = h[name][origin.row[place]]
    if "episode" in common:
        fields["episode"] = _renumbered(fields["episode"], origin.source)
    if {"episode", "time"} <= set(common):
        fields["time"] = _since_start(fields["time"], fields["episode"])
    notes = [note for s in sources for note in s.provenance.notes]
    if len({s.obs.dtype for s in sources}) > 1:
        notes.append(f"{fields['obs'].dtype} as the narrowest domain: precision would tell them")
    provenance = Provenance(
        source=tuple(text for s in sources for text in s.provenance.source),
        format="split",
        obs_names=sources[0].provenance.obs_names,
        action_names=sources[0].provenance.action_names,
        missing=tuple(dict.fromkeys(m for s in sources for m in s.provenance.missing)),
        notes=join_notes(notes),
    )
    return Dataset(Transitions(**fields), {}, provenance)


def _frozen(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _renumbered(episode: np.ndarray, source: np.ndarray) -> np.ndarray:
    # Numbers in any natural order would tell domains apart: the labelled rows stand first.
    _, codes = np.unique(episode, return_inverse=True)
    ids, codes = np.unique(codes * (int(source.max()) + 1) + source, return_inverse=True)
    return generator(0, "split", "episode ids").permutation(len(ids))[codes]


def _since_start(time: np.ndarray, episode: np.ndarray) -> np.ndarray:
    # A date would tell when, and so by which machine, an episode was recorded.
    _, first, codes = np.unique(episode, return_index=True, return_inverse=True)
    return time - time[first][codes]


def _mask(dataset: Dataset, labelled: np.ndarray | str | None) -> np.ndarray:
    if labelled is None:
        if LABELLED not in dataset.columns:
            raise DataError(
                "labelled: expected a mask, an expression, or data loaded with label=; got none"
            )
        labelled = dataset.columns[LABELLED]
    mask = dataset.where(labelled) if isinstance(labelled, str) else np.asarray(labelled)
    if mask.dtype != bool or mask.shape != (len(dataset),):
        raise DataError(
            f"labelled: expected {len(dataset)} true/false values, one a row, got shape "
            f"{mask.shape}, dtype {mask.dtype}"
        )
    if not mask.any():
        raise DataError("labelled: no row is labelled; at least a few target rows must be known")
    if mask.all():
        raise DataError("labelled: every row is labelled; there is nothing to choose from")
    return mask


def _hold_out(mask: np.ndarray, seed: int) -> np.ndarray:
    parts = np.empty(len(mask), np.int8)
    for name, rows in (("labelled", np.flatnonzero(mask)), ("unlabelled", np.flatnonzero(~mask))):
        shuffled = generator(seed, "split", "parts", name).permutation(rows)
        parts[shuffled] = draw.hold_out(len(rows))
    return parts


def _folds(dataset: Dataset, mask: np.ndarray, seed: int) -> np.ndarray:
    if dataset.episode is None:
        raise DataError("unit='episode' needs episode ids, and this dataset has none")
    every = draw.rows_by_episode(dataset.episode)
    parts = np.empty(len(mask), np.int8)
    touched = [e for e in every if mask[e].any()]
    rest = [e for e in every if not mask[e].any()]
    # Every fold needs labelled and unlabelled episodes: few of either make few folds.
    num_folds = max(1, min(draw.NUM_FOLDS, len(touched), len(rest)))
    for name, group in (("labelled", touched), ("unlabelled", rest)):
        order = generator(seed, "split", "parts", name).permutation(len(group))
        for place, i in enumerate(order):
            parts[group[i]] = place % num_folds
    return parts


def _listed(others: Dataset | Sequence[Dataset]) -> list[Dataset]:
    return [others] if isinstance(others, Dataset) else list(others)


def _proportions(proportions: Sequence[float] | None, count: int) -> list[float]:
    if count == 0:
        raise ConfigError("others: expected at least one other domain, got none")
    weights = [1.0] * count if proportions is None else [float(p) for p in proportions]
    if len(weights) != count or min(weights) <= 0 or not math.isfinite(sum(weights)):
        raise ConfigError(
            f"proportions: expected {count} positive numbers, one for each other domain, "
            f"got {proportions}"
        )
    return weights


def _check_shares(target_fraction: float, labelled_fraction: float) -> None:
    if not 0 < labelled_fraction < target_fraction < 1:
        raise ConfigError(
            "expected 0 < labelled_fraction < target_fraction < 1 (labelled rows are target rows), "
            "got "
            f"labelled_fraction {labelled_fraction}, target_fraction {target_fraction}"
        )


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
