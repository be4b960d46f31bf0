"""Shifts: what a domain changes about a body, as data that can be written in one line.

A shift is written ``kind``, ``kind:target``, ``kind=value`` or ``kind:target=value``; every value
but the noise's is a factor on the nominal quantity.

==================  =========================================================================
``mass:LINK=F``     mass and inertia of one link, or of all (``mass=F``)
``gravity=F``       gravity
``friction=F``      friction of every surface
``strength:J=F``    torque of one motor, or of all (``strength=F``)
``broken:J``        the motor of joint J gives no torque
``joint_noise:C=W`` uniform noise in [-W, W] on component C of the executed action: ``last``
                    (default), ``all`` or a joint; W is 0.05 unless given
``reward:T=F``      reward term T: ``forward``, ``control`` or ``healthy``; ``reward:backward``
                    stands for ``reward:forward=-1``
==================  =========================================================================
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from puorl.core.errors import ConfigError, require
from puorl.envs.bodies import Body

KINDS = ("mass", "gravity", "friction", "strength", "broken", "joint_noise", "reward")
REWARD_TERMS = ("forward", "control", "healthy")
_DEFAULT_NOISE = 0.05
_ALL = "all"


@dataclass(frozen=True)
class Shift:
    """One change; ``target`` names what is changed and ``value`` how much."""

    kind: str
    target: str
    value: float

    @property
    def text(self) -> str:
        """The shift as it is written; ``parse`` gives it back."""
        if self.kind == "broken":
            return f"broken:{self.target}"
        if self.kind in ("gravity", "friction") or (
            self.kind in ("mass", "strength") and self.target == _ALL
        ):
            return f"{self.kind}={self.value!r}"
        return f"{self.kind}:{self.target}={self.value!r}"


def parse(text: str, body: Body) -> Shift:
    """Read one shift of ``body``.

    >>> from puorl.envs.bodies import body
    >>> parse("mass:foot=2", body("hopper"))
    Shift(kind='mass', target='foot', value=2.0)

    Raises:
        ConfigError: Not a shift this body can have; the message says which there are.
    """
    head, has_value, number = text.partition("=")
    kind, _, target = (word.strip() for word in head.partition(":"))
    value = _number(number, text) if has_value else None
    if (kind, target) == ("reward", "backward") and value is None:
        target, value = "forward", -1.0
    targets = _targets(kind, body, text)
    if not target and kind == "joint_noise":
        target = "last"
    elif not target and _ALL in targets:
        target = _ALL
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
    if any(shift.kind == "mass" for shift in shifts):
        # Derived quantities (inverse weights of the contact model) come from masses.
        mujoco.mj_setConst(model, mujoco.MjData(model))


def noise_width(body: Body, shifts: Sequence[Shift]) -> np.ndarray:
    """(m,) float64. Half-width of the uniform noise on each component of the executed action."""
    width = np.zeros(body.act_dim)
    for shift in shifts:
        if shift.kind == "joint_noise":
            if shift.target == "last":
                width[-1] = shift.value
            else:
                chosen = _chosen(shift.target, body.joints)
                width[[body.joints.index(name) for name in chosen]] = shift.value
    return width


def reward_factors(shifts: Sequence[Shift]) -> tuple[float, ...]:
    """Factor on each of the reward's terms, in the order of ``REWARD_TERMS``."""
    factors: dict[str, float] = {term: 1.0 for term in REWARD_TERMS}
    for shift in shifts:
        if shift.kind == "reward":
            factors[shift.target] *= shift.value
    return tuple(factors.values())


def _targets(kind: str, body: Body, text: str) -> tuple[str, ...]:
    known = {
        "mass": (_ALL, *body.links),
        "gravity": (_ALL,),
        "friction": (_ALL,),
        "strength": (_ALL, *body.joints),
        "broken": body.joints,
        "joint_noise": ("last", _ALL, *body.joints),
        "reward": REWARD_TERMS,
    }
    if kind not in known:
        raise ConfigError(
            f"shift {text!r}: expected one of {', '.join(KINDS)} (such as gravity=0.5, "
            f"mass:{body.foot}=2, broken:{body.joints[-1]}), got {kind!r}"
        )
    return known[kind]


def _checked_value(kind: str, value: float | None, text: str) -> float:
    if kind == "broken":
        if value is not None:
            raise ConfigError(f"shift {text!r}: broken takes no value; use strength:JOINT=FACTOR")
        return 0.0
    if value is None:
        if kind == "joint_noise":
            return _DEFAULT_NOISE
        raise ConfigError(f"shift {text!r}: expected a factor, such as {text.strip()}=0.5")
    positive = kind in ("mass", "friction", "joint_noise")
    if value < 0 and kind != "reward" or value == 0 and positive:
        bound = "above 0" if positive else "of 0 or more"
        raise ConfigError(f"shift {text!r}: expected a value {bound}, got {value!r}")
    return value


def _number(text: str, shift: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"shift {shift!r}: expected a finite number after '=', got {text!r}")
    return value


def _chosen(target: str, every: tuple[str, ...]) -> tuple[str, ...]:
    return every if target == _ALL else (target,)
