"""The domains as gymnasium environments.

Importing this module registers every body with every named domain, as
``puorl/Hopper-body_mass-v0``. ``gymnasium.make`` imports it first if the name begins with the
module: ``"puorl.envs.gymnasium_envs:puorl/Hopper-body_mass-v0"``.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from puorl.core.errors import ConfigError, DataError, require
from puorl.envs import bodies, domains
from puorl.envs.domains import DomainSpec
from puorl.envs.simulator import Simulator

if TYPE_CHECKING:
    import gymnasium as gym
else:
    gym = require("gymnasium", extra="sim", purpose="a gymnasium environment")

_TITLES = {"halfcheetah": "HalfCheetah", "hopper": "Hopper", "walker2d": "Walker2d"}
_RENDER_MODES = ("rgb_array",)
_PICTURE = 480
# MuJoCo treats larger coordinates and velocities as unstable, so no observation is beyond it.
_LARGEST = 1e10


class DomainEnv(gym.Env[np.ndarray, np.ndarray]):
    """One environment of a domain, as a `Simulator` of one environment."""

    metadata: dict[str, Any] = {"render_modes": list(_RENDER_MODES)}
    domain: DomainSpec

    def __init__(self, domain: DomainSpec, *, render_mode: str | None = None) -> None:
        if render_mode not in (None, *_RENDER_MODES):
            raise ConfigError(
                f"render_mode: expected one of {', '.join(_RENDER_MODES)} or none, "
                f"got {render_mode!r}"
            )
        self.domain = domain
        self.render_mode = render_mode
        self._simulator = Simulator([domain], seed=0, threads=1, auto_reset=False)
        self._ended = True
        self._renderer: Any = None
        body = self._simulator.body
        self.metadata = {**self.metadata, "render_fps": round(1 / self._simulator.dt)}
        bound = np.full(body.obs_dim, _LARGEST)
        num_velocities = (body.obs_dim + 1) // 2
        bound[-num_velocities:] = min(body.clip_velocity, _LARGEST)
        self.observation_space = gym.spaces.Box(-bound, bound, dtype=np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (body.act_dim,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; ``seed`` makes it and all that follow repeatable."""
        super().reset(seed=seed, options=options)
        self._simulator.reseed(int(self.np_random.integers(2**63)))
        self._ended = False
        return self._simulator.obs[0].copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Make one control step.

        Raises:
            DataError: No episode is running.
        """
        if self._ended:
            raise DataError("step: expected a running episode, got none; call reset() first")
        step = self._simulator.step(np.asarray(action)[None])
        terminated, truncated = bool(step.terminal[0]), bool(step.timeout[0])
        self._ended = terminated or truncated
        return step.next_obs[0].copy(), float(step.reward[0]), terminated, truncated, {}

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return an image (480, 480, 3) uint8 with ``render_mode="rgb_array"``, else None."""
        if self.render_mode is None:
            return None
        mujoco = require("mujoco", extra="sim", purpose="rendering")
        if self._renderer is None:
            model = bodies.load_model(self._simulator.body, self.domain.masses, with_view=True)
            self._renderer = mujoco.Renderer(model, _PICTURE, _PICTURE)
        data = mujoco.MjData(self._renderer.model)
        data.qpos[:] = self._simulator.qpos[0]
        mujoco.mj_forward(self._renderer.model, data)
        self._renderer.update_scene(data, camera="track")
        return self._renderer.render()

    def close(self) -> None:
        """Free the renderer; closing twice is allowed."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self._simulator.close()


def make_env(
    body: str | DomainSpec, domain: str = "nominal", *, render_mode: str | None = None
) -> DomainEnv:
    """Make a gymnasium environment of any domain, registered or not.

    Args:
        body: ``"hopper"``, or the whole domain: ``"hopper/gravity=0.5"`` or a ``DomainSpec``.
        domain: Name or shifts, if ``body`` is a body's name alone.
        render_mode: ``"rgb_array"``, or None for no images.

    Raises:
        ConfigError: Unknown body, domain or shift; the message lists all.
    """
    if isinstance(body, DomainSpec) or "/" in body:
        return DomainEnv(domains.parse_domain(body), render_mode=render_mode)
    return DomainEnv(domains.domain(body, domain), render_mode=render_mode)


def env_id(body: str, domain: str) -> str:
    """Return the registered name of a named domain, such as ``puorl/Hopper-body_mass-v0``."""
    return f"puorl/{_TITLES[body]}-{domain}-v0"


for _body in bodies.names():
    for _domain in domains.names():
        gym.register(
            env_id(_body, _domain),
            entry_point="puorl.envs.gymnasium_envs:make_env",
            max_episode_steps=bodies.body(_body).max_steps,
            kwargs={"body": _body, "domain": _domain},
        )
