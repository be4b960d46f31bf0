"""The names that `puorl.data` exports."""

import pytest

import puorl
import puorl.data


def test_every_name_is_loaded_from_its_module():
    assert dir(puorl.data) == sorted(puorl.data.__all__)
    for name in puorl.data.__all__:
        assert getattr(puorl.data, name) is not None
    assert puorl.data.load is puorl.load
    assert puorl.data.PUSplit is puorl.PUSplit
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = puorl.data.nothing
