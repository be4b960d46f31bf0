import os

import pytest

from puorl.core.errors import ConfigError
from puorl.core.resources import num_threads


def test_what_is_asked_for_or_all_there_is():
    assert num_threads(3) == 3
    assert num_threads(None) == len(os.sched_getaffinity(0))
    with pytest.raises(ConfigError, match="expected 1 or more"):
        num_threads(0)
