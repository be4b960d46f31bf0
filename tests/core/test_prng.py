import pytest

from puorl.core.errors import ConfigError
from puorl.core.hashing import generator


def draw(*path):
    return tuple(generator(*path).integers(2**62, size=4))


def test_streams_repeat_and_differ():
    paths = [(0,), (1,), (0, "a"), (0, "b"), (0, "a", "b"), (0, "a", 0), (0, "a", 1), (1, "a")]
    assert len({draw(*p) for p in paths}) == len(paths)
    assert [draw(*p) for p in paths] == [draw(*p) for p in paths]


@pytest.mark.parametrize("seed", [-1, 1.5, "0", None])
def test_what_is_no_seed(seed):
    with pytest.raises(ConfigError, match="seed: expected a whole number"):
        generator(seed, "a")
