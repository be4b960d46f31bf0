"""Domains as data: a body, what is shifted about it, and which masses it starts from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from puorl.core.errors import ConfigError
from puorl.envs import bodies
from puorl.envs.shifts import KINDS, Shift, parse

_REGISTRY = {
    "nominal": "",
    "body_mass": "mass:{foot}=0.5",
    "joint_noise": "joint_noise:last=0.05",
    "reward": "reward:backward",
}
_COMPOSITIONS = ("mixture", "mixture_as_released", "entire_body")


@dataclass(frozen=True)
class DomainSpec:
    """One domain; equal specs simulate alike, and every choice is in the fields."""

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
        """The spec as JSON-like data."""
        return {**asdict(self), "shifts": [asdict(shift) for shift in self.shifts]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "DomainSpec":
        """The spec that ``to_dict`` wrote.

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
            if parse(shift.text, robot) != shift:
                raise ConfigError(f"domain: shift {shift} is not as {shift.text!r} is read")
        return spec


class Negative(NamedTuple):
    """A share of the negative rows: where they come from and how good they are."""

    domain: DomainSpec
    quality: str
    proportion: float


def names() -> tuple[str, ...]:
    """The domains that have a name; any other is written as shifts, such as ``gravity=0.5``."""
    return tuple(_REGISTRY)


def domain(body: str, name: str = "nominal", *, masses: str = "d4rl") -> DomainSpec:
    """The domain of that name, or the one that the shifts in ``name`` make; ``+`` combines.

    Nominal masses are those of D4RL's time, because files of that time are what nominal data
    stands beside; ``masses="current"`` takes MuJoCo's own.

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
        if part in _REGISTRY:
            parts.append(part)
            text = _REGISTRY[part].format(foot=robot.foot)
            shifts += [parse(text, robot)] if text else []
        else:
            shift = _parse_part(part, robot)
            parts.append(shift.text)
            shifts.append(shift)
    return DomainSpec(body, "+".join(parts), tuple(shifts), masses)


def parse_domain(text: str | DomainSpec) -> DomainSpec:
    """``hopper`` or ``hopper/body_mass`` or ``hopper/gravity=0.5``; a spec passes as it is.

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
    """What the negative rows of a setting consist of; proportions sum to 1.

    ``mixture`` is half ``body_mass`` and half ``joint_noise``. ``mixture_as_released`` repeats two
    slips of the paper's released code: joint-noise rows have the positive's quality, and shares
    follow the sizes of the files, of which medium-expert ones hold twice as many rows.
    ``entire_body`` sets walker2d against a positive halfcheetah. Any other text is one domain.

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
        rows = [_file_size(negative_quality), _file_size(noise_quality)]
        share = rows[0] / sum(rows)
    return (
        Negative(domain(body, "body_mass"), negative_quality, share),
        Negative(domain(body, "joint_noise"), noise_quality, 1.0 - share),
    )


def _parse_part(part: str, robot: bodies.Body) -> Shift:
    if part in _COMPOSITIONS:
        raise ConfigError(
            f"domain: {part!r} is not one domain but several and cannot be simulated; collect each "
            "that puorl.envs.domains.negatives names, and split them by its proportions"
        )
    kind = part.partition("=")[0].partition(":")[0].strip()
    if kind not in KINDS:
        raise ConfigError(
            f"domain: expected one of {', '.join(_REGISTRY)}, or shifts such as gravity=0.5, "
            f"mass:{robot.foot}=2, friction=0.4, strength:{robot.joints[-1]}=0.5, "
            f"broken:{robot.joints[-1]} joined by '+', got {part!r}"
        )
    return parse(part, robot)


def _file_size(quality: str) -> int:
    return 2 if quality.replace("_", "-") == "medium-expert" else 1
