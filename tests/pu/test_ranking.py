import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.pu import classifier
from puorl.pu.alpha import bbe


@settings(max_examples=60)
@given(
    st.integers(0, 2**31),
    st.sampled_from([(3, 4), (40, 80)]),  # every size is compiled anew
    st.sampled_from([1.0, 4.0]),
    st.booleans(),
)
def test_compiled_bbe_is_bbe(seed, sizes, k, ties):
    num_p, num_u = sizes
    rng = np.random.default_rng(seed)
    p = rng.normal(1, 1, num_p).astype(np.float32)
    u = rng.normal(0, 1, num_u).astype(np.float32)
    if ties:
        p, u = p.round(1), u.round(1)
    compiled = float(classifier.best_bin(jnp.asarray(p), jnp.asarray(u), k=k))
    assert compiled == pytest.approx(bbe(p, u, k=k).value, abs=1e-5)


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.sampled_from([1, 2, 50]), st.floats(0, 0.999))
def test_exactly_the_share_is_rejected(seed, n, share):
    score = np.random.default_rng(seed).permutation(n).astype(np.float32)
    threshold = float(classifier.upper_quantile(jnp.asarray(score), jnp.float32(share)))
    assert (score >= threshold).sum() == int(np.float32(share) * np.float32(n))


def test_nothing_is_rejected_at_share_zero():
    assert classifier.upper_quantile(jnp.arange(4.0), jnp.float32(0)) == np.inf
