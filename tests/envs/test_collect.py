import dataclasses
import json
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import puorl
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import write_json
from puorl.data.formats import load, save
from puorl.envs import behaviour, bodies
from puorl.envs import collect as collecting
from puorl.envs.collect import collect, return_statistics
from puorl.envs.domains import domain
from puorl.envs.simulator import Simulator
from puorl.nn.numpy_mlp import SquashedGaussianActor


def untrained(body="hopper", seed=0, hidden=32):
    robot = bodies.body(body)
    rng = np.random.default_rng(seed)
    sizes = (robot.obs_dim, hidden, hidden, 2 * robot.act_dim)
    pairs = zip(sizes, sizes[1:], strict=False)
    return SquashedGaussianActor(
        # Rounded as in a file.
        tuple(((rng.normal(size=p) / np.sqrt(p[0])).astype("f2"), np.zeros(p[1])) for p in pairs)
    )


def replay(dataset):
    """Carry out the stored actions from the stored states: what would the domain have answered?"""
    spec = domain(dataset.provenance.recipe["body"])
    rows = np.flatnonzero(np.abs(dataset.obs[:, spec_velocity(spec) :]).max(axis=1) < 9.9)[:400]
    num_positions = bodies.body(spec.body).obs_dim - spec_velocity(spec)
    obs = dataset.obs[rows].astype(np.float64)
    qpos = np.concatenate([np.zeros((len(rows), 1)), obs[:, : spec_velocity(spec)]], axis=1)
    assert qpos.shape[1] == num_positions
    with Simulator([spec] * len(rows), seed=0, threads=1) as simulator:
        simulator.set_state(qpos, obs[:, spec_velocity(spec) :])
        return rows, simulator.step(dataset.action[rows])


def spec_velocity(spec):
    """Where velocities begin in a state: every coordinate but x comes before them."""
    return (bodies.body(spec.body).obs_dim - 1) // 2


@pytest.fixture(scope="module")
def hopper():
    return collect("hopper", quality="random", rows=4000, seed=0, cache=False)


def test_rows_are_as_d4rl_stores_them(hopper):
    assert len(hopper) == 4000
    assert {array.dtype for array in (hopper.obs, hopper.action, hopper.reward)} == {np.dtype("f4")}
    assert hopper.obs.shape[1] == 11
    assert hopper.action.shape[1] == 3
    assert not (hopper.terminal & hopper.timeout).any()
    assert np.isfinite(hopper.next_obs).all()
    inside = np.flatnonzero(np.diff(hopper.episode) == 0)
    np.testing.assert_array_equal(hopper.next_obs[inside], hopper.obs[inside + 1])
    assert not (hopper.terminal | hopper.timeout)[inside].any()
    ends = np.flatnonzero(np.diff(hopper.episode, append=-1))
    assert (hopper.terminal | hopper.timeout)[ends].all()
    assert (np.diff(hopper.episode) >= 0).all()
    assert np.unique(hopper.episode).tolist() == list(range(hopper.episode[-1] + 1))


def test_rows_are_what_the_domain_answers(hopper):
    rows, step = replay(hopper)
    # Stored states are rounded to float32 before they are replayed.
    np.testing.assert_allclose(hopper.next_obs[rows], step.next_obs, atol=2e-4)
    np.testing.assert_allclose(hopper.reward[rows], step.reward, atol=2e-4)
    np.testing.assert_array_equal(hopper.terminal[rows], step.terminal)


def test_joint_noise_is_executed_but_not_stored():
    """Replayed without noise, stored actions lead elsewhere: through the last joint alone."""
    noisy = collect("hopper", "joint_noise", "random", rows=4000, cache=False)
    rows, step = replay(noisy)
    difference = np.abs(noisy.next_obs[rows] - step.next_obs)
    last_joint_speed = -1
    assert np.median(difference[:, last_joint_speed]) > 1e-2
    assert np.median(difference[:, last_joint_speed]) < 2


def test_the_time_limit_is_a_timeout_and_no_terminal():
    made = collect("halfcheetah", quality="random", rows=2000, cache=False)
    assert np.flatnonzero(made.timeout).tolist() == [999, 1999]
    assert not made.terminal.any()
    assert made.provenance.notes == ()
    cut = collect("halfcheetah", quality="random", rows=1500, cache=False)
    assert np.flatnonzero(cut.timeout).tolist() == [999, 1499]
    assert "cut after 500 rows" in cut.provenance.notes[0]
    np.testing.assert_array_equal(cut.obs, made.obs[:1500])


@pytest.mark.parametrize("name", bodies.names())
def test_same_seed_same_bytes_whatever_the_number_of_threads(name):
    policy = untrained(name)
    one, two, four = (
        collect(name, rows=2500, seed=3, policy=policy, threads=n, cache=False) for n in (1, 2, 4)
    )
    assert one.fingerprint == two.fingerprint == four.fingerprint
    assert one.provenance == two.provenance
    other = collect(name, rows=2500, seed=4, policy=policy, cache=False)
    assert other.fingerprint != one.fingerprint


def test_same_bytes_whatever_the_number_of_blas_threads(tmp_path):
    untrained(hidden=256).save(tmp_path / "p.safetensors")
    code = (
        "import sys; from puorl.envs.collect import collect; "
        "print(collect('hopper', rows=3000, policy=sys.argv[1], cache=False).fingerprint)"
    )
    found = set()
    for threads in ("1", "2"):
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        run = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "p.safetensors")],
            env=os.environ | dict.fromkeys(names, threads),
            capture_output=True,
            check=True,
        )
        found.add(run.stdout)
    assert len(found) == 1


def test_domains_and_policies_do_not_share_their_start_states():
    policies = (untrained(seed=0), untrained(seed=1))
    starts = []
    for name in ("nominal", "body_mass"):
        for policy in policies:
            made = collect("hopper", name, rows=300, policy=policy, cache=False)
            starts.append(made.obs[0].tobytes())
    assert len(set(starts)) == 4


def test_the_same_controller_in_another_domain(tmp_path):
    policy = untrained()
    policy.save(tmp_path / "own.safetensors")
    from_file = collect(
        "hopper", "gravity=0.5", rows="2k", policy=tmp_path / "own.safetensors", cache=False
    )
    rounded = collect("hopper", "gravity=0.5", rows=2000, policy=policy, cache=False)
    assert from_file.fingerprint == rounded.fingerprint
    assert from_file.provenance == rounded.provenance
    assert from_file.provenance.recipe["policies"][0]["fingerprint"] == policy.fingerprint
    nominal = collect("hopper", rows=2000, policy=policy, cache=False)
    assert nominal.provenance.recipe["policies"] == from_file.provenance.recipe["policies"]
    assert nominal.fingerprint != from_file.fingerprint


def test_a_stranger_that_only_acts_is_welcome_and_never_cached(tmp_path):
    class Still:
        def act(self, obs):
            assert obs.dtype == np.float32
            return np.zeros((len(obs), 3))

    made = collect("hopper", rows=500, policy=Still(), cache=tmp_path, threads=2)
    assert (made.action == 0).all()
    assert made.provenance.behaviour == "Still"
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_names_everything_that_matters():
    base = {"env": "hopper", "domain": "nominal", "rows": 200, "seed": 0, "policy": untrained()}
    first = collect(**base, cache=False)
    recipe = dict(first.provenance.recipe)
    assert set(recipe) == {
        *("recipe", "body", "domain", "quality", "policies"),
        *("rows", "seed", "mujoco", "collector"),
    }
    assert recipe["domain"] == domain("hopper").to_dict()
    changed = [
        {"domain": "body_mass"},
        {"domain": domain("hopper", masses="current")},
        {"rows": 201},
        {"seed": 1},
        {"policy": untrained(seed=1)},
        {"horizon": 50},
    ]
    names = [collect(**base | one, cache=False).provenance.recipe["recipe"] for one in changed]
    assert len({recipe["recipe"], *names}) == 7


def test_numpy_numbers_are_numbers():
    plain = collect("hopper", quality="random", rows=200, seed=3, cache=False)
    numpy = collect("hopper", quality="random", rows=np.int64(200), seed=np.int64(3), cache=False)
    assert numpy.provenance == plain.provenance
    assert numpy.provenance.to_json() == plain.provenance.to_json()


def test_rows_survive_a_file(hopper, tmp_path):
    save(hopper, tmp_path / "h.hdf5")
    again = load(tmp_path / "h.hdf5")
    assert again.fingerprint == hopper.fingerprint
    assert again.provenance == hopper.provenance


def test_the_cache_gives_back_what_was_made(tmp_path, monkeypatch):
    first = collect("hopper", quality="random", rows=500, cache=tmp_path)
    monkeypatch.setattr("puorl.envs.collect.record", None)  # nothing may be simulated now
    again = collect("hopper", quality="random", rows=500, cache=tmp_path)
    assert again.fingerprint == first.fingerprint
    assert again.provenance == first.provenance
    assert again.provenance.keys == first.provenance.keys  # which are not compared
    monkeypatch.setenv("PUORL_CACHE", str(tmp_path))
    assert collect("hopper", quality="random", rows=500).fingerprint == first.fingerprint
    with pytest.raises(TypeError):
        collect("hopper", quality="random", rows=500, cache=False)


@pytest.mark.parametrize("harm", ["data", "truncated", "note", "swapped"])
def test_a_damaged_cache_is_noticed_and_made_anew(tmp_path, caplog, harm):
    first = collect("hopper", quality="random", rows=500, cache=tmp_path)
    (path,) = tmp_path.glob("*.hdf5")
    whole = path.read_bytes()
    if harm == "data":
        flipped = bytearray(whole)
        place = whole.index(first.obs[:4].tobytes())
        flipped[place + 5] ^= 1
        path.write_bytes(flipped)
    elif harm == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif harm == "note":
        path.with_suffix(".json").write_text("{")
    else:
        other = collect("hopper", quality="random", rows=501, cache=tmp_path)
        recipe = other.provenance.recipe["recipe"]
        for suffix in (".hdf5", ".json"):
            (tmp_path / f"{recipe}{suffix}").replace(path.with_suffix(suffix))
    again = collect("hopper", quality="random", rows=500, cache=tmp_path)
    assert again.fingerprint == first.fingerprint
    assert "collected again" in caplog.text
    assert path.exists()
    assert load(path).fingerprint == first.fingerprint


def test_two_at_once_may_use_one_cache(tmp_path, caplog):
    def make(_):
        return collect("hopper", quality="random", rows=700, cache=tmp_path, threads=1)

    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(make, range(6)))
    assert len({each.fingerprint for each in [*made, make(0)]}) == 1
    assert caplog.text == ""
    assert len(list(tmp_path.iterdir())) == 2


def test_a_cache_that_cannot_be_written_costs_a_line_not_the_data(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    made = collect("hopper", quality="random", rows=100, cache=tmp_path / "file" / "cache")
    assert len(made) == 100
    assert "not kept" in caplog.text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": "ant"}, "halfcheetah, hopper, walker2d"),
        ({"domain": "windy"}, "body_mass"),
        ({"quality": "superb"}, "random, medium, medium-replay, medium-expert, expert"),
        ({"rows": 0}, "at least one"),
        ({"rows": "many"}, "1M"),
        ({"seed": -1}, "seed: expected a whole number, 0 or above, got -1"),
        ({"seed": 1.5}, "seed: expected a whole number, 0 or above, got 1.5"),
        ({"seed": "one"}, "seed: expected a whole number, 0 or above, got 'one'"),
        ({"threads": 0}, "threads: expected 1 or more"),
        ({"policy": 3}, "a policy file or an object with act"),
        ({"policy": untrained("walker2d")}, "another body"),
        ({"policy": untrained(), "policy_domain": "nominal"}, "policy_domain"),
        ({"domain": domain("walker2d")}, "expected one of hopper, got one of walker2d"),
    ],
)
def test_wrong_settings_are_explained(change, words):
    settings = {"env": "hopper", "quality": "random", "rows": 10, "cache": False}
    with pytest.raises(ConfigError, match=words):
        collect(**settings | change)


def test_a_file_that_is_no_policy_is_refused(tmp_path):
    (tmp_path / "p.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"p\.safetensors"):
        collect("hopper", rows=10, policy=tmp_path / "p.safetensors", cache=False)


def test_summary_leaves_cut_episodes_out(hopper):
    made = return_statistics(hopper)
    ids = range(made.num_episodes - 1)
    returns = [hopper.reward[hopper.episode == i].sum(dtype=np.float64) for i in ids]
    assert "was cut" in hopper.provenance.notes[0]
    np.testing.assert_allclose(made.returns, returns)
    assert made.lengths.tolist() == [(hopper.episode == i).sum() for i in ids]
    assert made.score == pytest.approx(100 * (np.mean(returns) + 20.272305) / 3254.572305)
    assert made.mean_return == pytest.approx(18, abs=4)


def test_summary_knows_when_there_is_nothing_to_say(hopper):
    backward = collect("hopper", "reward", "random", rows=500, cache=False)
    assert return_statistics(backward).score is None
    cut = collect("halfcheetah", quality="random", rows=10, cache=False)
    assert str(return_statistics(cut)) == "10 rows, 1 episodes, none of them whole"
    stranger = dataclasses.replace(
        hopper, provenance=dataclasses.replace(hopper.provenance, recipe=None)
    )
    with pytest.raises(DataError, match="made by collect"):
        return_statistics(stranger)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder of policies as the package has one: two domains, and a ladder in the nominal one."""
    names = [(d, level) for d in ("nominal", "body_mass") for level in ("medium", "expert")]
    names += [("nominal", f"ladder-{i}") for i in range(3)]
    table = {}
    for number, (home, level) in enumerate(names):
        name = f"hopper-{home}-{level}"
        actor = untrained(seed=number)
        actor.save(tmp_path / f"{name}.safetensors")
        row = dict.fromkeys(("mean", "std", "min", "max", "length", "episodes", "steps", "seed"), 1)
        row |= {"body": "hopper", "domain": home, "level": level}
        table[name] = row | {"fingerprint": actor.fingerprint}
    write_json(tmp_path / "returns.json", {"policies": table})
    monkeypatch.setattr(behaviour, "_folder", lambda: tmp_path)
    return {name: row["fingerprint"] for name, row in table.items()}


@pytest.mark.parametrize(
    ("name", "quality", "home", "expected"),
    [
        ("nominal", "medium", None, ["nominal-medium"]),
        ("nominal", "expert", None, ["nominal-expert"]),
        ("body_mass", "medium_expert", None, ["body_mass-medium", "body_mass-expert"]),
        ("body_mass", "medium-expert", "nominal", ["nominal-medium", "nominal-expert"]),
        ("gravity=0.5", "expert", "body_mass", ["body_mass-expert"]),
        ("body_mass", "medium-replay", None, [f"nominal-ladder-{i}" for i in range(3)]),
    ],
)
def test_qualities_consist_of_the_policies_they_name(package, name, quality, home, expected):
    made = collect("hopper", name, quality, rows=600, policy_domain=home, cache=False)
    policies = made.provenance.recipe["policies"]
    assert [each["fingerprint"] for each in policies] == [package[f"hopper-{e}"] for e in expected]
    assert [each["rows"] for each in policies] == [600 // len(expected)] * len(expected)
    borders = np.arange(1, len(expected) + 1) * (600 // len(expected)) - 1
    assert (made.terminal | made.timeout)[borders].all()
    assert len(np.unique(made.episode[borders])) == len(expected)
    learnt = expected[0].split("-")[0]
    said = [note for note in made.provenance.notes if "learnt in" in note]
    assert said == (
        [] if learnt == name else [f"the policies learnt in {learnt} and acted in {name}"]
    )


def test_a_mixed_quality_is_made_of_the_data_of_its_parts(package):
    mixed = collect("hopper", quality="medium-expert", rows=1001, cache=False)
    first = collect("hopper", quality="medium", rows=500, cache=False)
    second = collect("hopper", quality="expert", rows=501, cache=False)
    np.testing.assert_array_equal(mixed.obs, np.concatenate([first.obs, second.obs]))
    np.testing.assert_array_equal(mixed.action, np.concatenate([first.action, second.action]))
    assert mixed.num_episodes == first.num_episodes + second.num_episodes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"domain": "gravity=0.5"}, "--policy-domain nominal"),
        ({"quality": "medium-replay", "policy_domain": "body_mass"}, "nominal policies only"),
        ({"env": "walker2d", "quality": "medium-replay"}, "snapshots of walker2d"),
        ({"quality": "medium-replay", "rows": 2}, "at least one for each policy"),
    ],
)
def test_policies_that_are_not_there_are_explained(package, change, words):
    with pytest.raises(ConfigError, match=words):
        collect(**{"env": "hopper", "rows": 10, "cache": False} | change)


def shipped_pairs():
    """Every body and domain that has policies in the package."""
    found = sorted({(each.body, each.domain) for each in behaviour.shipped()})
    # Without any the tests below must fail, not vanish.
    return found or [("hopper", "nominal")]


@pytest.mark.parametrize(("body", "name"), shipped_pairs())
def test_shipped_policies_make_data(body, name):
    made = collect(body, name, "medium-expert", rows=400, cache=False)
    policies = [each["name"] for each in made.provenance.recipe["policies"]]
    assert policies == [behaviour.find(body, name, level).name for level in ("medium", "expert")]
    # Trained policies use what they learnt: the body moves forward or stays up, as random does not.
    random = collect(body, name, "random", rows=400, cache=False)
    assert made.reward.mean() > random.reward.mean() + 0.5


@pytest.mark.parametrize("body", sorted({body for body, _ in shipped_pairs()}))
def test_shipped_ladders_make_data(body):
    made = collect(body, quality="medium-replay", rows=400, cache=False)
    assert len(made.provenance.recipe["policies"]) >= 5


# ------------------------------------------------------------------------------- recorded contents


def test_every_published_dataset_is_recorded():
    assert len(collecting.recorded()) == 54  # nine of Walker2d with both versions of its policies


def test_only_another_content_of_a_known_recipe_is_reported(caplog):
    recipe, content = next(iter(collecting.recorded().items()))
    with caplog.at_level(logging.WARNING):
        assert collecting.compare(recipe, content) is None
        assert collecting.compare("unknown", "x") is None
        assert not caplog.records
        note = collecting.compare(recipe, "0" * 32)
    assert note is not None
    assert note.startswith("content 000000000000 differs")
    assert caplog.messages == [note]


def test_collected_data_carries_the_note(monkeypatch, caplog):
    settings = {"env": "hopper", "quality": "random", "rows": 200, "seed": 0, "cache": False}
    plain = puorl.collect(**settings)
    recipe = plain.provenance.recipe["recipe"]
    monkeypatch.setattr(collecting, "recorded", lambda: {recipe: "f" * 32})
    told = puorl.collect(**settings)
    assert told.fingerprint == plain.fingerprint
    assert any("differs from the recorded ffffffffffff" in note for note in told.provenance.notes)
    assert json.dumps(told.provenance.to_dict())


# ---------------------------------------------------------------------------------------- horizons


def test_a_horizon_cuts_runs_as_timeouts(tmp_path):
    whole = collect("halfcheetah", quality="random", rows=1000, cache=False)
    short = collect("halfcheetah", quality="random", rows=500, horizon=200, cache=tmp_path)
    assert np.flatnonzero(short.timeout).tolist() == [199, 399, 499]
    assert not short.terminal.any()
    # It begins as the long run does: another horizon is no other seed.
    np.testing.assert_array_equal(short.obs[:200], whole.obs[:200])
    assert short.provenance.recipe["horizon"] == 200
    told = return_statistics(short)
    assert told.lengths.tolist() == [200, 200]
    np.testing.assert_allclose(told.mean_return, short.reward[:400].sum(dtype=np.float64) / 2)
    assert told.score is None  # D4RL's is of 1,000 steps
    # The cache knows them apart.
    longer = collect("halfcheetah", quality="random", rows=500, horizon=300, cache=tmp_path)
    assert np.flatnonzero(longer.timeout).tolist() == [299, 499]
    again = collect("halfcheetah", quality="random", rows=500, horizon="200", cache=tmp_path)
    assert again.fingerprint == short.fingerprint
    assert len(list(tmp_path.glob("*.hdf5"))) == 2


def test_without_a_horizon_nothing_is_another():
    """The recipe and the rows of a dataset that was made before there were horizons."""
    made = collect("halfcheetah", quality="random", rows=200, cache=False)
    assert "horizon" not in made.provenance.recipe
    own = collect("halfcheetah", quality="random", rows=200, horizon=1000, cache=False)
    assert own.provenance == made.provenance
    assert own.fingerprint == made.fingerprint


def test_noise_of_a_joint_is_drawn_for_short_runs():
    made = collect("hopper", "joint_noise", "random", rows=400, horizon=7, cache=False)
    assert np.bincount(made.episode).max() == 7
    assert made.timeout.sum() > 40


@pytest.mark.parametrize(
    ("horizon", "words"),
    [
        (0, "horizon: expected 1 to 1,000, the task's own limit, got 0"),
        (1001, "horizon: expected 1 to 1,000"),
        ("soon", "horizon: expected a whole number"),
    ],
)
def test_an_impossible_horizon_is_explained(horizon, words):
    with pytest.raises(ConfigError, match=words):
        collect("hopper", quality="random", rows=10, horizon=horizon, cache=False)
