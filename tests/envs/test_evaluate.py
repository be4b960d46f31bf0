from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest

import puorl.envs.gymnasium_envs as gymnasium_envs
from puorl.core.errors import ConfigError, DataError
from puorl.envs import bodies
from puorl.envs.domains import domain
from puorl.envs.evaluate import Evaluator, evaluate, normalised_score
from puorl.envs.simulator import Simulator
from puorl.rl.policy import Policy


class Linear:
    """A deterministic policy whose rows do not depend on each other."""

    def __init__(self, obs_dim: int, act_dim: int, seed: int) -> None:
        self.weight = np.random.default_rng(seed).standard_normal((obs_dim, act_dim))

    def act(self, obs: np.ndarray) -> np.ndarray:
        assert obs.dtype == np.float32
        return np.tanh((obs[:, :, None] * self.weight).sum(axis=1))


HOPPER = [Linear(11, 3, seed) for seed in range(3)]


def by_hand(policy, spec, episode: int, seed: int) -> tuple[float, int]:
    simulator = Simulator([spec], seed=seed, threads=1, streams=[episode])
    total, length = 0.0, 0
    while True:
        step = simulator.step(policy.act(simulator.obs.astype(np.float32)))
        total, length = total + step.reward[0], length + 1
        if step.terminal[0] or step.timeout[0]:
            return total, length


def test_batch_equals_one_episode_at_a_time():
    spec = domain("hopper", "joint_noise")
    found = evaluate(HOPPER, "hopper/joint_noise", episodes=4, seed=3)
    assert found.returns.shape == found.lengths.shape == (3, 4)
    for p, policy in enumerate(HOPPER):
        for e in range(4):
            total, length = by_hand(policy, spec, e, seed=3)
            assert found.returns[p, e] == total
            assert found.lengths[p, e] == length
    assert len(np.unique(found.lengths)) > 1, "episodes must differ in length for this to count"


def test_threads_do_not_matter_and_seeds_do():
    one, two, other = (
        evaluate(HOPPER, "hopper", episodes=3, seed=seed, threads=threads).returns
        for seed, threads in ((0, 1), (0, 2), (1, 1))
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_summary_and_scores():
    found = evaluate(HOPPER[0].act, domain("hopper"), episodes=5)
    assert found.mean[0] == pytest.approx(found.returns[0].mean())
    assert found.scores is not None
    assert found.mean_score is not None
    assert found.mean_score[0] == pytest.approx(float(normalised_score("hopper", found.mean[0])))
    assert "hopper/nominal, 5 episodes" in str(found)
    assert "score" in str(found)
    shifted = evaluate(HOPPER[0], "hopper/reward", episodes=2)
    assert shifted.scores is None
    assert "score" not in str(shifted)


def test_foreign_environments_are_stepped_in_a_plain_loop():
    env = gym.make("Pendulum-v1", max_episode_steps=20)
    seen = []

    def policy(obs):
        seen.append(obs.shape)
        return np.full((1, 1), 99.0)  # beyond the bound of 2: clipped

    found = evaluate([policy, policy], env, episodes=2, seed=0)
    assert set(seen) == {(1, 3)}
    assert found.lengths.tolist() == [[20, 20], [20, 20]]
    assert np.array_equal(found.returns[0], found.returns[1])
    assert found.returns[0, 0] != found.returns[0, 1]
    assert found.scores is None


def test_own_environment_runs_in_the_batch_unless_wrapped():
    env = gymnasium_envs.make_env("hopper", "gravity=0.5")
    fast = evaluate(HOPPER[0], env, episodes=2)
    assert fast.env == "hopper/gravity=0.5"
    assert np.array_equal(fast.returns, evaluate(HOPPER[0], env.domain, episodes=2).returns)
    slow = evaluate(HOPPER[0], gym.wrappers.TransformReward(env, lambda _: 1.0), episodes=2)
    assert np.array_equal(slow.returns, slow.lengths)


def test_what_gymnasium_makes_of_our_environments_runs_in_the_batch_too():
    name = gymnasium_envs.env_id("hopper", "body_mass")
    expected = evaluate(HOPPER[0], "hopper/body_mass", episodes=2)
    made = evaluate(HOPPER[0], gym.make(name), episodes=2)
    assert np.array_equal(made.returns, expected.returns)
    assert made.scores is not None
    # A limit of the user's own is the user's.
    short = evaluate(HOPPER[0], gym.make(name, max_episode_steps=3), episodes=2)
    assert short.lengths.tolist() == [[3, 3]]


def test_wrong_arguments():
    with pytest.raises(ConfigError, match="got 0 policies"):
        evaluate([], "hopper")
    with pytest.raises(ConfigError, match="0 episodes"):
        evaluate(HOPPER, "hopper", episodes=0)
    with pytest.raises(ConfigError, match="got int"):
        evaluate(3, "hopper")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="hopper/body_mass"):
        evaluate(HOPPER, 3)
    vector = gym.make_vec("Pendulum-v1", num_envs=2, vectorization_mode="sync")
    with pytest.raises(ConfigError, match="a single environment, got the vector SyncVectorEnv"):
        evaluate(HOPPER, vector)
    with pytest.raises(DataError, match=r"expected actions of shape \(2, 3\), got \(2, 5\)"):
        evaluate(lambda obs: np.zeros((len(obs), 5)), "hopper", episodes=2)


# --------------------------------------------------------------------------------- at intervals


def due(evaluator, checkpoints, lane="a"):
    found = []
    for previous, step in zip([0, *checkpoints], checkpoints, strict=False):
        if evaluator(previous, step, {lane: HOPPER[0]}):
            found.append(step)
    return found


def test_an_evaluation_comes_at_the_checkpoint_after_it_is_due():
    checkpoints = [*range(12, 97, 12), 100]
    assert due(Evaluator("hopper", 1, 0, 100, 25), checkpoints) == [36, 60, 84, 100]
    assert due(Evaluator("hopper", 1, 0, 100, Fraction(100, 3)), checkpoints) == [36, 72, 100]
    assert due(Evaluator("hopper", 1, 0, 100), checkpoints) == [100]
    assert Evaluator("hopper", 1, 0, 100)(90, 100, {}) == {}


def test_an_evaluator_gives_returns_and_scores_by_lane():
    evaluator = Evaluator({"a": "hopper", "b": "hopper/reward", "c": "hopper"}, 2, 5, steps=10)
    policies = dict(zip("abc", HOPPER, strict=True))
    seen = evaluator.evaluate(policies)
    for row, (name, env) in enumerate(evaluator.env.items()):
        alone = evaluate(policies[name], env, episodes=2, seed=5)
        assert np.array_equal(seen.returns[row], alone.returns[0])
        assert np.array_equal(seen.lengths[row], alone.lengths[0])
    assert seen.scores is None, "one of the rewards is not D4RL's"
    plain = {name: policies[name] for name in "ac"}
    both = evaluate(list(plain.values()), "hopper", episodes=2, seed=5)
    assert evaluator(0, 10, plain)["c"] == {
        "return": both.mean[1],
        "return_std": both.std[1],
        "score": both.mean_score[1],
    }


def test_the_last_evaluation_is_kept(monkeypatch):
    evaluator = Evaluator("hopper", 1, 0, steps=10)
    policies = {"a": HOPPER[0]}
    evaluator(5, 10, policies)
    kept = evaluator.final(policies)
    assert evaluator.final({"b": HOPPER[0]}).returns == kept.returns
    assert evaluator.final({}).returns.shape == (0, 1)
    monkeypatch.setattr(Evaluator, "evaluate", None)
    assert evaluator.final(policies) is kept


# ------------------------------------------------------------------------------------------ scores


@pytest.mark.parametrize("body", bodies.names())
def test_reference_returns_are_0_and_100(body):
    low, high = bodies.body(body).random_return, bodies.body(body).expert_return
    np.testing.assert_allclose(
        normalised_score(body, np.array([[low, high], [2 * high - low, low]])),
        [[0.0, 100.0], [200.0, 0.0]],
        atol=1e-12,
    )


@pytest.mark.parametrize(
    ("body", "returned", "score"),
    [
        # By D4RL's published returns of its random policy and its expert.
        ("hopper", 3000.0, 100 * (3000 + 20.272305) / (3234.3 + 20.272305)),
        ("halfcheetah", 6000.0, 100 * (6000 + 280.178953) / (12135.0 + 280.178953)),
        ("walker2d", 4000.0, 100 * (4000 - 1.629008) / (4592.3 - 1.629008)),
    ],
)
def test_worked_values(body, returned, score):
    assert float(normalised_score(body, returned)) == pytest.approx(score, abs=1e-9)


def test_unknown_body():
    with pytest.raises(ConfigError, match="halfcheetah, hopper, walker2d, got 'ant'"):
        normalised_score("ant", 0.0)


class Codes:
    """Acts with codes."""

    def act(self, obs):
        return (obs[:, 2] + obs[:, 3] > 0).astype(np.int64)


def coded_policy(codes=("0", "1"), obs_dim=4):
    weights = np.zeros((obs_dim, len(codes)))
    weights[2:4, -1] = 5.0
    return Policy.of("softmax", [{"w": weights, "b": np.zeros(len(codes))}], codes=codes)


def test_environments_with_codes_are_found_by_their_ids():
    found = evaluate([Codes(), coded_policy()], "CartPole-v1", episodes=2, seed=3)
    assert found.env == "CartPole-v1"
    assert found.scores is None
    assert np.array_equal(found.returns, found.lengths)  # a reward of 1 a step
    assert np.array_equal(found.returns[0], found.returns[1])
    assert found.returns.min() > 30
    again = evaluate(Codes(), gym.make("CartPole-v1"), episodes=2, seed=3)
    assert np.array_equal(again.returns[0], found.returns[0])


def test_policies_of_other_actions_are_refused():
    with pytest.raises(DataError, match=r"are continuous, but those of CartPole-v1 are codes such"):
        evaluate(Policy.of("tanh", [{"w": np.zeros((4, 1)), "b": np.zeros(1)}]), "CartPole-v1")
    with pytest.raises(DataError, match="has the action 'down', but CartPole-v1 knows 0 to 1; log"):
        evaluate(coded_policy(("down", "up")), "CartPole-v1")
    with pytest.raises(DataError, match="has 3 state and 2 action components, but CartPole-v1 has"):
        evaluate(coded_policy(obs_dim=3), "CartPole-v1")
    with pytest.raises(DataError, match="codes such as 0, 1, but those of hopper/nominal are cont"):
        evaluate(coded_policy(obs_dim=11), "hopper")
    with pytest.raises(
        ConfigError, match="expected an environment that gymnasium makes: .*Nowhere"
    ):
        evaluate(Codes(), "Nowhere-v0")
