import jax
import numpy as np
import pytest

from puorl.core.resources import aligned_empty


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 13), (1000, 63)])
def test_a_cpu_takes_it_over_without_a_copy(shape):
    array = aligned_empty(shape)
    assert (array.shape, array.dtype) == (shape, np.float32)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    array[...] = 2.0
    shown = jax.device_put(array)
    np.testing.assert_array_equal(shown, np.full(shape, 2.0))
    if array.size:
        assert shown.unsafe_buffer_pointer() == array.ctypes.data
