import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from puorl.core import resources
from puorl.core.errors import ConfigError, DataError
from puorl.core.resources import aligned_empty, num_threads


def test_this_machine_has_some_memory_and_some_disk(tmp_path):
    assert resources.free_memory() is None or resources.free_memory() > 10**6
    assert resources.free_disk(tmp_path / "not" / "there" / "yet") > 0
    (tmp_path / "file").touch()
    assert resources.free_disk(tmp_path / "file" / "x") is None  # nothing can be made there


@pytest.mark.parametrize(("need", "free"), [(10, 10), (10, 11), (10**30, None)])
def test_what_fits_or_cannot_be_known_passes(monkeypatch, tmp_path, need, free):
    monkeypatch.setattr(resources, "free_memory", lambda: free)
    monkeypatch.setattr(resources, "free_disk", lambda path: free)
    resources.require_memory(need, "rows", repair="take fewer")
    resources.require_disk(need, tmp_path, "rows", repair="take fewer")


def test_what_does_not_fit_is_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(resources, "free_memory", lambda: 2_500_000)
    monkeypatch.setattr(resources, "free_disk", lambda path: 1_000)
    with pytest.raises(ConfigError) as refused:
        resources.require_memory(3 * 10**12, "rows", repair="take fewer")
    assert str(refused.value) == ("rows: need 3.0 TB of free memory, have 2.5 MB; take fewer")
    with pytest.raises(ConfigError, match="need 3.0 GB of free memory, have 512.0 MB"):
        resources.require_memory(3 * 10**9, "rows", repair="take fewer", free=512 * 10**6)
    with pytest.raises(DataError, match=r"a\.npz: obs: need 3"):
        resources.require_readable(3 * 10**9, "a.npz: obs")
    with pytest.raises(ConfigError, match=r"need 100\.0 kB of free disk at x, have 1\.0 kB"):
        resources.require_disk(10**5, "x", "rows", repair="take fewer")


def test_what_is_asked_for_or_all_there_is():
    assert num_threads(3) == 3
    assert num_threads(None) == len(os.sched_getaffinity(0))
    with pytest.raises(ConfigError, match="expected 1 or more"):
        num_threads(0)


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


def groups(root, lines, files):
    """Write the files by which Linux tells about control groups."""
    texts = {"proc/self/cgroup": lines, "proc/meminfo": "MemAvailable: 1000000 kB\n", **files}
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("lines", "files", "free"),
    [
        ("0::/\n", {}, 1_024_000_000),
        ("0::/\n", {"memory.max": "max", "memory.current": "5"}, 1_024_000_000),
        ("0::/\n", {"memory.max": "900", "memory.current": "500"}, 400),
        # The limit is on an outer group, and cached files count as free.
        (
            "0::/a/b\n",
            {
                "a/memory.max": "900",
                "a/memory.current": "500",
                "a/memory.stat": "anon 7\ninactive_file 60\n",
                "a/b/memory.max": "max",
                "a/b/memory.current": "1",
            },
            460,
        ),
        # The host's path, of which a container sees the top only.
        ("0::/docker/0f3a\n", {"memory.max": "900", "memory.current": "500"}, 400),
        (
            "12:cpu,cpuacct:/x\n9:memory:/x/y\n0::/\n",
            {
                "memory/x/memory.limit_in_bytes": "800",
                "memory/x/memory.usage_in_bytes": "500",
                "memory/x/y/memory.limit_in_bytes": str(2**63 - 4096),
                "memory/x/y/memory.usage_in_bytes": "1",
            },
            300,
        ),
        ("0::/\n", {"memory.max": "100", "memory.current": "500"}, 0),
    ],
)
def test_limits_of_control_groups_count(tmp_path, monkeypatch, lines, files, free):
    groups(tmp_path, lines, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    monkeypatch.setattr(resources, "_ROOT", tmp_path)
    assert resources.free_memory() == free


def test_a_fork_after_a_computation_is_told(monkeypatch):
    monkeypatch.setattr(resources, "_computing", {})
    resources.check_fork()
    resources.check_fork()
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)  # as a child sees it
    with pytest.raises(ConfigError, match="forked from one that has computed.*spawn"):
        resources.check_fork()


# ------------------------------------------------------------------ compiled programs


@pytest.mark.parametrize(("mapped", "is_dropped"), [(50, True), (49, False), (None, False)])
def test_programs_are_dropped_where_half_of_the_mappings_are_used(
    tmp_path, monkeypatch, mapped, is_dropped
):
    if mapped is not None:
        for name in ("sys/vm", "self"):
            (tmp_path / "proc" / name).mkdir(parents=True)
        (tmp_path / "proc/sys/vm/max_map_count").write_text("100\n")
        (tmp_path / "proc/self/maps").write_text("7f00-7f01 r-xp\n" * mapped)
    monkeypatch.setattr(resources, "_ROOT", tmp_path)
    program = jax.jit(lambda x: x + 1.0)
    program(1.0)
    assert resources.drop_programs_if_full() == is_dropped
    assert program._cache_size() == (0 if is_dropped else 1)
    assert program(1.0) == 2.0


def test_mappings_of_a_process_are_counted_on_linux(monkeypatch):
    if not sys.platform.startswith("linux"):
        pytest.skip("mappings are counted on Linux alone")
    monkeypatch.setattr(resources, "_MOST_MAPPINGS", 0.0)
    assert resources.drop_programs_if_full()


_COMPILES = """
import sys
from puorl.core.resources import keep_programs
keep_programs()
import jax, jax.numpy as jnp
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
made = []
jax.monitoring.register_event_listener(lambda name, **_: made.append(name))
print(float(jax.jit(lambda x: jnp.sin(x).sum())(jnp.arange(5.0))))
print(sum(name.endswith("/cache_hits") for name in made))
"""


def _compile(**environ):
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", _COMPILES],
        capture_output=True,
        text=True,
        check=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | environ,
    )
    assert run.stderr == ""
    return [float(line) for line in run.stdout.split()]


def test_the_next_process_finds_what_was_compiled(tmp_path):
    place = {"PUORL_CACHE": str(tmp_path / "not" / "yet")}
    first, none = _compile(**place)
    again, hits = _compile(**place)
    assert again == first
    assert (none, hits > 0) == (0, True)
    assert [path.name for path in (tmp_path / "not" / "yet").iterdir()] == ["compiled"]


@pytest.fixture
def unset(monkeypatch):
    """No setting of jax; what a test sets is taken back."""
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("where", ["chosen", "file", "read only", "no home"])
def test_programs_are_kept_nowhere_else(where, tmp_path, monkeypatch):
    monkeypatch.setenv("PUORL_CACHE", str(tmp_path / "cache"))
    if where == "chosen":
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "mine")
    elif where == "file":
        (tmp_path / "cache").touch()
    elif where == "read only":
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    elif where == "no home":
        monkeypatch.delenv("PUORL_CACHE")
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(resources.Path, "home", _no_home)
    resources.keep_programs()
    chosen = "mine" if where == "chosen" else None
    assert os.environ.get("JAX_COMPILATION_CACHE_DIR") == chosen


def _no_home():
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.usefixtures("unset")
def test_each_kind_of_processor_has_programs_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("PUORL_CACHE", str(tmp_path))
    folders = set()
    for flags in (b"flags : avx2", b"flags : avx512f"):
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        monkeypatch.setattr(resources, "_processor", lambda flags=flags: flags)
        resources.keep_programs()
        folders.add(os.environ["JAX_COMPILATION_CACHE_DIR"])
    assert len(folders) == 2
    assert list(tmp_path.iterdir()) == []  # only what compiles makes a folder
