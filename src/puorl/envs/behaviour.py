"""The policies that data is made with, by name; trained once and shipped with the package.

``benchmarks/behaviour`` holds the training. None is trained here.

Where policies of a name were trained again, all versions are kept. A body's `standard_version`
acts unless another one is named. It is complete: domains whose policies come from different
trainings would differ in more than their dynamics. Snapshots on the way to a medium policy exist
of version 1 only.
"""

import functools
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import read_json
from puorl.envs import bodies
from puorl.nn.numpy_mlp import SquashedGaussianActor

_STANDARD_VERSIONS: dict[str, int] = {"walker2d": 2}
"""Bodies whose standard version is not 1."""
_TABLE = "returns.json"
_RUNG = "ladder-"


@dataclass(frozen=True)
class UniformPolicy:
    """Uniform actions in [-1, 1], whatever is observed."""

    obs_dim: int
    act_dim: int

    @property
    def fingerprint(self) -> str:
        """Hash of what it does."""
        return hashing.of_settings({"policy": "uniform", "act_dim": self.act_dim})

    def act(self, obs: np.ndarray, *, rng: np.random.Generator | None = None) -> np.ndarray:
        """Actions (n, act_dim) float32; without ``rng`` their mean, which is zero."""
        if rng is None:
            return np.zeros((len(obs), self.act_dim), np.float32)
        return self.draw_noise(rng, len(obs))

    def act_with_noise(self, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """The noise itself: nothing depends on the observation."""
        assert len(obs) == len(noise)
        return noise.astype(np.float32, copy=False)

    def draw_noise(self, rng: np.random.Generator, num_rows: int) -> np.ndarray:
        """Draw the noise of ``act_with_noise``, (num_rows, act_dim) float32."""
        return rng.uniform(-1, 1, (num_rows, self.act_dim)).astype(np.float32)


Policy = SquashedGaussianActor | UniformPolicy


@dataclass(frozen=True)
class Shipped:
    """A policy in the package and how it did when it was chosen: stochastic, own domain."""

    body: str
    domain: str
    level: str
    mean: float
    """Mean return over ``episodes`` episodes; the other statistics are over the same ones."""
    std: float
    min: float
    max: float
    length: float
    """Mean length of an episode."""
    episodes: int
    steps: int
    """Environment steps of training."""
    seed: int
    fingerprint: str
    version: int = 1
    """Number of the training; see the top of this file."""

    @property
    def name(self) -> str:
        """Body, domain and level, and the version from 2 on: older names stay as they were."""
        return "/".join((self.body, self.domain, self.level, *self._suffix))

    @property
    def path(self) -> Path:
        """The policy's file."""
        return _folder() / f"{self.name.replace('/', '-')}.safetensors"

    @property
    def _suffix(self) -> tuple[str, ...]:
        return (f"v{self.version}",) if self.version > 1 else ()


def shipped() -> tuple[Shipped, ...]:
    """Every trained policy in the package, of all versions."""
    return _shipped(_folder())


def standard_version(body: str) -> int:
    """Return the version of a body's policies that act unless another one is named.

    >>> standard_version("hopper")
    1
    """
    return _STANDARD_VERSIONS.get(body, 1)


def find(
    body: str, domain: str = "nominal", level: str = "medium", *, version: int | None = None
) -> Shipped:
    """The trained policy of that name.

    Args:
        body: ``hopper``, ``halfcheetah`` or ``walker2d``.
        domain: The domain it was trained in.
        level: As for `behaviour`, but ``random``.
        version: If None the newest up to `standard_version`.

    Raises:
        ConfigError: There is none; the message lists those there are.
    """
    found = {
        (each.domain, each.level, each.version): each for each in shipped() if each.body == body
    }
    versions = [v for d, name, v in found if (d, name) == (domain, level)]
    if not versions:
        known = sorted({"random", *(f"{d}/{name}" for d, name, _ in found)})
        raise ConfigError(
            f"behaviour: expected a policy of {body} among {', '.join(known)}, "
            f"got {domain}/{level}; any of them can act in any domain"
        )
    standard = [v for v in versions if v <= standard_version(body)]
    wanted = max(standard, default=None) if version is None else version
    if wanted is None or wanted not in versions:
        numbers = ", ".join(map(str, sorted(versions)))
        raise ConfigError(
            f"version: expected one of {numbers} for {body}/{domain}/{level}, got {version!r}"
        )
    return found[domain, level, wanted]


def behaviour(
    body: str, domain: str = "nominal", level: str = "medium", *, version: int | None = None
) -> Policy:
    """The behaviour policy of that name.

    Args:
        body: ``hopper``, ``halfcheetah`` or ``walker2d``.
        domain: The domain it was trained in; it can act in any.
        level: ``random`` (uniform actions), ``medium``, ``expert``, or a rung ``ladder-0`` ... of
            the way from random to medium.
        version: If None the newest up to `standard_version`.

    >>> behaviour("hopper", level="random").act_dim
    3

    Raises:
        ConfigError: There is none; the message lists those there are.
    """
    robot = bodies.body(body)
    if level == "random":
        return UniformPolicy(robot.obs_dim, robot.act_dim)
    chosen = find(body, domain, level, version=version)
    policy = SquashedGaussianActor.load(chosen.path)
    hashing.check(chosen.path, chosen.fingerprint, policy.fingerprint, repair="install puorl again")
    return policy


def ladder(body: str) -> tuple[str, ...]:
    """Levels of the snapshots of a nominal policy in training, from near random to medium.

    Raises:
        ConfigError: The body is unknown, or has no snapshots.
    """
    bodies.body(body)
    nominal = {each.level for each in shipped() if (each.body, each.domain) == (body, "nominal")}
    rungs = [level for level in nominal if level.startswith(_RUNG)]
    if not rungs:
        raise ConfigError(f"ladder: expected snapshots of {body} in the package, got none")
    return tuple(sorted(rungs, key=lambda level: int(level.removeprefix(_RUNG))))


def _folder() -> Path:
    return Path(str(resources.files("puorl.envs") / "policies"))


@functools.cache
def _shipped(folder: Path) -> tuple[Shipped, ...]:
    if not (folder / _TABLE).exists():
        return ()
    table: dict[str, dict[str, Any]] = read_json(folder / _TABLE)["policies"]
    fields = [name for name in Shipped.__dataclass_fields__ if name != "version"]
    try:
        return tuple(
            Shipped(**{name: row[name] for name in fields}, version=row.get("version", 1))
            for row in table.values()
        )
    except KeyError as error:
        raise DataError(f"{folder / _TABLE}: expected {error} of every policy") from error
