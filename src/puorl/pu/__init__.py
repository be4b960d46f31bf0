"""PU learning: which unlabelled rows are the target's. Names are loaded when first used."""

from typing import TYPE_CHECKING

from puorl.core import lazy_exports

if TYPE_CHECKING:
    from puorl.pu.config import (
        PRESETS,
        FeatureConfig,
        FilterConfig,
        MachineConfig,
        NetworkConfig,
        ResidualConfig,
    )
    from puorl.pu.filter import DomainFilter
    from puorl.pu.machines.report import MachineReport
    from puorl.pu.report import FilterReport
    from puorl.pu.report_page import as_page
    from puorl.pu.report_text import as_text

__all__ = [
    "PRESETS",
    "DomainFilter",
    "FeatureConfig",
    "FilterConfig",
    "FilterReport",
    "MachineConfig",
    "MachineReport",
    "NetworkConfig",
    "ResidualConfig",
    "as_page",
    "as_text",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "config": "FeatureConfig FilterConfig MachineConfig NetworkConfig PRESETS ResidualConfig",
        "filter": "DomainFilter",
        "machines.report": "MachineReport",
        "report": "FilterReport",
        "report_page": "as_page",
        "report_text": "as_text",
    },
)
