import os

import pytest

from puorl.core.cores import num_threads
from puorl.core.errors import ConfigError


def test_what_is_asked_for_or_all_there_is():
    assert num_threads(3) == 3
    assert num_threads(None) == len(os.sched_getaffinity(0))
    with pytest.raises(ConfigError, match="expected 1 or more"):
        num_threads(0)
