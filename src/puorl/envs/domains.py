"""Domains as data: a body, its shifts, and the masses it starts from.

A shift is written ``kind``, ``kind:target``, ``kind=value`` or ``kind:target=value``; every value
but the noise's is a factor on the nominal quantity.

==================  =========================================================================
``mass:LINK=F``     mass and inertia of one link, or of all (``mass=F``)
``gravity=F``       gravity
``friction=F``      friction of every surface
``strength:J=F``    torque of one motor, or of all (``strength=F``)
``broken:J``        the motor of joint J gives no torque
``range:J=F``       range of one joint, or of all (``range=F``): both ends times F
``size:LINK=F``     size of one link's own shapes, or of all: length and thickness times F, at the
                    same density; joints stay where they are
``joint_noise:C=W`` uniform noise in [-W, W] on component C of the executed action: ``last``
                    (default), ``all`` or a joint; W is 0.05 unless given
``reward:T=F``      reward term T: ``forward``, ``control`` or ``healthy``; ``reward:backward``
                    stands for ``reward:forward=-1``
==================  =========================================================================
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from puorl.core.errors import ConfigError, require
from puorl.envs import bodies
from puorl.envs.bodies import Body

SHIFT_KINDS = (
    *("mass", "gravity", "friction", "strength", "broken", "range", "size"),
    *("joint_noise", "reward"),
)
REWARD_TERMS = ("forward", "control", "healthy")
_DEFAULT_NOISE = 0.05
_ALL = "all"
_REGISTRY = {
    "nominal": "",
    "body_mass": "mass:{foot}=0.5",
    "joint_noise": "joint_noise:last=0.05",
    "reward": "reward:backward",
    "gravity": "gravity=0.5",
    "friction": "friction=0.3",
    "kinematic": "range:{last}=0.5",
    "morphology": "size:{foot}=0.7",
}
_COMPOSITIONS = ("mixture", "mixture_as_released", "entire_body")


@dataclass(frozen=True)
class Shift:
    """One change of a body: its kind, what it changes and by how much."""

    kind: str
    target: str
    value: float

    @property
    def text(self) -> str:
        """The shift as it is written; `parse_shift` reads it back."""
        whole = self.target == _ALL and self.kind != "joint_noise"
        name = self.kind if whole else f"{self.kind}:{self.target}"
        return name if self.kind == "broken" else f"{name}={self.value!r}"


@dataclass(frozen=True)
class DomainSpec:
    """One domain; equal specs give equal simulations."""

    body: str
    name: str
    shifts: tuple[Shift, ...] = ()
    masses: str = "d4rl"
    """``"d4rl"``: of the simulators behind D4RL v2; ``"current"``: as MuJoCo compiles them now."""

    @property
    def text(self) -> str:
        """The domain as ``parse_domain`` reads it, such as ``hopper/body_mass``."""
        return f"{self.body}/{self.name}"

    def to_dict(self) -> dict[str, Any]:
        """Return the spec, JSON-ready."""
        return {**asdict(self), "shifts": [asdict(shift) for shift in self.shifts]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "DomainSpec":
        """Return the spec that ``to_dict`` wrote.

        Raises:
            ConfigError: A field is missing or unknown, or a shift is not one of the body's.
        """
        try:
            shifts = tuple(Shift(**shift) for shift in content["shifts"])
            spec = cls(**{**content, "shifts": shifts})
        except (KeyError, TypeError) as error:
            raise ConfigError(
                "domain: expected the fields body, name, shifts (kind, target, value) and masses, "
                f"got {content!r}"
            ) from error
        robot = bodies.body(spec.body)
        bodies.check_masses(spec.masses)
        for shift in spec.shifts:
            if parse_shift(shift.text, robot) != shift:
                raise ConfigError(f"domain: shift {shift} is not as {shift.text!r} is read")
        return spec


class Negative(NamedTuple):
    """A part of the negative rows: its domain, quality and proportion."""

    domain: DomainSpec
    quality: str
    proportion: float


def names() -> tuple[str, ...]:
    """Return the domains that have a name; others are written as shifts, e.g. ``gravity=0.5``."""
    return tuple(_REGISTRY)


def domain(body: str, name: str = "nominal", *, masses: str = "d4rl") -> DomainSpec:
    """Return the domain of that name, or of the shifts in ``name``; ``+`` combines shifts.

    Masses are those of D4RL's simulators by default, to match D4RL's files; ``masses="current"``
    takes MuJoCo's own.

    >>> domain("hopper", "gravity=.5+broken:leg").name
    'gravity=0.5+broken:leg_joint'

    Raises:
        ConfigError: No such body, domain or shift; the message lists what there is.
    """
    robot = bodies.body(body)
    bodies.check_masses(masses)
    parts, shifts = [], []
    for part in name.split("+"):
        part = part.strip()
        is_named = part in _REGISTRY
        words = {"foot": robot.foot, "last": robot.joints[-1]}
        text = _REGISTRY[part].format(**words) if is_named else part
        if part != "nominal":
            shifts.append(_parse_part(text, robot))
        parts.append(part if is_named else shifts[-1].text)
    return DomainSpec(body, "+".join(parts), tuple(shifts), masses)


def parse_domain(text: str | DomainSpec) -> DomainSpec:
    """Read ``hopper``, ``hopper/body_mass`` or ``hopper/gravity=0.5``; return a spec as it is.

    >>> parse_domain("hopper").text
    'hopper/nominal'
    """
    if isinstance(text, DomainSpec):
        return text
    robot, _, name = text.partition("/")
    return domain(robot.strip(), name.strip() or "nominal")


def negatives(
    shift: str, body: str, positive_quality: str, negative_quality: str
) -> tuple[Negative, ...]:
    """Return the parts of a setting's negative rows; proportions sum to 1.

    ``mixture`` is half ``body_mass`` and half ``joint_noise``. ``mixture_as_released`` repeats two
    errors of the paper's released code: joint-noise rows have the positive's quality, and
    proportions follow the sizes of the files, of which medium-expert ones have twice as many rows.
    ``entire_body`` is walker2d for a positive halfcheetah. Any other text is one domain.

    Raises:
        ConfigError: Unknown shift, or ``entire_body`` of another body than halfcheetah.
    """
    if shift == "entire_body":
        if body != "halfcheetah":
            raise ConfigError(
                "entire_body: expected the positive body halfcheetah (walker2d is its negative), "
                f"got {body!r}"
            )
        return (Negative(domain("walker2d"), negative_quality, 1.0),)
    if shift not in ("mixture", "mixture_as_released"):
        return (Negative(domain(body, shift), negative_quality, 1.0),)
    noise_quality, share = negative_quality, 0.5
    if shift == "mixture_as_released":
        noise_quality = positive_quality
        mass, noise = (
            2 if quality.replace("_", "-") == "medium-expert" else 1
            for quality in (negative_quality, noise_quality)
        )
        share = mass / (mass + noise)
    return (
        Negative(domain(body, "body_mass"), negative_quality, share),
        Negative(domain(body, "joint_noise"), noise_quality, 1.0 - share),
    )


def _parse_part(part: str, robot: Body) -> Shift:
    if part in _COMPOSITIONS:
        raise ConfigError(
            f"domain: {part!r} is not one domain but several and cannot be simulated; collect each "
            "that puorl.envs.domains.negatives names, and split them by its proportions"
        )
    kind = part.partition("=")[0].partition(":")[0].strip()
    if kind not in SHIFT_KINDS:
        raise ConfigError(
            f"domain: expected one of {', '.join(_REGISTRY)}, or shifts such as gravity=0.5, "
            f"mass:{robot.foot}=2, friction=0.4, strength:{robot.joints[-1]}=0.5, "
            f"broken:{robot.joints[-1]} joined by '+', got {part!r}"
        )
    return parse_shift(part, robot)


def parse_shift(text: str, body: Body) -> Shift:
    """Read one shift of ``body``.

    >>> parse_shift("mass:foot=2", bodies.body("hopper"))
    Shift(kind='mass', target='foot', value=2.0)

    Raises:
        ConfigError: Not a shift this body can have; the message says which there are.
    """
    head, has_value, number = text.partition("=")
    kind, _, target = (word.strip() for word in head.partition(":"))
    try:
        value = float(number) if has_value else None
    except ValueError:
        value = math.nan
    if value is not None and not math.isfinite(value):
        raise ConfigError(f"shift {text!r}: expected a finite number after '=', got {number!r}")
    if (kind, target) == ("reward", "backward") and value is None:
        target, value = "forward", -1.0
    known = {
        "mass": (_ALL, *body.links),
        "gravity": (_ALL,),
        "friction": (_ALL,),
        "strength": (_ALL, *body.joints),
        "broken": body.joints,
        "range": (_ALL, *body.joints),
        "size": (_ALL, *body.links),
        "joint_noise": ("last", _ALL, *body.joints),
        "reward": REWARD_TERMS,
    }
    if kind not in known:
        raise ConfigError(
            f"shift {text!r}: expected one of {', '.join(SHIFT_KINDS)} (such as gravity=0.5, "
            f"mass:{body.foot}=2, broken:{body.joints[-1]}), got {kind!r}"
        )
    targets = known[kind]
    if not target and _ALL in targets:
        target = "last" if kind == "joint_noise" else _ALL
    if target not in targets and f"{target}_joint" in targets:
        target = f"{target}_joint"
    if target not in targets:
        raise ConfigError(
            f"shift {text!r}: expected {kind} of one of {', '.join(targets)} for {body.name}, "
            f"got {target!r}"
        )
    return Shift(kind, target, _checked_value(kind, value, text))


def apply_physics(model: Any, body: Body, shifts: Sequence[Shift]) -> None:
    """Write the physical shifts into a compiled ``mujoco.MjModel``."""
    mujoco = require("mujoco", extra="sim", purpose="simulating")
    for shift in shifts:
        if shift.kind == "mass":
            links = [model.body(n).id for n in _chosen(shift.target, body.links)]
            model.body_mass[links] *= shift.value
            # Same shape, other density: inertia follows mass.
            model.body_inertia[links] *= shift.value
        elif shift.kind == "gravity":
            model.opt.gravity *= shift.value
        elif shift.kind == "friction":
            # All surfaces: a contact takes the larger friction of its two sides.
            model.geom_friction *= shift.value
            model.pair_friction *= shift.value
        elif shift.kind in ("strength", "broken"):
            motors = [body.joints.index(n) for n in _chosen(shift.target, body.joints)]
            model.actuator_gear[motors] *= shift.value
        elif shift.kind == "range":
            joints = [model.joint(n).id for n in _chosen(shift.target, body.joints)]
            model.jnt_range[joints] *= shift.value
        elif shift.kind == "size":
            links = [model.body(n).id for n in _chosen(shift.target, body.links)]
            shapes = np.isin(model.geom_bodyid, links)
            # What the engine compares first to rule contacts out must follow.
            for extent in (model.geom_size, model.geom_rbound, model.geom_aabb):
                extent[shapes] *= shift.value
            model.body_mass[links] *= shift.value**3
            model.body_inertia[links] *= shift.value**5
    if any(shift.kind in ("mass", "size") for shift in shifts):
        # Derived quantities (inverse weights of the contact model) come from masses.
        mujoco.mj_setConst(model, mujoco.MjData(model))


def noise_width(body: Body, shifts: Sequence[Shift]) -> np.ndarray:
    """Return (m,) float64: half-width of the noise on each component of the executed action."""
    width = np.zeros(body.act_dim)
    for shift in shifts:
        if shift.kind == "joint_noise":
            target = body.joints[-1] if shift.target == "last" else shift.target
            chosen = _chosen(target, body.joints)
            width[[body.joints.index(name) for name in chosen]] = shift.value
    return width


def reward_factors(shifts: Sequence[Shift]) -> tuple[float, ...]:
    """Return the factor of each term of the reward, in the order of ``REWARD_TERMS``."""
    factors: dict[str, float] = dict.fromkeys(REWARD_TERMS, 1.0)
    for shift in shifts:
        if shift.kind == "reward":
            factors[shift.target] *= shift.value
    return tuple(factors.values())


def _checked_value(kind: str, value: float | None, text: str) -> float:
    if kind == "broken":
        if value is not None:
            raise ConfigError(f"shift {text!r}: broken takes no value; use strength:JOINT=FACTOR")
        return 0.0
    if value is None:
        if kind == "joint_noise":
            return _DEFAULT_NOISE
        raise ConfigError(f"shift {text!r}: expected a factor, such as {text.strip()}=0.5")
    positive = kind in ("mass", "friction", "joint_noise", "range", "size")
    if value < 0 and kind != "reward" or value == 0 and positive:
        bound = "above 0" if positive else "of 0 or more"
        raise ConfigError(f"shift {text!r}: expected a value {bound}, got {value!r}")
    return value


def _chosen(target: str, every: tuple[str, ...]) -> tuple[str, ...]:
    return every if target == _ALL else (target,)
