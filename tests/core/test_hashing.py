import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from puorl.core import hashing
from puorl.core.errors import ConfigError
from puorl.core.hashing import generator

ARRAYS = npst.arrays(np.float32, npst.array_shapes(max_dims=2, max_side=4))


@given(ARRAYS)
def test_same_content_same_name_whatever_the_memory_layout(array):
    one = hashing.of_arrays({"a": array})
    assert one == hashing.of_arrays({"a": np.asfortranarray(array)})
    assert one == hashing.of_arrays({"a": array.copy()})


@given(ARRAYS, st.data())
def test_one_changed_byte_changes_it(array, data):
    changed = array.copy()
    raw = changed.reshape(-1).view(np.uint8)
    raw[data.draw(st.integers(0, raw.size - 1))] ^= 1
    assert hashing.of_arrays({"a": array}) != hashing.of_arrays({"a": changed})


def test_name_dtype_and_shape_count():
    zeros = np.zeros(4, np.float32)
    prints = [
        hashing.of_arrays({"a": zeros}),
        hashing.of_arrays({"b": zeros}),
        hashing.of_arrays({"a": zeros.reshape(2, 2)}),
        hashing.of_arrays({"a": zeros.astype(np.int32)}),
        hashing.of_arrays({"a": zeros[:0]}),
        hashing.of_arrays({"a": np.array(["x", "y"])}),
    ]
    assert len(set(prints)) == len(prints)


def test_order_of_names_does_not_count():
    a, b = np.arange(3), np.arange(2.0)
    assert hashing.of_arrays({"a": a, "b": b}) == hashing.of_arrays({"b": b, "a": a})
    assert hashing.of_settings({"x": 1, "y": 2}) == hashing.of_settings({"y": 2, "x": 1})
    assert hashing.of_settings({"x": 1}) != hashing.of_settings({"x": 1.5})


def test_width_of_text_does_not_count():
    short, wide = np.array(["a", "b"], "U1"), np.array(["a", "b"], "U9")
    assert hashing.of_arrays({"a": short}) == hashing.of_arrays({"a": wide})
    assert hashing.of_arrays({"a": short}) != hashing.of_arrays({"a": np.array(["a", "c"])})


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
