"""The demo's story at a size for tests: the same code, seconds instead of minutes."""

from puorl.demo.study import DemoSettings
from puorl.pu.config import MachineConfig

TINY = DemoSettings(
    body="hopper",
    weakness="strength:leg_joint=0.3",
    num_sound=3,
    num_weak=4,
    sound_runs=(1, 1, 0),
    weak_runs=(1, 0, 1),
    horizon=40,
    steps=40,
    num_seeds=2,
    hidden=(8,),
    batch_size=16,
    points=2,
    curve_episodes=1,
    episodes=2,
    machines=MachineConfig(
        hidden=(8,), latent_sizes=(1,), num_seeds=1, num_steps=40, num_lags=0, horizons=(1,)
    ),
)
