"""What training takes at least: never more than the compiled program does."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from puorl.core.errors import ConfigError
from puorl.data.training_set import TrainingSet
from puorl.rl import learner, pool, trainer
from puorl.rl.learner import Sizes
from puorl.rl.trainer import Lane

sys.path.insert(0, str(Path(__file__).parent))
import tiny_runs


@pytest.fixture
def optimised():
    """As users compile: what these tests' quick compiler takes is more."""
    kept = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", kept)


@pytest.mark.parametrize(
    ("name", "settings", "num_lanes"),
    [
        ("bc", {"batch_size": 512, "hidden": (32, 64)}, 1),
        ("bc", {"batch_size": 32, "hidden": (500,)}, 2),
        ("iql", {"batch_size": 64, "hidden": (128,)}, 3),
    ],
)
def test_no_more_is_counted_than_the_compiled_program_takes(optimised, name, settings, num_lanes):
    chosen = TrainingSet.whole(tiny_runs.pool())
    made = learner.make(name, num_steps=10, **settings)
    work = trainer.prepare(made, [chosen], [Lane(0, seed) for seed in range(num_lanes)])
    keys = trainer._keys(work.lanes, "updates")
    line = jnp.zeros(num_lanes, jnp.int32)
    state = jax.eval_shape(lambda k: trainer.init_states(k, made, work.sizes), keys)
    taken = (
        trainer.program()
        .lower(
            state,
            keys,
            line,
            jnp.asarray(work.q_limit),
            work.pool,
            work.sets,
            np.int32(0),
            learner=made,
            sizes=work.sizes,
            length=made.cycle,
        )  # fmt: skip
        .compile()
        .memory_analysis()
    )
    counted = pool._parts(made, work.sizes, lanes=num_lanes, num_rows=len(chosen.pool), sets=1)
    whole = taken.argument_size_in_bytes + taken.temp_size_in_bytes
    assert 0.1 * whole < sum(counted.values()) <= whole
    states = sum(4 * leaf.size for leaf in jax.tree.leaves(state))
    assert counted["networks"] == states


@pytest.mark.parametrize("name", list(learner.LEARNERS))
def test_sizes_beyond_all_reason_are_refused_before_anything_is_compiled(name):
    most = 2**31 - 1
    sizes = Sizes(11, 3, 1000)
    for settings in ({"batch_size": most}, {"hidden": (most, most)}):
        made = learner.make(name, num_steps=10, **settings)
        wanted = f"training 5 of {name} side by side.*need .* [TPE]B"
        with pytest.raises(ConfigError, match=wanted):
            pool.check_memory(made, sizes, lanes=5, num_rows=1000, sets=1)
    for settings in ({"batch_size": most + 1}, {"hidden": (8, most + 1)}):
        made = learner.make(name, num_steps=10, **settings)
        with pytest.raises(ConfigError, match="expected 2,147,483,647 or less, got 2,147,483,648"):
            pool.check_memory(made, sizes, lanes=1, num_rows=1000, sets=1)


def test_rows_count_too(monkeypatch):
    made = learner.make("bc", num_steps=10, hidden=(8,), batch_size=8)
    monkeypatch.setattr("puorl.core.resources.free_memory", lambda: 10**9)
    pool.check_memory(made, Sizes(11, 3, 10**6), lanes=1, num_rows=10**6, sets=1)
    with pytest.raises(ConfigError, match="most of it for rows: .* train on fewer rows"):
        pool.check_memory(made, Sizes(11, 3, 10**7), lanes=1, num_rows=10**7, sets=1)


def test_numbers_of_updates_are_counted_in_32_bits():
    made = learner.make("bc", num_steps=10)
    trainer.check_steps(made, steps=2**31 - 1)
    with pytest.raises(ConfigError, match="steps: expected 2,147,483,647 or less"):
        trainer.check_steps(made, steps=2**31)
    long = learner.make("td3_bc", num_steps=10, policy_delay=101)
    with pytest.raises(ConfigError, match="got 101; lower policy_delay"):
        trainer.check_steps(long, steps=202)
