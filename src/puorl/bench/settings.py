"""Settings of the benchmark as data: the target's rows, the other rows, the labelled rows.

A setting is a shift, a body, a pair of qualities and a labelled fraction; the sources of its rows
follow from these.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from puorl.core import hashing
from puorl.core.errors import ConfigError
from puorl.data.dataset import Dataset
from puorl.data.draw import make_split
from puorl.data.split import PUSplit
from puorl.envs.behaviour import standard_version
from puorl.envs.bodies import body as body_of
from puorl.envs.collect import collect
from puorl.envs.domains import negatives

Shift = Literal[
    "body_mass", "mixture", "entire_body", "reward",
    "gravity", "friction", "kinematic", "morphology",
]  # fmt: skip
SHIFTS: tuple[str, ...] = get_args(Shift)
QUALITIES = {"ME": "medium-expert", "M": "medium", "R": "random"}
"""Behaviour as the tables of the benchmark abbreviate it."""

RENAMED_FIELDS = {
    "labelled_share": "labelled_fraction",
    "target_share": "target_fraction",
    "policy_every": "policy_delay",
    "kept_share": "kept_fraction",
}
"""Fields of settings, learners and findings: the name in rows of version 0.1.0 to the new name."""
RENAMED_COLUMNS = {"about": "metadata", "content": "content_hash"}
"""Columns of rows and of prepared sets: the name in version 0.1.0 to the new name."""
_FIRST_NAMES = {new: old for old, new in RENAMED_FIELDS.items()}


def rename_fields(content: Any, names: dict[str, str]) -> Any:
    """Replace keys of nested dictionaries.

    >>> rename_fields({"setting": {"target_share": 0.3}}, RENAMED_FIELDS)
    {'setting': {'target_fraction': 0.3}}
    """
    if not isinstance(content, dict):
        return content
    return {names.get(key, key): rename_fields(value, names) for key, value in content.items()}


def settings_id(content: dict[str, Any]) -> str:
    """Hash settings to 16 hexadecimal digits.

    The hash is of the names that fields had first, so that ids of runs and trainings stay the same
    when a field is renamed.

    >>> settings_id({"target_fraction": 0.3}) == settings_id({"target_share": 0.3})
    True
    """
    return hashing.of_settings(rename_fields(content, _FIRST_NAMES))[:16]


@dataclass(frozen=True)
class Source:
    """A dataset to collect; equal sources give equal rows."""

    body: str
    domain: str
    quality: str
    rows: int
    seed: int
    policy_domain: str | None = None
    horizon: int | None = None
    """Steps after which a run is cut; None for the task's own limit."""
    policy_version: int = 1
    """Version of the behaviour policies."""

    def collect(self, *, threads: int | None = None, progress: bool = False) -> Dataset:
        """Simulate the rows, or read them from the cache."""
        return collect(
            self.body,
            self.domain,
            self.quality,
            self.rows,
            self.seed,
            policy_domain=self.policy_domain,
            policy_version=self.policy_version,
            horizon=self.horizon,
            threads=threads,
            progress=progress,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as ids of trainings contain them."""
        return _without_defaults(dataclasses.asdict(self))


@dataclass(frozen=True)
class Setting:
    """One pool of rows: a target domain among others, with a few of its rows labelled."""

    shift: str
    """``body_mass``, ``mixture``, ``entire_body``, ``reward``, ``gravity``, ``friction``,
    ``kinematic`` or ``morphology``."""
    body: str
    """Body of the target domain."""
    quality: str
    """Behaviour in the target and in the other domains, such as ``ME/R``."""
    labelled_fraction: float = 0.01
    """Fraction of all rows that is labelled."""
    rows: int = 1_000_000
    target_fraction: float = 0.3
    split_seed: int = 0
    """Seed of the choice of labelled rows, and of every method."""
    data_seed: int = 0
    """Seed of the simulated rows."""
    horizon: int | None = None
    """Steps after which a run is cut; None for the task's own limit."""
    policy_version: int = 0
    """Version of the behaviour policies, in all domains; 0 becomes the body's standard one."""
    record: int | None = None
    """Steps after which a record is cut, without an end of the run; whole records are drawn and
    labelled then, single rows otherwise."""

    def __post_init__(self) -> None:
        """Check the fields."""
        body_of(self.body)
        if not self.policy_version:
            object.__setattr__(self, "policy_version", standard_version(self.body))
        words = self.quality.split("/")
        if len(words) != 2 or any(word not in QUALITIES for word in words):
            raise ConfigError(
                f"quality: expected target/others of {', '.join(QUALITIES)}, such as ME/R, got "
                f"{self.quality!r}"
            )
        if self.shift not in SHIFTS:
            raise ConfigError(f"shift: expected one of {', '.join(SHIFTS)}, got {self.shift!r}")

    @property
    def name(self) -> str:
        """Short name without seeds and sizes, such as ``hopper/body_mass/ME-R/0.01``."""
        quality = self.quality.replace("/", "-")
        return f"{self.body}/{self.shift}/{quality}/{self.labelled_fraction:g}"

    @property
    def num_target(self) -> int:
        """Number of the target's rows in the pool, labelled ones included."""
        return round(self.rows * self.target_fraction)

    @property
    def num_labelled(self) -> int:
        """Number of labelled rows."""
        return round(self.rows * self.labelled_fraction)

    @property
    def target(self) -> Source:
        """Source of the target's rows; exactly the rows in use are collected."""
        ours, _ = self._qualities
        return self._source(self.body, "nominal", ours, self.num_target)

    @property
    def others(self) -> tuple[tuple[Source, float], ...]:
        """Sources of the other rows, and their proportions."""
        count = self.rows - self.num_target
        # No policy was trained in these domains: the same ones act.
        actor = "nominal" if self.shift in _UNTRAINED else None
        return tuple(
            (
                self._source(
                    each.domain.body,
                    each.domain.name,
                    each.quality,
                    round(count * each.proportion),
                    actor,
                ),
                each.proportion,
            )
            for each in negatives(self.shift, self.body, *self._qualities)
        )

    @property
    def sources(self) -> tuple[Source, ...]:
        """Sources of the target's rows and of all others."""
        return (self.target, *(source for source, _ in self.others))

    def split(self, target: Dataset, others: list[Dataset]) -> PUSplit:
        """Mix the datasets into one pool and label some of the target's rows."""
        if self.record is not None:
            target, *others = (_cut(each, self.record) for each in (target, *others))
        return make_split(
            target,
            others,
            unit="transition" if self.record is None else "episode",
            rows=self.rows,
            target_fraction=self.target_fraction,
            labelled_fraction=self.labelled_fraction,
            seed=self.split_seed,
            proportions=[proportion for _, proportion in self.others],
            parts="stratified",  # as all stored results
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a row of the store contains them."""
        return _without_defaults({**dataclasses.asdict(self), "name": self.name})

    def _source(
        self, body: str, domain: str, quality: str, rows: int, actor: str | None = None
    ) -> Source:
        version = self.policy_version
        return Source(body, domain, quality, rows, self.data_seed, actor, self.horizon, version)

    @property
    def _qualities(self) -> tuple[str, str]:
        ours, theirs = self.quality.split("/")
        return QUALITIES[ours], QUALITIES[theirs]


def _cut(dataset: Dataset, length: int) -> Dataset:
    """Cut every episode into records of ``length`` rows; the run goes on after all but the last."""
    rows = dataset.rows
    assert rows.episode is not None
    _, first, number = np.unique(rows.episode, return_index=True, return_inverse=True)
    record = (np.arange(len(rows)) - first[number]) // length
    each = np.unique(np.stack([number, record]), axis=1, return_inverse=True)[1].reshape(-1)
    timeout = rows.timeout.copy()
    timeout[:-1] |= (np.diff(each) != 0) & ~rows.terminal[:-1]
    cut = dataclasses.replace(rows, episode=each.astype(np.int64), timeout=timeout)
    return dataclasses.replace(dataset, rows=cut)


_UNTRAINED = ("reward", "gravity", "friction", "kinematic", "morphology")
_LATER_FIELDS = {"horizon": None, "policy_version": 1, "record": None}
"""Fields that ids of runs do not contain at these values: earlier ids were made without them."""


def _without_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in fields.items()
        if name not in _LATER_FIELDS or value != _LATER_FIELDS[name]
    }
