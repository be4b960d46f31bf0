import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def _quick_compiling():
    """Most of these tests' time is the compiler's; what it leaves out changes no meaning."""
    kept = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", kept)
