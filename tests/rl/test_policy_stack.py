import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rl.test_acting import network, td7_arrays

from puorl.core.errors import DataError
from puorl.nn.numpy_mlp import dimensions
from puorl.rl.policy import NumpyPolicy


def policies(count, kind="tanh", shape=(11, 256, 256, 3), *, norm=False):
    rng = np.random.default_rng(0)
    made = []
    for seed in range(count):
        arrays = network(shape, norm=norm, seed=seed)
        if kind == "td7":
            arrays = {name: a + np.float32(seed) / 8 for name, a in td7_arrays().items()}
        d, m = dimensions(kind, arrays)
        low = -rng.uniform(0.5, 2, m)
        made.append(
            NumpyPolicy(kind, arrays, rng.normal(size=d), rng.uniform(0.5, 2, d), low, low + 2)
        )
    return made


def together(own, rows=10):
    return own[0].__puorl_together__(own, rows=rows)


def apart(own, obs, number):
    return np.concatenate([own[k].act(obs[number == k]) for k in np.unique(number)])


@pytest.mark.parametrize(
    "own",
    [
        policies(3),
        policies(3, "clip", (11, 5, 1)),
        policies(3, norm=True),
        policies(3, "td7"),
        policies(40, shape=(11, 24, 3)),
    ],
    ids=["tanh", "clip", "normalised", "td7", "several threads"],
)
def test_together_they_do_what_each_does_alone_to_the_byte(own):
    rng = np.random.default_rng(1)
    number = np.sort(rng.integers(len(own), size=29))
    obs = rng.normal(size=(29, 11)).astype(np.float32)
    stack = together(own)
    assert stack.act(obs, number).tobytes() == apart(own, obs, number).tobytes()


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_some_end_sooner_than_others_and_the_rest_goes_on_as_before(data):
    own = policies(18, shape=(4, 12, 2))
    stack = together(own)
    number = np.repeat(
        np.arange(18), data.draw(st.lists(st.integers(0, 10), min_size=18, max_size=18))
    )
    rng = np.random.default_rng(2)
    while len(number):
        obs = rng.normal(size=(len(number), 4)).astype(np.float32)
        assert stack.act(obs, number).tobytes() == apart(own, obs, number).tobytes()
        number = number[rng.random(len(number)) < 0.5]


def test_policies_of_other_shapes_kinds_or_makers_do_not_act_together():
    first = policies(1)[0]
    for other in (policies(1, shape=(11, 8, 3))[0], policies(1, "clip")[0], lambda obs: obs):
        assert together([first, other]) is None


def test_one_that_acts_otherwise_is_asked_itself():
    class Still(NumpyPolicy):
        def act(self, obs):
            return 0 * super().act(obs)

    first = policies(1)[0]
    still = Still(first.kind, first.arrays, first.mean, first.scale, first.low, first.high)
    assert together([first, still]) is None
    assert together([still]) is None


def test_many_rows_keep_a_network_busy_alone():
    own = policies(2)
    assert together(own, rows=16) is not None
    assert together(own, rows=17) is None


def test_an_observation_that_is_not_finite_is_refused():
    own = policies(2)
    obs = np.zeros((2, 11), np.float32)
    obs[1, 3] = np.nan
    with pytest.raises(DataError, match="got others in row 1"):
        together(own).act(obs, np.array([0, 1]))
