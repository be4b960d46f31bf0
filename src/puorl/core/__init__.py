"""Errors, files, resources, hashes and statistics that all rooms share; lazy exports."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that has ``__all__``.

    Its names are imported when first used, so that importing the package costs nothing.

    Args:
        package: Its ``__name__``.
        names: Module of the package, such as ``store``, or of the one around it, such as
            ``.core.tasks``, to its public names, separated by spaces.
    """
    homes = {name: module for module, each in names.items() for name in each.split()}

    def get(name: str) -> Any:
        if name not in homes:
            known = ", ".join(sorted(homes))
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {known}")
        return getattr(import_module(f".{homes[name]}", package), name)

    return get, lambda: sorted(sys.modules[package].__all__)
