"""The demo's story at a size for tests: the same code, seconds instead of minutes."""

from puorl.bench.settings import Setting
from puorl.demo.study import DemoSettings
from puorl.pu.classifier import NetworkConfig
from puorl.pu.config import FilterConfig

TINY = DemoSettings(
    setting=Setting("body_mass", "hopper", "M/R", labelled_fraction=0.1, rows=600, horizon=40),
    steps=40,
    num_seeds=2,
    hidden=(8,),
    batch_size=16,
    points=2,
    curve_episodes=1,
    episodes=2,
    filter_config=FilterConfig(
        residuals=None,
        network=NetworkConfig(hidden=(16,), batch_size=64, layer_norm=True),
        num_warm_up=3,
        num_main=5,
    ),
)
