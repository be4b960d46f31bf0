"""Dataset: transitions with extra columns, provenance and a fingerprint of their content."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from puorl.core.errors import DataError, require
from puorl.core.formatting import code_values
from puorl.data.actions import Discrete, base_name, column_names, in_order, one_hot, take_codes
from puorl.data.episodes import complete, next_actions, padded_runs
from puorl.data.expression import compute, evaluate
from puorl.data.label_values import Absent, absent_values, describe_values, labelled_rows
from puorl.data.transitions import MAX_STEP, Provenance, Transitions, join_notes
from puorl.data.validate import (
    FIELDS,
    LABELLED,
    SOURCE_ROW,
    RawRows,
    canonical,
    column,
    fingerprint,
    listed,
    repair,
)

T = TypeVar("T")
_MOST_EMPTIED = 1_000


@dataclass(frozen=True, eq=False)
class Dataset:
    """Transitions, extra columns and provenance; frozen: slices are views, changes new datasets.

    >>> import numpy as np
    >>> ds = Dataset.from_arrays(obs=np.arange(8.0).reshape(4, 2), action=np.zeros((4, 1)))
    >>> len(ds), ds.obs.shape, ds.next_obs[0].tolist()
    (3, (3, 2), [2.0, 3.0])
    """

    rows: Transitions
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Extra values, one a row: ids, labels, text."""
    provenance: Provenance = Provenance()

    def __post_init__(self) -> None:
        """Freeze the columns, and check their lengths and the number of codes."""
        codes, width = self.provenance.action_codes, self.rows.action.shape[1]
        if codes is not None and len(codes) != width:
            raise DataError(f"action: expected {len(codes)} one-hot columns, got {width}")
        frozen = {}
        for name, array in self.columns.items():
            if len(array) != len(self.rows):
                raise DataError(f"column {name}: {len(array)} values for {len(self.rows)} rows")
            view = array.view()
            view.flags.writeable = False
            frozen[name] = view
        object.__setattr__(self, "columns", MappingProxyType(frozen))

    @classmethod
    def from_arrays(
        cls,
        *,
        obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray | None = None,
        next_obs: np.ndarray | None = None,
        terminal: np.ndarray | None = None,
        timeout: np.ndarray | None = None,
        episode: np.ndarray | None = None,
        time: np.ndarray | None = None,
        next_action: np.ndarray | None = None,
        columns: Mapping[str, np.ndarray] | None = None,
        provenance: Provenance | None = None,
        discrete_actions: Discrete = None,
    ) -> "Dataset":
        """Check and copy arrays and make a dataset of them.

        Args:
            obs: (n, d) numbers.
            action: (n, m) numbers, or (n,) codes: texts or whole numbers.
            reward: (n,) numbers.
            next_obs: (n, d) numbers; if absent, taken from the next row of the episode, and rows
                without one are dropped.
            terminal: (n,) flags: the task ended here.
            timeout: (n,) flags: the record was cut here.
            episode: (n,) ids, numbers or text.
            time: (n,) numbers.
            next_action: (n, m) numbers.
            columns: Extra values, (n,) each.
            provenance: Origin of the rows.
            discrete_actions: As for `puorl.data.formats.load`.

        Raises:
            DataError: The arrays do not describe rows.
        """
        given = {name: value for name, value in locals().items() if name in FIELDS}
        raw = RawRows(
            format="arrays",
            arrays={name: _own_array(name, a) for name, a in given.items() if a is not None},
            columns={name: _own_array(name, a) for name, a in (columns or {}).items()},
        )
        if provenance is not None and discrete_actions is None:
            discrete_actions = provenance.action_codes
        made = cls.from_raw(raw, source="arrays", discrete_actions=discrete_actions)
        if provenance is None:
            return made
        missing, notes = made.provenance.missing, provenance.notes + made.provenance.notes
        codes = made.provenance.action_codes
        names = provenance.action_names if codes is None else made.provenance.action_names
        provenance = dataclasses.replace(
            provenance, missing=missing, notes=notes, action_codes=codes, action_names=names
        )
        return dataclasses.replace(made, provenance=provenance)

    @classmethod
    def from_raw(
        cls,
        raw: RawRows,
        *,
        source: str,
        missing: str = "error",
        gap: float = MAX_STEP,
        step: float | None = None,
        discrete_actions: Discrete = None,
        needed: Sequence[str] = (),
        is_part: bool = False,
    ) -> "Dataset":
        """Check and complete the raw rows of a reader; every file becomes a dataset this way.

        ``needed`` are columns in which an empty cell counts as missing. Where the rows are a part
        of more (``is_part``), no row need be left, and ``step`` is the median step of the clock.
        """
        raw.note_unnamed(needed)
        take_codes(raw, discrete_actions, source=source)
        usable = repair(raw, missing, source=source, is_part=is_part)
        fields = canonical(usable.arrays, source=source)
        if raw.action_codes is not None:
            encoded = [name for name in ("action", "next_action") if name in fields]
            fields |= {name: one_hot(fields[name], len(raw.action_codes)) for name in encoded}
        ours = raw.provenance is not None  # absent fields were absent in the saved dataset too
        done = complete(
            fields,
            source=source,
            number_episodes=not ours,
            gap=gap,
            step=step,
            valid=usable.valid,
            lost=usable.lost,
            is_part=is_part,
        )
        columns: dict[str, np.ndarray] = {}
        emptied: list[tuple[str, str]] = []
        for name, array in raw.columns.items():
            array = column(name, array, source=source)
            if len(array) != len(fields["obs"]):
                raise DataError(
                    f"{source}: column {name} has {len(array)} rows where obs has "
                    f"{len(fields['obs'])}; they must match"
                )
            columns[name] = array if done.kept is None else array[done.kept]
            if done.kept is not None and name != SOURCE_ROW:
                emptied += [(name, value) for value in _emptied(array, columns[name])]
        notes = [*raw.notes, *usable.notes, *done.notes]
        if gap != MAX_STEP:
            notes.append(f"time: only steps over {gap:g} x the median are gaps, as asked")
        if done.kept is not None:
            if SOURCE_ROW in columns:
                notes.append(f"{SOURCE_ROW}: the file's own column of this name gave way to ours")
            columns[SOURCE_ROW] = done.kept
        provenance = raw.provenance
        if provenance is not None and done.kept is not None:
            provenance = dataclasses.replace(
                provenance,
                emptied=(*provenance.emptied, *emptied),
                notes=(*provenance.notes, *notes),
            )
        if provenance is not None:
            provenance = dataclasses.replace(provenance, keys=tuple(raw.keys.items()))
        provenance = provenance or Provenance(
            source=(source,),
            format=raw.format,
            obs_names=raw.obs_names,
            action_names=raw.action_names,
            action_range=raw.action_range,
            action_codes=raw.action_codes,
            clock=raw.clock,
            keys=tuple(raw.keys.items()),
            missing=done.missing,
            emptied=tuple(emptied),
            notes=tuple(notes),
        )
        return cls(done.rows, columns, provenance)

    @classmethod
    def concatenate(cls, parts: Sequence["Dataset"]) -> "Dataset":
        """Join datasets of the same shape; episodes of different parts stay different.

        Fields and columns that only some parts have are dropped, with a note.
        """
        if not parts:
            raise DataError("expected at least one dataset to join, got none")
        return parts[0] if len(parts) == 1 else _joined(parts)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice | np.ndarray) -> "Dataset":
        """Select rows by slice (a view), by mask or by index array (a copy)."""
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
        columns = {name: array[rows] for name, array in self.columns.items()}
        return Dataset(self.rows[rows], columns, self.provenance)

    def where(self, condition: str, keys: Mapping[str, str] | None = None) -> np.ndarray:
        """(n,) bool. Evaluate an expression over the columns for every row.

        Args:
            condition: E.g. ``"robot == 'A7' and checked == 1"``. Columns, named state and action
                columns, and the fields reward, terminal, timeout, episode and time can be used.
            keys: Field to another name of it in the condition.
        """
        return evaluate(condition, self._named(keys))

    def labelled_where(self, condition: str, subject: str = "labelled") -> np.ndarray:
        """(n,) bool. Evaluate a condition on labels, which must not name texts that no row has.

        Args:
            condition: As for `where`.
            subject: Beginning of messages.

        Raises:
            DataError: It holds for no row, or names a text that no row has beside others.
        """
        columns = self._named(None)
        mask = labelled_rows(condition, columns, subject, self.provenance.emptied)
        if not mask.any():
            raise DataError(
                f"{subject}: expected a condition that holds for some of {len(self):,} rows, got "
                f"0 of {len(self):,} for {condition}"
                + describe_values(condition, columns, self.provenance.emptied)
            )
        return mask

    def absent_values(
        self, condition: str, keys: Mapping[str, str] | None = None
    ) -> "list[Absent]":
        """Return the values that a condition names and no row has; arguments as for `where`."""
        return absent_values(condition, self._named(keys), self.provenance.emptied)

    def with_notes(self, notes: Sequence[str]) -> "Dataset":
        """Return the same rows with more notes on them."""
        if not notes:
            return self
        provenance = dataclasses.replace(self.provenance, notes=(*self.provenance.notes, *notes))
        return dataclasses.replace(self, provenance=provenance)

    def with_reward(self, formula: str, keys: Mapping[str, str] | None = None) -> "Dataset":
        """Return the same rows with another reward.

        Args:
            formula: E.g. ``"-abs(pressure - 5) - 0.01 * power"``, over the names of `where`.
            keys: Field to another name of it in the formula.
        """
        reward = compute(formula, self._named(keys)).astype(self.obs.dtype)
        missing = tuple(name for name in self.provenance.missing if name != "reward")
        notes = (*self.provenance.notes, f"reward: computed as {formula}")
        named = tuple((dict(self.provenance.keys) | {"reward": formula}).items())
        provenance = dataclasses.replace(self.provenance, keys=named, missing=missing, notes=notes)
        rows = dataclasses.replace(self.rows, reward=reward)
        return dataclasses.replace(self, rows=rows, provenance=provenance)

    def _named(self, keys: Mapping[str, str] | None) -> dict[str, np.ndarray]:
        """Return all columns with one value a row, by all their names."""
        names = {k: v for k, v in self.rows.arrays().items() if v.ndim == 1}
        names |= {key: names[k] for k, key in (keys or {}).items() if k in names}
        names |= dict(zip(self.provenance.obs_names, self.obs.T, strict=False))
        origin, codes = self.provenance, self.action_codes
        if codes is not None:
            values = np.array(code_values(codes))
            names[base_name(origin.action_names, codes)] = values[self.action_index]
        else:
            names |= dict(zip(origin.action_names, self.action.T, strict=False))
        return names | dict(self.columns)

    @property
    def used_columns(self) -> dict[str, Any]:
        """Field to its columns in the source: lists for state and action, JSON-ready."""
        origin, codes = self.provenance, self.action_codes
        action = origin.action_names
        if codes is not None:
            action = (base_name(action, codes),)
        return {"obs": list(origin.obs_names), "action": list(action), **dict(origin.keys)}

    def to_arrow(self) -> Any:
        """Return all fields and columns as a pyarrow Table, under their names in the source."""
        return import_module("puorl.data.parquet").to_table(self)

    def to_pandas(self) -> Any:
        """Return all fields and columns as a pandas DataFrame."""
        require("pandas", purpose="making a pandas DataFrame")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return all fields and columns as a polars DataFrame."""
        return require("polars", purpose="making a polars DataFrame").from_arrow(self.to_arrow())

    def to_d3rlpy(self) -> Any:
        """Return the rows as d3rlpy's MDPDataset, in which every row is a usable transition.

        Each run of following rows is an episode. One that was cut has a last step more, which holds
        the last next state; d3rlpy learns from all steps but that one. Discrete actions are given
        as positions among ``action_codes``.

        Raises:
            DataError: There are no rewards.
        """
        d3rlpy = require("d3rlpy", purpose="making d3rlpy's MDPDataset")
        arrays = {name: a.astype(np.float32) for name, a in padded_runs(self.rows).items()}
        if self.action_codes is None:
            return d3rlpy.dataset.MDPDataset(**arrays, action_space=d3rlpy.ActionSpace.CONTINUOUS)
        arrays["actions"] = arrays["actions"].argmax(axis=1)[:, None].astype(np.int32)
        return d3rlpy.dataset.MDPDataset(
            **arrays, action_space=d3rlpy.ActionSpace.DISCRETE, action_size=len(self.action_codes)
        )

    def with_action_codes(self, codes: Sequence[str]) -> "Dataset":
        """Return the same rows with more codes, or in another order.

        Raises:
            DataError: Actions are continuous, or a code of the rows is not among them.
        """
        own, codes = self.action_codes, tuple(codes)
        if own is None or set(own) - set(codes):
            found = "continuous actions" if own is None else listed(own)
            raise DataError(f"action: expected codes among {listed(codes)}, got {found}")
        place = [own.index(code) if code in own else len(own) for code in codes]
        fields = self.rows.arrays()
        for name in ("action", "next_action"):
            if name in fields:
                unused = fields[name][:, :1] * 0  # NaN where the next action is unknown
                fields[name] = np.concatenate([fields[name], unused], axis=1)[:, place]
        base = base_name(self.provenance.action_names, own)
        provenance = dataclasses.replace(
            self.provenance, action_codes=codes, action_names=column_names(base, codes)
        )
        return Dataset(Transitions(**fields), self.columns, provenance)

    def with_next_action(self) -> "Dataset":
        """Return the same rows with next actions; call it before rows are drawn."""
        rows = dataclasses.replace(self.rows, next_action=next_actions(self.rows))
        return dataclasses.replace(self, rows=rows)

    def with_labels(
        self, mask: np.ndarray, cause: str = "the labels", notes: Sequence[str] = ()
    ) -> "Dataset":
        """Return the same rows with the column of labels, and notes on them."""
        notes = [*self.provenance.notes, *notes]
        if LABELLED in self.columns:
            notes.append(f"{LABELLED}: the file's own column of this name gave way to {cause}")
        provenance = dataclasses.replace(self.provenance, notes=tuple(notes))
        return Dataset(self.rows, {**self.columns, LABELLED: mask}, provenance)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all values in rows and columns."""
        return fingerprint(self.rows.arrays(), self.columns, self.action_codes)

    @property
    def num_episodes(self) -> int | None:
        """Number of episodes; None if they are unknown."""
        return None if self.episode is None else len(np.unique(self.episode))

    @property
    def obs(self) -> np.ndarray:
        """(n, d) float. State before the action."""
        return self.rows.obs

    @property
    def action(self) -> np.ndarray:
        """(n, m) float. Intended action; one-hot for discrete actions."""
        return self.rows.action

    @property
    def action_codes(self) -> tuple[str, ...] | None:
        """Code of each one-hot action column; None for continuous actions."""
        return self.provenance.action_codes

    @property
    def action_index(self) -> np.ndarray:
        """(n,) int64. Position of each row's action among the codes.

        Raises:
            DataError: Actions are continuous.
        """
        if self.action_codes is None:
            raise DataError("action_index: expected discrete actions, got continuous ones")
        return self.action.argmax(axis=1)

    @property
    def reward(self) -> np.ndarray | None:
        """(n,) float, or None where none was logged."""
        return self.rows.reward

    @property
    def next_obs(self) -> np.ndarray:
        """(n, d) float. State after the action."""
        return self.rows.next_obs

    @property
    def terminal(self) -> np.ndarray:
        """(n,) bool. The task ended here."""
        return self.rows.terminal

    @property
    def timeout(self) -> np.ndarray:
        """(n,) bool. The record was cut here."""
        return self.rows.timeout

    @property
    def episode(self) -> np.ndarray | None:
        """(n,) int64 ids, or None where unknown."""
        return self.rows.episode

    @property
    def time(self) -> np.ndarray | None:
        """(n,) float64 stamps, or None where not logged."""
        return self.rows.time

    @property
    def next_action(self) -> np.ndarray | None:
        """(n, m) float, or None; see `with_next_action`."""
        return self.rows.next_action

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the columns as a plain dict: read-only mappings cannot be pickled."""
        return Dataset, (self.rows, dict(self.columns), self.provenance)

    def __repr__(self) -> str:
        episodes_text = "unknown" if self.num_episodes is None else f"{self.num_episodes:,}"
        codes = "" if self.action_codes is None else " codes"
        return (
            f"Dataset({len(self):,} rows, {episodes_text} episodes, obs {self.obs.shape[1]}, "
            f"action {self.action.shape[1]}{codes}, {self.provenance.format}, "
            f"{self.fingerprint[:12]})"
        )


def _emptied(before: np.ndarray, after: np.ndarray) -> list[str]:
    """Return the values of which no row is left; none for numbers with fractions, or too many."""
    if before.dtype.kind not in "biuU":
        return []
    values = np.setdiff1d(before, after)
    return values.astype(str).tolist() if len(values) <= _MOST_EMPTIED else []


def _own_array(name: str, values: Any) -> np.ndarray:
    """Copy an array."""
    if np.ma.is_masked(values):
        raise DataError(
            f"arrays: {name}: expected a value in every place, got {np.ma.count_masked(values)} "
            "masked ones; remove those rows, or fill them, before"
        )
    try:
        array = np.array(values, subok=False)
    except ValueError as error:
        raise DataError(f"arrays: {name}: expected rows of equal length, got: {error}") from error
    if array.dtype == object and all(isinstance(each, str) for each in array.flat):
        return array.astype(str)  # as pandas holds text
    return array


def _with_common_codes(parts: Sequence[Dataset]) -> Sequence[Dataset]:
    """Give all parts the codes of all, if actions are discrete."""
    kinds = {p.action_codes for p in parts}
    if len(kinds) == 1:
        return parts
    if None in kinds:
        of = [next(p for p in parts if (p.action_codes is None) == no) for no in (False, True)]
        names = [", ".join(p.provenance.source[:1]) for p in of]
        raise DataError(
            f"expected one kind of actions in all parts, got discrete ones in {names[0]} and "
            f"continuous ones in {names[1]}; say which with --action-kind (discrete_actions=)"
        )
    codes = in_order(code for p in parts for code in p.action_codes or ())
    return [p.with_action_codes(codes) for p in parts]


def _joined(parts: Sequence[Dataset]) -> Dataset:
    parts = _with_common_codes(parts)
    shapes = {(p.obs.shape[1], p.action.shape[1]) for p in parts}
    if len(shapes) > 1:
        raise DataError(
            "expected equal state and action sizes in all parts, got (obs, action) = "
            f"{sorted(shapes)}"
        )
    for what in ("obs_names", "action_names"):
        named = {names for p in parts if (names := getattr(p.provenance, what))}
        if len(named) > 1:
            raise DataError(
                f"expected the same {what} in all parts, got {', '.join(map(str, sorted(named)))}; "
                "name the columns of obs and action in one order"
            )
    held = [p.rows.arrays() for p in parts]
    common = [k for k in held[0] if all(k in h for h in held)]
    # Row numbers of several files would look like those of one file.
    offered = {k for p in parts for k in p.columns} - {SOURCE_ROW}
    labels = [k for k in parts[0].columns if k in offered and _can_join(k, parts)]
    lost = sorted({k for h in held for k in h} - set(common)) + sorted(offered - set(labels))
    fields = {k: np.concatenate([h[k] for h in held]) for k in common}
    if "episode" in common:
        fields["episode"] = _distinct_episodes([h["episode"] for h in held])
    notes = [note for p in parts for note in p.provenance.notes]
    if "episode" in common:
        notes.append("episode: renumbered over all parts, whose own numbers may be equal")
    if lost:
        notes.append(f"not in every part, or not of one kind, so left out: {', '.join(lost)}")
    first = parts[0].provenance
    provenance = dataclasses.replace(
        first,
        source=tuple(s for p in parts for s in p.provenance.source),
        format="+".join(dict.fromkeys(p.provenance.format for p in parts)),
        domain=_shared([p.provenance.domain for p in parts]),
        behaviour=_shared([p.provenance.behaviour for p in parts]),
        recipe=None,
        action_range=_shared([p.provenance.action_range for p in parts]),
        clock=_shared([p.provenance.clock for p in parts]),
        keys=tuple(k for k in first.keys if all(k in p.provenance.keys for p in parts)),
        missing=tuple(dict.fromkeys(m for p in parts for m in p.provenance.missing)),
        notes=join_notes(notes),
    )
    columns = {k: np.concatenate([p.columns[k] for p in parts]) for k in labels}
    pairs = dict.fromkeys(pair for p in parts for pair in p.provenance.emptied)
    found = {name: set(columns[name].astype(str)) for name in {k for k, _ in pairs} & set(labels)}
    emptied = tuple((k, value) for k, value in pairs if k in found and value not in found[k])
    provenance = dataclasses.replace(provenance, emptied=emptied)
    return Dataset(Transitions(**fields), columns, provenance)


def _can_join(name: str, parts: Sequence[Dataset]) -> bool:
    """Return whether all parts have the column, and all or none as text."""
    kinds = [p.columns[name].dtype.kind == "U" for p in parts if name in p.columns]
    return len(kinds) == len(parts) and len(set(kinds)) == 1


def _distinct_episodes(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Renumber episodes so that ids of different parts differ."""
    result, start = [], 0
    for episode in parts:
        _, codes = np.unique(episode, return_inverse=True)
        result.append(codes.astype(np.int64) + start)
        start += int(codes.max()) + 1 if len(codes) else 0
    return np.concatenate(result)


def _shared(values: Sequence[T | None]) -> T | None:
    return values[0] if len(set(values)) == 1 else None
