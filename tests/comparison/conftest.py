"""Find the helpers of the command line's tests, and compile quickly."""

import sys
from pathlib import Path

import jax
import pytest

for room in ("cli", "pu"):
    sys.path.insert(0, str(Path(__file__).parents[1] / room))


@pytest.fixture(autouse=True, scope="module")
def _quick_compiling():
    """Most of these tests' time is the compiler's; what it leaves out changes no meaning."""
    kept = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", kept)
