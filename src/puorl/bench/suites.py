"""Named parts of the grid: settings x methods x learners, how long to train, in which order.

Order matters: a suite is run from its first part to its last, and what comes first is there first.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from puorl.bench.settings import Setting
from puorl.core.errors import ConfigError

BODIES = ("hopper", "halfcheetah", "walker2d")


@dataclass(frozen=True)
class MethodChoice:
    """A method and those of its settings that differ from the defaults."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """For ``pu``, fields of its filter's config too; a mapping changes fields of a field."""
    variant: str = ""
    """Tells two choices of one method apart."""

    @property
    def label(self) -> str:
        """Its name in one part of a suite; also part of file names."""
        return f"{self.name}-{self.variant}" if self.variant else self.name


@dataclass(frozen=True)
class LearnerChoice:
    """A learner and those of its settings that differ from the preset's."""

    name: str
    preset: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Budget:
    """How long to train, and how often and how long to look."""

    steps: int = 1_000_000
    episodes: int = 10
    """After the last update."""
    points: int = 5
    """Of the learning curve, the last update included."""
    curve_episodes: int = 3
    rests: int = 4
    """Checkpoints between two points of the curve, the second included."""


@dataclass(frozen=True)
class Part:
    """Methods that learn from one pool with one learner."""

    setting: Setting
    learner: LearnerChoice
    methods: tuple[MethodChoice, ...]


@dataclass(frozen=True)
class Suite:
    """Parts in the order in which they are run."""

    name: str
    about: str
    parts: tuple[Part, ...]
    budget: Budget = Budget()


METHODS = tuple(
    MethodChoice(name) for name in ("olp", "sharing_all", "dara", "igdf", "pu", "oracle")
)
TD3_BC = LearnerChoice("td3_bc")
IQL = LearnerChoice("iql")


def names() -> tuple[str, ...]:
    """The suites there are."""
    return tuple(_MAKERS)


def find(name: str) -> Suite:
    """The suite of that name, or of several names joined by ``+``, run as one.

    Raises:
        ConfigError: There is none; the message lists those there are. Or suites of different
            budgets.
    """
    found = []
    for word in name.split("+"):
        if word not in _MAKERS:
            raise ConfigError(f"suite: expected one of {', '.join(_MAKERS)}, got {word!r}")
        found.append(_MAKERS[word]())
    if len(found) == 1:
        return found[0]
    if any(suite.budget != found[0].budget for suite in found):
        raise ConfigError(f"suite: expected suites of one budget to join, got {name!r}")
    parts: list[Part] = []
    for suite in found:
        parts += [part for part in suite.parts if part not in parts]
    about = "; ".join(suite.about for suite in found)
    return Suite(name, about, tuple(parts), found[0].budget)


def _parts(
    shift: str,
    qualities: tuple[str, ...],
    *,
    share: float = 0.01,
    learner: LearnerChoice = TD3_BC,
    bodies: tuple[str, ...] = BODIES,
) -> tuple[Part, ...]:
    """Qualities within bodies: settings that share trainings stand side by side."""
    if shift == "entire_body":
        bodies = ("halfcheetah",)
    return tuple(
        Part(Setting(shift, body, quality, share), learner, METHODS)
        for body in bodies
        for quality in qualities
    )


_ME, _M = ("ME/ME", "ME/R"), ("M/M", "M/R")


def _published(share: float, learner: LearnerChoice) -> tuple[Part, ...]:
    """One of the paper's three tables of scores."""
    mass = _parts("body_mass", _ME + _M, share=share, learner=learner)
    mixture = _parts("mixture", _ME + _M, share=share, learner=learner)
    return (*mass, *mixture, *_parts("entire_body", _ME, share=share, learner=learner))


@cache
def _smoke() -> Suite:
    learner = LearnerChoice("td3_bc", settings={"hidden": (16,)})
    small = {"hidden": (16,), "num_steps": 20}
    methods = (
        MethodChoice("olp"),
        MethodChoice("sharing_all"),
        MethodChoice("dara", small),
        MethodChoice("igdf", small | {"num_dims": 8}),
        MethodChoice(
            "pu",
            {"residuals": None, "network": {"hidden": (16,)}, "num_warm_up": 2, "num_main": 2},
        ),
        MethodChoice("oracle"),
    )
    first, second = (Setting("body_mass", "hopper", q, 0.05, rows=4_000) for q in _ME)
    # In the second setting only what was trained in the first: nothing new has to be compiled.
    shared = tuple(method for method in methods if method.name in ("olp", "oracle"))
    return Suite(
        "smoke",
        "does everything work? one body, small everything, a minute on two cores",
        (Part(first, learner, methods), Part(second, learner, shared)),
        Budget(steps=40, episodes=2, points=2, curve_episodes=1, rests=2),
    )


@cache
def _core() -> Suite:
    return Suite(
        "core",
        "TD3+BC, 1 % labelled: body mass and entire body, ME/ME and ME/R",
        (*_parts("body_mass", _ME), *_parts("entire_body", _ME)),
    )


@cache
def _more() -> Suite:
    named = (
        *_parts("body_mass", _M),
        *_parts("mixture", _ME + _M),
        *_published(0.01, IQL),
        *_published(0.03, TD3_BC),
    )
    return Suite(
        "more", "what the paper has beside core: body mass M, mixture, IQL, 3 % labelled", named
    )


@cache
def _paper() -> Suite:
    parts = (*_core().parts, *_more().parts)
    return Suite("paper", "all 78 published settings: core, then more", parts)


@cache
def _reward() -> Suite:
    judged = MethodChoice("pu", {"features": {"inputs": "sar"}})
    methods = tuple(judged if method.name == "pu" else method for method in METHODS)
    parts = [
        dataclasses.replace(part, methods=methods)
        for body in BODIES
        for part in _parts("reward", ("ME/ME",), bodies=(body,))
    ]
    return Suite("reward", "the others are paid for running backward", tuple(parts))


@cache
def _control() -> Suite:
    methods = (
        MethodChoice("olp"),
        MethodChoice("dara", variant="union"),
        MethodChoice("dara", {"sampling": "half"}, variant="half"),
        MethodChoice("igdf", variant="keeps-75"),
        MethodChoice("igdf", {"xi": 0.25}, variant="keeps-25"),
    )
    # All but one of the target's rows are labelled, since a split must have one to hide.
    labelled, others = 100_000, 700_000
    rows = labelled + 1 + others
    setting = Setting("body_mass", "hopper", "ME/ME", labelled / rows, rows, (labelled + 1) / rows)
    return Suite(
        "control",
        "DARA and IGDF where they are at home: 100,000 labelled rows, the rest negatives",
        (Part(setting, TD3_BC, methods),),
    )


_MAKERS = {
    "smoke": _smoke,
    "core": _core,
    "more": _more,
    "paper": _paper,
    "reward": _reward,
    "control": _control,
}
