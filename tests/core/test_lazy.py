from importlib import import_module

import pytest

PACKAGES = ["puorl", *(f"puorl.{room}" for room in ("bench", "data", "envs", "pu", "rl"))]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_is_found_and_listed(name):
    package = import_module(name)
    assert dir(package) == sorted(package.__all__)
    for public in package.__all__:
        assert getattr(package, public) is not None


@pytest.mark.parametrize("name", PACKAGES)
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(name):
    with pytest.raises(AttributeError, match=rf"module '{name}' has no attribute 'nothing'; it"):
        _ = import_module(name).nothing
