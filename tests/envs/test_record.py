"""The recorder against a slow, obvious reference, on a fake simulator whose episodes we know."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puorl.core.errors import ConfigError, DataError
from puorl.core.hashing import generator
from puorl.envs import record as module
from puorl.envs.bodies import body
from puorl.envs.domains import domain
from puorl.envs.record import NUM_SLOTS, record
from puorl.envs.simulator import Step

NOMINAL = domain("hopper")


@cache
def length_of(seed, stream, episode, max_steps):
    # Some very short, some up to the limit.
    return min(max_steps, 1 + int(generator(seed, "length", stream, episode).geometric(0.01)))


class FakeSimulator:
    """States name themselves: (stream, episode, step); the reward is the action."""

    obs_dim, act_dim = 3, 1

    def __init__(self, domains, *, seed, threads, streams, max_steps):
        self.body, self.seed, self.streams = FakeSimulator.body, seed, np.array(streams)
        self.max_steps = max_steps or self.body.max_steps
        self.episode = np.zeros(len(streams), int)
        self.elapsed = np.zeros(len(streams), int)

    @property
    def obs(self):
        return np.stack([self.streams, self.episode, self.elapsed], axis=1).astype(np.float64)

    def step(self, action):
        self.elapsed += 1
        next_obs = self.obs
        limit = self.max_steps
        ends = np.array([limit] * len(self.streams))
        if self.body.can_end:
            pairs = zip(self.streams, self.episode, strict=True)
            ends = np.array([length_of(self.seed, int(s), int(e), limit) for s, e in pairs])
        ended = self.elapsed >= ends
        timeout = ended & (self.elapsed == limit)
        self.episode[ended] += 1
        self.elapsed[ended] = 0
        return Step(next_obs, action[:, 0].astype(np.float64), ended & ~timeout, timeout)

    def keep(self, mask):
        for name in ("streams", "episode", "elapsed"):
            setattr(self, name, getattr(self, name)[mask])

    def close(self):
        pass


class Noisy:
    def act(self, obs):
        raise AssertionError("a policy with noise of its own acts with noise")

    def draw_noise(self, rng, num_rows):
        return rng.uniform(-1, 1, (num_rows, 1))

    def act_with_noise(self, obs, noise):
        return noise


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(module, "Simulator", FakeSimulator)

    def choose(name):
        FakeSimulator.body = body(name)

    choose("hopper")
    return choose


def reference(seed, rows, name="hopper", horizon=None):
    """All episodes of all slots by (first step, slot), as triples (slot, episode, length)."""
    limit = horizon or body(name).max_steps
    found = []
    for slot in range(NUM_SLOTS):
        start = episode = 0
        # Slots play in step, so nothing that begins later than this can be among the first rows.
        while start <= rows // NUM_SLOTS + 1:
            can_end = body(name).can_end
            length = length_of(seed, slot, episode, limit) if can_end else limit
            found.append((start, slot, episode, length))
            start, episode = start + length, episode + 1
    taken, total = [], 0
    for _, slot, episode, length in sorted(found):
        if total >= rows:
            break
        taken.append((slot, episode, min(length, rows - total)))
        total += length
    return taken


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 50, 1000, 30_000])
def test_takes_the_episodes_that_began_first_and_plays_them_to_their_end(fake, rows, threads):
    made = record(NOMINAL, Noisy(), rows, seed=4, threads=threads)
    taken = reference(4, rows)
    states = [(s, e, t) for s, e, length in taken for t in range(length)]
    np.testing.assert_array_equal(made.obs, states)
    np.testing.assert_array_equal(made.next_obs[:, :2], made.obs[:, :2])
    np.testing.assert_array_equal(made.next_obs[:, 2], made.obs[:, 2] + 1)
    lengths = [length for *_, length in taken]
    np.testing.assert_array_equal(made.episode, np.repeat(np.arange(len(taken)), lengths))
    ends = np.cumsum(lengths) - 1
    assert (made.terminal | made.timeout)[ends].all()
    assert (made.terminal | made.timeout).sum() == len(ends)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**40), rows=st.integers(1, 3000))
def test_any_seed_and_size_against_the_reference(seed, rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Simulator", FakeSimulator)
        FakeSimulator.body = body("hopper")
        made = record(NOMINAL, Noisy(), rows, seed=seed, threads=1)
    taken = reference(seed, rows)
    assert len(made.obs) == rows
    np.testing.assert_array_equal(np.bincount(made.episode), [length for *_, length in taken])
    whole = length_of(seed, *taken[-1][:2], 1000)
    assert made.cut == (None if taken[-1][2] == whole else taken[-1][2])


@pytest.mark.parametrize("name", ["hopper", "halfcheetah"])
def test_a_horizon_makes_many_short_runs(fake, name):
    fake(name)
    made = record(domain(name), Noisy(), 20_000, seed=4, horizon=40, threads=2)
    taken = reference(4, 20_000, name, horizon=40)
    states = [(s, e, t) for s, e, length in taken for t in range(length)]
    np.testing.assert_array_equal(made.obs, states)
    lengths = np.bincount(made.episode)
    assert lengths.max() == 40
    at_horizon = made.timeout[np.cumsum(lengths) - 1] & (lengths == 40)
    assert at_horizon.sum() == (lengths == 40).sum() > 100
    assert made.terminal.any() == body(name).can_end


def test_a_cut_episode_is_marked_as_a_timeout(fake):
    made = record(NOMINAL, Noisy(), 1, seed=0, threads=1)
    assert made.timeout.tolist() == [True]
    assert made.terminal.tolist() == [False]
    assert made.cut == 1


def test_long_episodes_are_not_rarer_than_they_are(fake):
    """What is taken has the mean length of the distribution; stopping the clock would not."""
    means = []
    for seed in range(8):
        made = record(NOMINAL, Noisy(), 15_000, seed=seed, threads=1)
        means.append(np.bincount(made.episode)[:-1].mean())
    true = np.mean([length_of(9, 0, e, 1000) for e in range(20_000)])
    # 128 slots of about 117 steps each: episodes finished by then would be less than half as long.
    assert abs(np.mean(means) / true - 1) < 0.06


def test_episodes_of_known_length_waste_no_slot(fake, monkeypatch):
    fake("halfcheetah")
    played = []
    play = module._Slots.play

    def counted(self, steps):
        chunk = play(self, steps)
        played.append(chunk.key.size)
        return chunk

    monkeypatch.setattr(module._Slots, "play", counted)
    made = record(domain("halfcheetah"), Noisy(), 2500, seed=0, threads=1)
    assert 3000 <= sum(played) < 3100  # it looks up every few steps only
    assert made.episode[-1] == 2
    assert made.timeout.sum() == 3
    assert made.cut == 500


def test_noise_is_of_the_slot_not_of_its_company(fake):
    """The first rows do not depend on how many are taken, though slots leave at other moments."""
    few = record(NOMINAL, Noisy(), 2000, seed=1, threads=1)
    many = record(NOMINAL, Noisy(), 30_000, seed=1, threads=2)
    whole = 2000 if few.cut is None else 2000 - few.cut
    for name in ("obs", "action", "reward", "next_obs", "terminal", "timeout", "episode"):
        np.testing.assert_array_equal(getattr(few, name)[:whole], getattr(many, name)[:whole])
    assert len(np.unique(many.action)) > 0.99 * 30_000


def test_actions_are_clipped_and_carried_out_as_stored(fake):
    class Wild:
        def act(self, obs):
            return np.full((len(obs), 1), 1.7)

    made = record(NOMINAL, Wild(), 300, seed=0, threads=2)
    assert (made.action == 1).all()
    assert (made.reward == 1).all()  # the fake's reward is the action it was given


def test_progress_adds_up_to_the_rows(fake):
    seen = []
    record(NOMINAL, Noisy(), 20_000, seed=0, threads=1, advance=seen.append)
    assert sum(seen) == 20_000
    assert min(seen) >= 0


def test_a_policy_of_another_body_is_refused(fake):
    class Wide:
        def act(self, obs):
            return np.zeros((len(obs), 6))

    with pytest.raises(DataError, match="another body"):
        record(NOMINAL, Wide(), 10, seed=0)


def test_threads_must_be_one_or_more(fake):
    with pytest.raises(ConfigError, match="threads: expected 1 or more"):
        record(NOMINAL, Noisy(), 10, seed=0, threads=0)
