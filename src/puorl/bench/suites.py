"""Named parts of the grid: settings x methods x learners, the length of a training, the order.

A suite is run from its first part to its last.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from puorl import methods
from puorl.bench.settings import Setting
from puorl.core.errors import ConfigError
from puorl.core.formatting import check_choice

BODIES = ("hopper", "halfcheetah", "walker2d")


@dataclass(frozen=True)
class MethodChoice:
    """A method, and its settings that differ from the defaults."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """See `puorl.methods.make`; a mapping changes fields of a field."""
    variant: str = ""
    """Distinguishes two choices of one method in one part."""

    @property
    def label(self) -> str:
        """Name within one part of a suite; also part of file names."""
        return f"{self.name}-{self.variant}" if self.variant else self.name

    @property
    def all_settings(self) -> dict[str, Any]:
        """All settings of the method, defaults included, JSON-ready."""
        return self.make().settings()

    def make(self) -> methods.Method:
        """Make the method.

        Raises:
            ConfigError: Unknown method or setting.
        """
        return methods.make(self.name, **self.settings)


@dataclass(frozen=True)
class LearnerChoice:
    """A learner, and its settings that differ from the preset's."""

    name: str
    preset: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Budget:
    """Length of a training, and how often and how long policies are evaluated."""

    steps: int = 1_000_000
    """Updates."""
    episodes: int = 10
    """Episodes of the evaluation after the last update."""
    points: int = 5
    """Points of the learning curve, the one after the last update included."""
    curve_episodes: int = 3
    """Episodes of every point of the learning curve."""
    checkpoints_per_eval: int = 4
    """Checkpoints from one point of the curve to the next."""


@dataclass(frozen=True)
class Part:
    """Methods that train one learner on one pool."""

    setting: Setting
    learner: LearnerChoice
    methods: tuple[MethodChoice, ...]


@dataclass(frozen=True)
class Suite:
    """Parts in the order in which they are run."""

    name: str
    description: str
    parts: tuple[Part, ...]
    budget: Budget = Budget()

    def to_dict(self) -> dict[str, Any]:
        """Return the content, JSON-ready."""
        parts = [
            {
                "setting": part.setting.name,
                "learner": part.learner.name,
                "methods": [method.label for method in part.methods],
            }
            for part in self.parts
        ]
        return {"description": self.description, "steps": self.budget.steps, "parts": parts}


METHODS = tuple(MethodChoice(name) for name, m in methods.METHODS.items() if m.is_published)
"""The paper's methods."""
ALL_METHODS = tuple(map(MethodChoice, methods.METHODS))
TD3_BC = LearnerChoice("td3_bc")
IQL = LearnerChoice("iql")


def suite_names() -> tuple[str, ...]:
    """List the names of the suites."""
    return tuple(_MAKERS)


def find_suite(name: str) -> Suite:
    """Return the suite of that name, or of several names joined by ``+``, run as one.

    Raises:
        ConfigError: No such suite, or joined suites with different budgets.
    """
    found = []
    for word in name.split("+"):
        check_choice("suite", word, _MAKERS)
        found.append(_MAKERS[word]())
    if len(found) == 1:
        return found[0]
    if any(suite.budget != found[0].budget for suite in found):
        raise ConfigError(f"suite: expected suites of one budget to join, got {name!r}")
    parts: list[Part] = []
    for suite in found:
        parts += [part for part in suite.parts if part not in parts]
    description = "; ".join(suite.description for suite in found)
    return Suite(name, description, tuple(parts), found[0].budget)


def _parts(
    shift: str,
    qualities: tuple[str, ...],
    *,
    fraction: float = 0.01,
    learner: LearnerChoice = TD3_BC,
) -> tuple[Part, ...]:
    """Make parts with qualities within bodies: settings with common trainings are neighbours."""
    bodies = ("halfcheetah",) if shift == "entire_body" else BODIES
    return tuple(
        Part(Setting(shift, body, quality, fraction), learner, METHODS)
        for body in bodies
        for quality in qualities
    )


_ME, _M = ("ME/ME", "ME/R"), ("M/M", "M/R")


def _published(fraction: float, learner: LearnerChoice) -> tuple[Part, ...]:
    """Make the settings of one of the paper's three tables of scores."""
    shifts = {"body_mass": _ME + _M, "mixture": _ME + _M, "entire_body": _ME}
    return tuple(
        part
        for shift, qualities in shifts.items()
        for part in _parts(shift, qualities, fraction=fraction, learner=learner)
    )


@cache
def _smoke() -> Suite:
    learner = LearnerChoice("td3_bc", settings={"hidden": (16,)})
    small = {"hidden": (16,), "num_steps": 20}
    choices = (
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
    shared = tuple(method for method in choices if method.name in ("olp", "oracle"))
    return Suite(
        "smoke",
        "a test that everything works: one body, small everything, a minute on two cores",
        (Part(first, learner, choices), Part(second, learner, shared)),
        Budget(steps=40, episodes=2, points=2, curve_episodes=1, checkpoints_per_eval=2),
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
    parts = (
        *_parts("body_mass", _M),
        *_parts("mixture", _ME + _M),
        *_published(0.01, IQL),
        *_published(0.03, TD3_BC),
    )
    return Suite(
        "more", "the paper's other settings: body mass M, mixture, IQL, 3 % labelled", parts
    )


@cache
def _paper() -> Suite:
    parts = (*_core().parts, *_more().parts)
    return Suite("paper", "all 78 published settings: core, then more", parts)


@cache
def _reward() -> Suite:
    with_reward = MethodChoice("pu", {"features": {"inputs": "sar"}})
    choices = tuple(with_reward if method.name == "pu" else method for method in METHODS)
    parts = [dataclasses.replace(part, methods=choices) for part in _parts("reward", ("ME/ME",))]
    return Suite("reward", "the reward of the others is for running backward", tuple(parts))


@cache
def _control() -> Suite:
    choices = (
        MethodChoice("olp"),
        MethodChoice("dara", variant="union"),
        MethodChoice("dara", {"sampling": "half"}, variant="half"),
        MethodChoice("igdf", variant="keeps-75"),
        MethodChoice("igdf", {"xi": 0.25}, variant="keeps-25"),
    )
    # All but one of the target's rows are labelled, since a split needs an unlabelled one.
    labelled, others = 100_000, 700_000
    rows = labelled + 1 + others
    setting = Setting("body_mass", "hopper", "ME/ME", labelled / rows, rows, (labelled + 1) / rows)
    return Suite(
        "control",
        "DARA and IGDF on the problem they are made for: 100,000 labelled rows, the rest negatives",
        (Part(setting, TD3_BC, choices),),
    )


@cache
def _half() -> Suite:
    choices = (MethodChoice("dara", {"sampling": "half"}, variant="half"),)
    parts = tuple(dataclasses.replace(part, methods=choices) for part in _core().parts)
    return Suite("half", "core: DARA with half of every batch labelled, as in its scripts", parts)


_SHORT = Budget(steps=200_000)
"""Of suites whose sets are small or many; docs/benchmark.md says what is lost."""
_OWN_ROWS = (3_000, 10_000, 30_000)
_SHARES = tuple(
    MethodChoice("pu_share", {"share": share / 100}, variant=f"{share}") for share in (25, 50, 75)
)
_BY_RECORDS = {
    "unit": "episode", "evidence": "rows", "learner": "pvu", "alpha_estimator": "scott",
}  # fmt: skip
"""Filters of `few`: rows rejected by an alpha from few labels ruin the default one."""
_FEW_METHODS = tuple(
    dataclasses.replace(
        method, settings={**method.settings, **(_BY_RECORDS if "pu" in method.name else {})}
    )
    for method in (
        *map(MethodChoice, ("olp", "sharing_all", "dara", "otdf", "pu", "oracle")),
        *map(MethodChoice, ("pu_dara", "pu_otdf", "oracle_share")),
        *_SHARES,
    )
)


@cache
def _few() -> Suite:
    # A tenth of our rows is labelled, as whole records of 50 steps.
    settings = (
        Setting("body_mass", body, quality, own / 10**7, 10**6, own / 10**6, record=50)
        for body in BODIES
        for quality in ("ME/ME", "M/R")
        for own in _OWN_ROWS
    )
    parts = tuple(Part(setting, TD3_BC, _FEW_METHODS) for setting in settings)
    return Suite("few", "3,000, 10,000 and 30,000 target rows among a million", parts, _SHORT)


@cache
def _shifts() -> Suite:
    settings = (
        Setting(shift, body, "ME/ME")
        for shift in ("gravity", "friction", "kinematic", "morphology")
        for body in BODIES
    )
    parts = tuple(Part(setting, TD3_BC, ALL_METHODS) for setting in settings)
    what = "gravity, friction, joint ranges and a foot's size, all methods"
    return Suite("shifts", what, parts, _SHORT)


@cache
def _sharing() -> Suite:
    parts = (*_core().parts, *(p for p in _parts("body_mass", _M) if p.setting.body != BODIES[1]))
    choices = (*(method for method in ALL_METHODS if method.name != "pu_share"), *_SHARES)
    every = tuple(dataclasses.replace(part, methods=choices) for part in parts)
    what = "core and Hopper and Walker2d M with another mass, all methods"
    return Suite("sharing", what, every, _SHORT)


_MAKERS = {
    "smoke": _smoke,
    "core": _core,
    "more": _more,
    "paper": _paper,
    "reward": _reward,
    "control": _control,
    "half": _half,
    "sharing": _sharing,
    "few": _few,
    "shifts": _shifts,
}
