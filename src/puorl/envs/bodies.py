"""The three bodies of D4RL v2: model, reward, end of an episode, reset noise, reference returns."""

import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from puorl.core.errors import ConfigError, MissingExtraError, require

Masses = Literal["d4rl", "current"]
_ANY = (-math.inf, math.inf)


@dataclass(frozen=True)
class Body:
    """One robot and its task: gymnasium's v4 definition, which is also that of D4RL v2."""

    name: str
    model_file: str
    """File name in gymnasium's ``envs/mujoco/assets``."""
    frame_skip: int
    """Physics steps per control step."""
    obs_dim: int
    act_dim: int
    links: tuple[str, ...]
    """Names of the moving bodies, in the model's order."""
    joints: tuple[str, ...]
    """Names of the driven joints, in the order of the action's components."""
    foot: str
    """The link whose mass the ``body_mass`` shift halves."""
    random_return: float
    """Undiscounted return of D4RL's random policy, score 0."""
    expert_return: float
    """Undiscounted return of D4RL's expert, score 100."""
    ctrl_cost: float
    """Weight of the squared action in the reward."""
    healthy_reward: float
    """Added in every step; 0 for a body that cannot fall."""
    healthy_z: tuple[float, float] = _ANY
    """Open interval of the torso's height; outside the episode ends."""
    healthy_angle: tuple[float, float] = _ANY
    """Open interval of the torso's pitch; outside the episode ends."""
    healthy_state: tuple[float, float] = _ANY
    """Open interval of every other coordinate and velocity; outside the episode ends."""
    reset_noise: float = 5e-3
    reset_velocity: Literal["uniform", "normal"] = "uniform"
    """Distribution of the start velocity; start positions are always uniform."""
    clip_velocity: float = math.inf
    """Observed velocities are clipped to this; the physics keeps the true ones."""
    max_steps: int = 1000

    @property
    def can_end(self) -> bool:
        """Whether some state ends the episode."""
        return self.healthy_z != _ANY

    def observe(self, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """Return observations (n, d) float64: every coordinate but x, then the velocities."""
        if math.isfinite(self.clip_velocity):
            qvel = np.clip(qvel, -self.clip_velocity, self.clip_velocity)
        return np.concatenate([qpos[:, 1:], qvel], axis=1)

    def healthy(self, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """Return (n,) bool: whether the episode goes on; a state that is NaN ends it."""
        if not self.can_end:
            return np.ones(len(qpos), bool)
        height, angle = qpos[:, 1], qpos[:, 2]
        ok = (self.healthy_z[0] < height) & (height < self.healthy_z[1])
        ok &= (self.healthy_angle[0] < angle) & (angle < self.healthy_angle[1])
        if self.healthy_state != _ANY:
            low, high = self.healthy_state
            for part in (qpos[:, 2:], qvel):
                ok &= ((low < part) & (part < high)).all(axis=1)
        return ok

    def draw_start(self, rng: np.random.Generator, start: np.ndarray) -> np.ndarray:
        """Draw a start state (nq + nv,) float64: the model's plus noise, as gymnasium does."""
        num = len(start) // 2
        position = rng.uniform(-self.reset_noise, self.reset_noise, num)
        if self.reset_velocity == "normal":
            velocity = self.reset_noise * rng.standard_normal(num)
        else:
            velocity = rng.uniform(-self.reset_noise, self.reset_noise, num)
        return start + np.concatenate([position, velocity])


_LEG = ("thigh", "leg", "foot")
_BODIES = {
    "halfcheetah": Body(
        name="halfcheetah",
        model_file="half_cheetah.xml",
        frame_skip=5,
        obs_dim=17,
        act_dim=6,
        links=("torso", "bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"),
        joints=("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"),
        foot="bfoot",
        random_return=-280.178953,
        expert_return=12135.0,
        ctrl_cost=0.1,
        healthy_reward=0.0,
        reset_noise=0.1,
        reset_velocity="normal",
    ),
    "hopper": Body(
        name="hopper",
        model_file="hopper.xml",
        frame_skip=4,
        obs_dim=11,
        act_dim=3,
        links=("torso", *_LEG),
        joints=tuple(f"{link}_joint" for link in _LEG),
        foot="foot",
        random_return=-20.272305,
        expert_return=3234.3,
        ctrl_cost=1e-3,
        healthy_reward=1.0,
        healthy_z=(0.7, math.inf),
        healthy_angle=(-0.2, 0.2),
        healthy_state=(-100.0, 100.0),
        clip_velocity=10.0,
    ),
    "walker2d": Body(
        name="walker2d",
        model_file="walker2d.xml",
        frame_skip=4,
        obs_dim=17,
        act_dim=6,
        links=("torso", *_LEG, *(f"{link}_left" for link in _LEG)),
        joints=tuple(f"{link}{side}_joint" for side in ("", "_left") for link in _LEG),
        foot="foot_left",
        random_return=1.629008,
        expert_return=4592.3,
        ctrl_cost=1e-3,
        healthy_reward=1.0,
        healthy_z=(0.8, 2.0),
        healthy_angle=(-1.0, 1.0),
        clip_velocity=10.0,
    ),
}


def names() -> tuple[str, ...]:
    """Return the names of all bodies."""
    return tuple(_BODIES)


def body(name: str) -> Body:
    """Return the body of that name.

    >>> body("hopper").act_dim
    3

    Raises:
        ConfigError: Unknown name; the message lists all.
    """
    if name not in _BODIES:
        raise ConfigError(f"body: expected one of {', '.join(_BODIES)}, got {name!r}")
    return _BODIES[name]


def check_masses(masses: str) -> None:
    """Refuse an unknown choice of masses.

    Raises:
        ConfigError: Neither of the two.
    """
    if masses not in get_args(Masses):
        raise ConfigError(f"masses: expected one of {', '.join(get_args(Masses))}, got {masses!r}")


def load_model(body: Body, masses: str = "d4rl", *, with_view: bool = False) -> Any:
    """Compile gymnasium's own model of ``body``; a fresh ``mujoco.MjModel`` on every call.

    Cameras and lights are left out unless ``with_view``: they move with the body in every step.

    The simulators of D4RL computed the volume of a capsule as pi r^2 (L + r), not
    pi r^2 (L + 4/3 r): their compiler divided 4 by 3 as integers. ``masses="d4rl"`` gives each
    capsule the mass of that time. Only the volume was wrong: the inertia was that of a true capsule
    of the given mass. So the mass is set per capsule before compiling, and the compiler derives
    inertia and centre of mass; this also moves the centre of mass of HalfCheetah's torso, which is
    two capsules.
    """
    check_masses(masses)
    mujoco = require("mujoco", extra="sim", purpose="simulating")
    spec = mujoco.MjSpec.from_file(str(_assets() / body.model_file))
    # HalfCheetah's total of 14 kg is an attribute that MuJoCo deprecates with a line on stderr, so
    # it is applied after compiling.
    total = spec.compiler.settotalmass
    spec.compiler.settotalmass = -1
    _spare_work(mujoco, spec, with_view=with_view)
    model = spec.compile()
    if masses == "d4rl":
        for geom in spec.geoms:
            if geom.type == mujoco.mjtGeom.mjGEOM_CAPSULE:
                radius, half = model.geom(geom.name).size[:2]
                geom.mass = geom.density * math.pi * radius**2 * (2 * half + radius)
        model = spec.compile()
    if total > 0:
        mujoco.mj_setTotalmass(model, total)
        mujoco.mj_setConst(model, mujoco.MjData(model))
    return model


def _spare_work(mujoco: Any, spec: Any, *, with_view: bool) -> None:
    """Switch off work that costs a fifth of the time and changes no bit of the result."""
    # One robot is one island. Older engines search for islands only on request.
    if hasattr(mujoco.mjtDisableBit, "mjDSBL_ISLAND"):
        spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
    if not with_view:
        for element in (*spec.cameras, *spec.lights):
            # Before MuJoCo 3.3.4 an element removed itself.
            spec.delete(element) if hasattr(spec, "delete") else element.delete()
    model = spec.compile()
    touches = (model.geom_contype[:, None] & model.geom_conaffinity) > 0
    links = model.geom_bodyid > 0
    if (touches | touches.T)[np.ix_(links, links)].any():
        return
    # Only the floor can be touched: a list of pairs replaces the engine's search for close ones.
    # Their parameters are those the engine itself finds when the whole body lies under the floor.
    data = mujoco.MjData(model)
    data.qpos[1] = -10.0
    mujoco.mj_fwdPosition(model, data)
    found = {tuple(contact.geom): contact for contact in data.contact}
    for geom in spec.geoms:
        geom.contype = geom.conaffinity = 0
    for (first, second), contact in sorted(found.items()):
        spec.add_pair(
            geomname1=model.geom(first).name,
            geomname2=model.geom(second).name,
            condim=contact.dim,
            friction=contact.friction,
            solref=contact.solref,
            solreffriction=contact.solreffriction,
            solimp=contact.solimp,
            margin=contact.includemargin,
        )


def _assets() -> Path:
    # Only the files are needed: importing gymnasium's mujoco package would import its renderer.
    found = importlib.util.find_spec("gymnasium")
    if found is None or found.origin is None:
        raise MissingExtraError(
            "simulating needs the model files of the package 'gymnasium', which is not installed; "
            "install it with: pip install 'puorl[sim]'"
        )
    return Path(found.origin).parent / "envs" / "mujoco" / "assets"
