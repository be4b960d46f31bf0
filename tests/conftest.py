"""What every test stands on: repeatable hypothesis runs, and strict JAX where JAX is used."""

import os
from importlib.metadata import version

import pytest
from hypothesis import HealthCheck, settings

# Tests must not depend on the machine's load: no deadlines, and the same examples every time.
settings.register_profile(
    "puorl",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("puorl")

# A wrong rank or a silent change of dtype is an error (read by jax when it is first imported).
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
os.environ.setdefault("JAX_NUMPY_DTYPE_PROMOTION", "strict")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Most of the tests' time is the compiler's. What it leaves out with these changes no meaning. An
# unknown flag would end the process: versions of jaxlib that were not tried get none.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if version("jaxlib").startswith(("0.10.", "0.11.")):
    quick = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("XLA_FLAGS", quick)


LONG_FILES = ("test_docs.py", "test_runner.py", "test_filter.py")
"""First in line, so that no worker is left with one of them when the others are done."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in LONG_FILES)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """No test reads or fills the user's cache."""
    monkeypatch.setenv("PUORL_CACHE", str(tmp_path_factory.getbasetemp() / "puorl-cache"))
