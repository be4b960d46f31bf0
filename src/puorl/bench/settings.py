"""Settings of the benchmark as data: which rows are the target's, which are not, who is labelled.

A setting is a shift, a body, a pair of qualities and a labelled share; where its rows come from
follows from that.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

from puorl.core.errors import ConfigError
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit, make_split
from puorl.envs.bodies import body as body_of
from puorl.envs.collect import collect
from puorl.envs.domains import negatives

Shift = Literal["body_mass", "mixture", "entire_body", "reward"]
SHIFTS: tuple[str, ...] = get_args(Shift)
QUALITIES = {"ME": "medium-expert", "M": "medium", "R": "random"}
"""Behaviour as the paper's tables write it."""


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

    def collect(self, *, threads: int | None = None, progress: bool = False) -> Dataset:
        """Make the rows, or read them if they were made before."""
        return collect(
            self.body,
            self.domain,
            self.quality,
            self.rows,
            self.seed,
            policy_domain=self.policy_domain,
            horizon=self.horizon,
            threads=threads,
            progress=progress,
        )

    def to_dict(self) -> dict[str, Any]:
        """As keys of trainings are made of it."""
        return _without_no_horizon(dataclasses.asdict(self))


@dataclass(frozen=True)
class Setting:
    """One pool of rows: a target hidden among others, a few of its rows labelled."""

    shift: str
    """``body_mass``, ``mixture``, ``entire_body`` or ``reward``."""
    body: str
    """The target's."""
    quality: str
    """Behaviour in the target and in the other domains, such as ``ME/R``."""
    labelled_fraction: float = 0.01
    """Share of all rows that is labelled."""
    rows: int = 1_000_000
    target_fraction: float = 0.3
    split_seed: int = 0
    """Draws which of the target's rows are labelled; also the seed of every method."""
    data_seed: int = 0
    """Seed of the simulated rows."""
    horizon: int | None = None
    """Steps after which a run is cut; None for the task's own limit."""

    def __post_init__(self) -> None:
        """Refuse what is no setting, before hours are spent on another."""
        body_of(self.body)
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
        """Short, for people: ``hopper/body_mass/ME-R/0.01``; it leaves the seeds out."""
        quality = self.quality.replace("/", "-")
        return f"{self.body}/{self.shift}/{quality}/{self.labelled_fraction:g}"

    @property
    def num_target(self) -> int:
        """Rows of the target in the pool, labelled ones included."""
        return round(self.rows * self.target_fraction)

    @property
    def num_labelled(self) -> int:
        """Rows that are labelled."""
        return round(self.rows * self.labelled_fraction)

    @property
    def target(self) -> Source:
        """Where the target's rows come from: as many are collected as are used."""
        ours, _ = self._qualities
        return self._source(self.body, "nominal", ours, self.num_target)

    @property
    def others(self) -> tuple[tuple[Source, float], ...]:
        """Where the other rows come from, and their proportions."""
        count = self.rows - self.num_target
        # No policy learnt to run backward: the same ones act, only what they are paid differs.
        actor = "nominal" if self.shift == "reward" else None
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
        """All datasets it needs."""
        return (self.target, *(source for source, _ in self.others))

    def split(self, target: Dataset, others: list[Dataset]) -> PUSplit:
        """Hide the target's rows among the others."""
        return make_split(
            target,
            others,
            rows=self.rows,
            target_fraction=self.target_fraction,
            labelled_fraction=self.labelled_fraction,
            seed=self.split_seed,
            proportions=[share for _, share in self.others],
        )

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a row of the store."""
        return _without_no_horizon({**dataclasses.asdict(self), "name": self.name})

    def _source(
        self, body: str, domain: str, quality: str, rows: int, actor: str | None = None
    ) -> Source:
        return Source(body, domain, quality, rows, self.data_seed, actor, self.horizon)

    @property
    def _qualities(self) -> tuple[str, str]:
        ours, theirs = self.quality.split("/")
        return QUALITIES[ours], QUALITIES[theirs]


def _without_no_horizon(told: dict[str, Any]) -> dict[str, Any]:
    """Rows and trainings from before there was a horizon must be found again."""
    return {name: value for name, value in told.items() if (name, value) != ("horizon", None)}
