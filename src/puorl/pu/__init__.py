"""PU learning: which unlabelled rows are the target's. Names are loaded when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from puorl.pu.config import PRESETS, FeatureConfig, FilterConfig, NetworkConfig, ResidualConfig
    from puorl.pu.filter import DomainFilter
    from puorl.pu.report import FilterReport
    from puorl.pu.report_page import as_page
    from puorl.pu.report_text import as_text

_HOME = {
    "PRESETS": "config",
    "DomainFilter": "filter",
    "FeatureConfig": "config",
    "FilterConfig": "config",
    "FilterReport": "report",
    "NetworkConfig": "config",
    "ResidualConfig": "config",
    "as_page": "report_page",
    "as_text": "report_text",
}
__all__ = [
    "PRESETS",
    "DomainFilter",
    "FeatureConfig",
    "FilterConfig",
    "FilterReport",
    "NetworkConfig",
    "ResidualConfig",
    "as_page",
    "as_text",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'puorl.pu' has no attribute {name!r}")
    return getattr(import_module(f"puorl.pu.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
