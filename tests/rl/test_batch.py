import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puorl.rl.learner import Batch, critic_mean, kept_mean, policy_mean

SIZE = 7
ROWS = st.lists(
    st.tuples(
        st.floats(-100, 100, width=32),
        st.booleans(),
        st.floats(0, 1, width=32),
        st.floats(0, 4, width=32),
    ),
    min_size=SIZE,
    max_size=SIZE,
).filter(lambda rows: any(kept for _, kept, _, _ in rows))
MEANS = jax.jit(lambda x, batch: (policy_mean(x, batch), critic_mean(x, batch)))


def batch_of(keep, weight, critic_weight):
    """A batch of which only the columns that means are made of matter."""
    columns = (keep, weight, critic_weight)
    keep, weight, critic_weight = (jnp.asarray(column, jnp.float32) for column in columns)
    none = jnp.zeros((len(keep), 1), jnp.float32)
    flat = none[:, 0]
    position = jnp.arange(len(keep))
    return Batch(none, none, flat, none, flat, none, keep, weight, critic_weight, position)


@given(ROWS)
def test_means_are_sums_of_kept_rows_over_their_number(rows):
    x, keep, weight, critic_weight = (
        np.array(column, np.float64) for column in zip(*rows, strict=True)
    )
    batch = batch_of(keep, weight, critic_weight)
    of_policy, of_critic = MEANS(jnp.asarray(x, jnp.float32), batch)
    rows_kept = keep > 0
    wanted = [
        (weight * x)[rows_kept].sum() / rows_kept.sum(),
        (weight * critic_weight * x)[rows_kept].sum() / rows_kept.sum(),
    ]
    np.testing.assert_allclose([of_policy, of_critic], wanted, rtol=1e-4, atol=1e-4)


def test_weights_do_not_change_what_is_divided_by():
    # A row of weight 0 counts as drawn, one that is not kept does not.
    batch = batch_of(keep=[1, 1, 0], weight=[1, 0, 1], critic_weight=[3, 1, 1])
    x = jnp.array([2.0, 50.0, 70.0])
    of_policy, of_critic = MEANS(x, batch)
    assert float(of_policy) == 1.0
    assert float(of_critic) == 3.0


def test_a_wrong_rank_is_refused():
    with pytest.raises(ValueError, match="expected one shape"):
        kept_mean(jnp.zeros((4, 1)), jnp.ones(4), jnp.ones(4))
