"""Work on data that does not fit into memory: partition by partition, on one machine or on Ray.

Names are loaded when first used.
"""

from typing import TYPE_CHECKING

from puorl.core import lazy_exports

if TYPE_CHECKING:
    from puorl.core.tasks import Workers
    from puorl.scale.filtering import keep_rows
    from puorl.scale.inspection import inspect
    from puorl.scale.sample import Sample, draw_sample
    from puorl.scale.store import Store, make_store

__all__ = ["Sample", "Store", "Workers", "draw_sample", "inspect", "keep_rows", "make_store"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".core.tasks": "Workers",
        "filtering": "keep_rows",
        "inspection": "inspect",
        "sample": "Sample draw_sample",
        "store": "Store make_store",
    },
)
