import functools
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from puorl.core.errors import ConfigError, DataError
from puorl.envs import behaviour, bodies
from puorl.envs import collect as collecting
from puorl.envs.collect import collect
from puorl.envs.domains import domain
from puorl.envs.evaluate import evaluate
from puorl.envs.simulator import Simulator
from puorl.nn.numpy_mlp import SquashedGaussianActor

BODIES = ("halfcheetah", "hopper", "walker2d")
DOMAINS = ("nominal", "body_mass", "joint_noise")
# Mean returns of D4RL's behaviour policies.
LEVELS = {
    "halfcheetah": {"medium": 4770, "expert": 10650},
    "hopper": {"medium": 1420, "expert": 3500},
    "walker2d": {"medium": 2850, "expert": 4900},
}
SHIPPED = behaviour.shipped()


def name(each):
    return each.name.replace("/", "-")


# ------------------------------------------------------------------ the code, on policies made here


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A package with three policies of the hopper: two rungs, out of order, and a medium."""
    table = {}
    for seed, level in enumerate(("ladder-10", "ladder-2", "medium")):
        rng = np.random.default_rng(seed)
        actor = SquashedGaussianActor(((rng.standard_normal((11, 6)).astype("f2"), np.zeros(6)),))
        row = dict(
            body="hopper", domain="nominal", level=level, mean=1.0, std=0.5, min=0.0, max=2.0,
            length=10.0, episodes=100, steps=1000, seed=seed, fingerprint=actor.fingerprint,
        )  # fmt: skip
        actor.save(tmp_path / f"hopper-nominal-{level}.safetensors", row)
        table[f"hopper-nominal-{level}"] = row | {"target": 3.0}
    (tmp_path / "returns.json").write_text(json.dumps({"training": {}, "policies": table}))
    monkeypatch.setattr(behaviour, "_folder", lambda: tmp_path)
    return tmp_path


def test_policies_are_found_by_name(packaged):
    found = behaviour.shipped()
    assert [each.level for each in found] == ["ladder-10", "ladder-2", "medium"]
    medium = behaviour.behaviour("hopper", "nominal", "medium")
    assert medium.fingerprint == found[2].fingerprint
    assert SquashedGaussianActor.load(found[2].path).fingerprint == found[2].fingerprint


@pytest.fixture
def two_versions(packaged):
    """The same package, with a second version of the medium."""
    actor = SquashedGaussianActor(((np.ones((11, 6)), np.zeros(6)),))
    content = json.loads((packaged / "returns.json").read_text())
    row = content["policies"]["hopper-nominal-medium"] | {
        "mean": 2.0, "version": 2, "fingerprint": actor.fingerprint
    }  # fmt: skip
    content["policies"]["hopper-nominal-medium-v2"] = row
    (packaged / "returns.json").write_text(json.dumps(content))
    actor.save(packaged / "hopper-nominal-medium-v2.safetensors", row)
    behaviour._shipped.cache_clear()
    yield actor
    behaviour._shipped.cache_clear()


def test_the_standard_version_acts_and_others_can_be_asked_for(two_versions):
    standard = behaviour.find("hopper", level="medium")
    assert (standard.version, standard.mean, standard.name) == (1, 1.0, "hopper/nominal/medium")
    later = behaviour.find("hopper", level="medium", version=2)
    assert (later.version, later.mean, later.name) == (2, 2.0, "hopper/nominal/medium/v2")
    assert behaviour.behaviour("hopper").fingerprint == standard.fingerprint
    assert behaviour.behaviour("hopper", version=2).fingerprint == two_versions.fingerprint
    assert standard.path != later.path


def test_a_body_can_have_a_later_standard_version(two_versions, monkeypatch):
    monkeypatch.setitem(behaviour._STANDARD_VERSIONS, "hopper", 2)
    assert behaviour.find("hopper", level="medium").version == 2
    assert behaviour.find("hopper", level="medium", version=1).version == 1
    assert behaviour.find("hopper", level="ladder-2").version == 1


def test_an_unknown_version_lists_those_there_are(two_versions):
    with pytest.raises(ConfigError, match="version: expected one of 1, 2 for hopper/nominal/medi"):
        behaviour.find("hopper", level="medium", version=3)
    with pytest.raises(ConfigError, match="version: expected one of 1 for hopper/nominal/ladder-2"):
        behaviour.behaviour("hopper", level="ladder-2", version=2)


def test_data_names_the_version_that_acted(two_versions):
    def players(**how):
        recipe = collect("hopper", rows=20, cache=False, **how).provenance.recipe
        assert recipe is not None
        return recipe["policies"]

    assert players()[0]["name"] == "hopper/nominal/medium"
    assert players(policy_version=1) == players()
    later = players(policy_version=2)[0]
    assert later["name"] == "hopper/nominal/medium/v2"
    assert later["fingerprint"] == behaviour.find("hopper", version=2).fingerprint
    assert players(quality="random", policy_version=1)[0]["name"] == "random"
    with pytest.raises(ConfigError, match=r"^version: expected one of 1, 2 .*, got 7$"):
        players(policy_version=7)
    with pytest.raises(ConfigError, match="policy_version: expected none together"):
        players(policy=two_versions, policy_version=1)


def test_ladder_is_in_order_of_its_numbers(packaged):
    assert behaviour.ladder("hopper") == ("ladder-2", "ladder-10")
    with pytest.raises(ConfigError, match="snapshots of walker2d in the package, got none"):
        behaviour.ladder("walker2d")


def test_what_there_is_none_of_lists_what_there_is(packaged):
    with pytest.raises(
        ConfigError, match=r"nominal/ladder-10, .*nominal/medium, random, got body_"
    ):
        behaviour.behaviour("hopper", "body_mass", "medium")
    with pytest.raises(ConfigError, match="got nominal/novice"):
        behaviour.behaviour("hopper", level="novice")
    with pytest.raises(ConfigError, match="body: expected one of"):
        behaviour.behaviour("ant")


def test_a_broken_table_is_named(packaged):
    (packaged / "returns.json").write_text('{"policies": {"x": {"body": "hopper"}}}')
    behaviour._shipped.cache_clear()
    with pytest.raises(DataError, match=r"returns.json: expected 'domain'"):
        behaviour.shipped()


@pytest.mark.parametrize("body", BODIES)
def test_random_is_uniform_for_every_body_and_domain(body):
    policy = behaviour.behaviour(body, "gravity=0.5", "random")
    robot = bodies.body(body)
    assert (policy.obs_dim, policy.act_dim) == (robot.obs_dim, robot.act_dim)
    obs = np.zeros((4000, robot.obs_dim), np.float32)
    action = policy.act(obs, rng=np.random.default_rng(0))
    assert action.shape == (4000, robot.act_dim)
    assert action.dtype == np.float32
    quartiles = np.quantile(action, [0.25, 0.5, 0.75], axis=0)
    np.testing.assert_allclose(quartiles, [[v] * robot.act_dim for v in (-0.5, 0, 0.5)], atol=0.06)
    noise = policy.draw_noise(np.random.default_rng(0), 4000)
    np.testing.assert_array_equal(policy.act_with_noise(obs, noise), action)
    assert not policy.act(obs).any()


def test_uniform_policies_of_other_bodies_have_other_names():
    prints = {behaviour.behaviour(b, level="random").fingerprint for b in ("hopper", "walker2d")}
    assert len(prints) == 2


# ---------------------------------------------------------------------- the policies in the package


def test_every_wanted_policy_is_shipped():
    found = {(each.body, each.domain, each.level) for each in SHIPPED}
    wanted = {(b, d, level) for b in BODIES for d in DOMAINS for level in ("medium", "expert")}
    assert wanted <= found
    for body in BODIES:
        assert len(behaviour.ladder(body)) >= 5


def test_the_table_and_the_files_agree():
    folder = behaviour._folder()
    files = {path.stem for path in folder.glob("*.safetensors")}
    assert files == {name(each) for each in SHIPPED}
    assert len({each.fingerprint for each in SHIPPED}) == len(SHIPPED)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 10e6


@pytest.mark.parametrize("each", SHIPPED, ids=name)
def test_a_shipped_file_is_what_the_table_says(each):
    policy = behaviour.behaviour(each.body, each.domain, each.level, version=each.version)
    assert isinstance(policy, SquashedGaussianActor)
    assert policy.fingerprint == each.fingerprint
    robot = bodies.body(each.body)
    assert (policy.obs_dim, policy.act_dim) == (robot.obs_dim, robot.act_dim)
    with safe_open(each.path, framework="numpy") as file:
        metadata = json.loads(file.metadata()["metadata"])
    assert (metadata["mean"], metadata["steps"]) == (each.mean, each.steps)
    assert each.episodes >= 100


@pytest.mark.parametrize("each", [e for e in SHIPPED if e.level in ("medium", "expert")], ids=name)
def test_levels_are_those_of_d4rl(each):
    target = LEVELS[each.body][each.level]
    assert abs(each.mean - target) <= (0.15 if each.version == 1 else 0.1) * target


# --------------------------------------------------------------------------------- later versions

PAIRS = [e for e in SHIPPED if e.level == "expert"]


def start_disagreement(expert):
    """As benchmarks/behaviour/README.md defines it, of an expert and its medium, 30 episodes."""
    place = expert.body, expert.domain
    pair = [
        behaviour.behaviour(*place, level, version=expert.version) for level in ("medium", "expert")
    ]
    found = []
    for actor in pair:
        rng, by_step = np.random.default_rng(0), []
        with Simulator([domain(*place)] * 30, seed=5, threads=1) as simulator:
            for _ in range(20):
                difference = pair[0].act(simulator.obs) - pair[1].act(simulator.obs)
                by_step.append(np.sqrt(np.square(difference).mean()))
                step = simulator.step(actor.act(simulator.obs, rng=rng))
                assert not step.terminal.any()
        found.append(np.mean(by_step))
    return max(found)


@pytest.mark.parametrize("body", BODIES)
def test_the_standard_version_is_complete(body):
    for place in DOMAINS:
        for level in ("medium", "expert"):
            found = behaviour.find(body, place, level)
            assert found.version == behaviour.standard_version(body), found.name


def test_levels_of_one_version_come_as_pairs():
    for each in SHIPPED:
        if each.version > 1:
            other = {"medium": "expert", "expert": "medium"}[each.level]
            pair = behaviour.find(each.body, each.domain, other, version=each.version)
            assert (pair.level, pair.version) == (other, each.version)
            assert behaviour.find(each.body, each.domain, each.level, version=1).version == 1


@pytest.mark.parametrize("each", [e for e in PAIRS if e.version > 1], ids=name)
def test_later_pairs_agree_at_the_start(each):
    assert start_disagreement(each) <= 0.4


def test_the_first_pairs_do_not_agree_at_the_start():
    assert start_disagreement(behaviour.find("walker2d", level="expert", version=1)) > 0.6


def test_recipes_of_the_first_version_keep_their_names():
    spec = domain("walker2d", "body_mass")
    players = collecting._players(spec, "medium-expert", None, None, 1)
    made = collecting._recipe(spec, "medium-expert", players, 1_000_000, 0, None)
    # Its name as it was before there were versions, made with this version of MuJoCo.
    recorded = {"4.0.0": "6ff0e8448b667449661e7efc79f60081"}
    assert made["recipe"] == recorded.get(made["mujoco"], made["recipe"])


@pytest.mark.parametrize("body", BODIES)
def test_a_ladder_climbs_from_random_to_medium(body):
    of = {
        each.level: each.mean for each in SHIPPED if (each.body, each.domain) == (body, "nominal")
    }
    means = [of[level] for level in behaviour.ladder(body)]
    medium = LEVELS[body]["medium"]
    assert (np.diff(means) > 0).all()
    assert means[0] < 0.2 * medium
    assert 0.8 * medium < means[-1] < 1.2 * medium
    # Evenly spread: no step is more than twice the even one.
    assert np.diff(means).max() < 2 * (means[-1] - means[0]) / (len(means) - 1)


class Sampling:
    """A policy that draws its noise itself, as ``evaluate`` wants it."""

    def __init__(self, policy, seed):
        self._policy, self._rng = policy, np.random.default_rng(seed)

    def act(self, obs, /):
        return self._policy.act(obs, rng=self._rng)


NUM_EPISODES = 4


@functools.cache
def measured(body, domain):
    """Returns (episodes,) of each policy that was trained in a domain."""
    own = [each for each in SHIPPED if (each.body, each.domain) == (body, domain)]
    policies = [
        Sampling(SquashedGaussianActor.load(each.path), seed) for seed, each in enumerate(own)
    ]
    found = evaluate(policies, f"{body}/{domain}", episodes=NUM_EPISODES, seed=1)
    return dict(zip(own, found.returns, strict=True))


@pytest.mark.parametrize("each", SHIPPED, ids=name)
def test_a_shipped_policy_still_does_what_the_table_says(each):
    returns = measured(each.body, each.domain)[each]
    # Four standard errors of a mean of so few episodes, and a tenth for a machine that rounds
    # otherwise: a wrong file, body or level is off by more.
    allowed = 4 * each.std / np.sqrt(NUM_EPISODES) + 0.1 * abs(each.mean) + 10
    assert abs(returns.mean() - each.mean) <= allowed


def test_policies_are_package_data():
    assert behaviour._folder() == Path(behaviour.__file__).parent / "policies"
