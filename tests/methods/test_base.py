import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import puorl
from puorl.core.errors import ConfigError, DataError
from puorl.data.dataset import Dataset
from puorl.data.draw import make_split
from puorl.data.split import PUSplit
from puorl.methods import METHODS, Method, find, make
from puorl.methods.two_domains import as_domains
from puorl.pu.config import FilterConfig, NetworkConfig

_NETS = {"hidden": (4,), "num_steps": 3, "batch_size": 8}
_PLAIN = {
    "dara": _NETS,
    "igdf": _NETS | {"num_dims": 2},
    "otdf": {"num_anchors": 20, "num_iterations": 5, "block": 400},
    "bosa": _NETS | {"num_members": 2},
    "srpo": _NETS,
    "share": _NETS | {"num_members": 2, "tolerance": 100.0},
}
TINY = {name: _PLAIN.get(name) or _PLAIN.get(name.partition("_")[2], {}) for name in METHODS}
LEARNT = {name for name in METHODS if name == "pu" or TINY[name]}


def has_filter(name):
    return name == "pu" or name.startswith("pu_")


@pytest.fixture
def tiny(fitted):
    """Makes a method with settings that cost little."""
    return lambda name: make(name, **TINY[name], **({"filter": fitted} if has_filter(name) else {}))


@pytest.mark.parametrize("name", METHODS)
def test_what_every_method_hands_over(name, tiny, small_split):
    method = tiny(name)
    chosen = method.prepare(small_split, seed=5)
    assert method.name == name
    assert chosen.pool is small_split.pool
    assert chosen.returns == small_split.returns
    assert chosen.returns is not None
    labelled = chosen.rows[: len(small_split.labelled)]
    assert np.array_equal(labelled, small_split.labelled)
    if chosen.action is None:
        assert len(np.unique(chosen.rows)) == len(chosen)
    assert json.loads(json.dumps(chosen.metadata, allow_nan=False)) == dict(chosen.metadata)
    assert chosen.metadata["method"] == name
    assert chosen.metadata["num_rows"] == len(chosen)
    assert chosen.metadata["seed"] == (5 if name in LEARNT else None)


@pytest.mark.parametrize("name", METHODS)
def test_only_oracles_need_the_truth(name, tiny, small_split):
    method = tiny(name)
    assert METHODS[name].needs_truth == name.startswith("oracle")
    nobody_knows = replace(small_split, truth=None)
    if METHODS[name].needs_truth:
        with pytest.raises(DataError, match="truth of this split is unknown"):
            method.prepare(nobody_knows, seed=0)
    else:
        assert len(method.prepare(nobody_knows, seed=0)) >= len(small_split.labelled)


@pytest.fixture(scope="module")
def coded_split():
    """Two machines with two codes, which one of them answers the other way round."""
    rng = np.random.default_rng(0)

    def machine(sign):
        obs = rng.normal(size=(400, 2))
        action = rng.integers(2, size=400)
        return Dataset.from_arrays(
            obs=obs,
            action=np.array(["down", "up"])[action],
            next_obs=obs + sign * (2 * action - 1)[:, None] + 0.1 * rng.normal(size=(400, 2)),
            reward=obs[:, 0],
            episode=np.arange(400) // 20,
        )

    return make_split(machine(1), machine(-1), rows=500, labelled_fraction=0.1, seed=0)


@pytest.mark.parametrize("name", METHODS)
def test_methods_work_on_codes(name, coded_split):
    quick = FilterConfig(
        residuals=None,
        network=NetworkConfig(hidden=(16,), learning_rate=1e-2),
        num_warm_up=10,
        num_main=60,
    )
    method = make(name, **TINY[name], **({"config": quick} if has_filter(name) else {}))
    chosen = method.prepare(coded_split, seed=0)
    assert chosen.pool.action_codes == ("down", "up")
    policy = puorl.train("bcq", chosen, steps=4, hidden=(4,), batch_size=8)
    assert set(policy.act(coded_split.pool.obs)) <= {"down", "up"}
    if name == "pu":  # only the change that follows a code tells the machines apart
        is_target = coded_split.reveal("scoring")[chosen.rows] == 0
        assert is_target.mean() > 0.9
        assert is_target.sum() > 120  # of 150


def test_sizes_at_the_papers_protocol(tiny):
    million = np.zeros((1_000_000, 2), np.float32)
    million[:, 0] = np.arange(1_000_000) % 7
    data = Dataset.from_arrays(
        obs=million, action=million[:, :1], next_obs=million, reward=million[:, 0]
    )
    split = make_split(data, data, seed=0)

    def size(name):
        return len(tiny(name).prepare(split, seed=0))

    assert [size(name) for name in ("olp", "oracle")] == [10_000, 300_000]
    assert [size(name) for name in ("sharing_all", "dara", "igdf")] == [1_000_000] * 3
    assert make("oracle").prepare(split, seed=0).metadata["alpha"] == 29 / 99


def test_the_oracle_takes_all_target_rows_and_no_other(small_split):
    rows = make("oracle").prepare(small_split, seed=0).rows
    truth = small_split.reveal("scoring")
    assert np.array_equal(np.sort(rows), np.flatnonzero(truth == 0))


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("daar", {}, "expected one of olp, sharing_all, dara, igdf, pu, oracle, .*, got 'daar'"),
        ("pu_share", {"share": 1.0}, "expected share from 0 to below 1, .* got 1.0"),
        ("pu_share", {"mode": "soft"}, "expected mode hard or top_alpha, got 'soft'"),
        ("pu_share", {"imitate": "some"}, "imitate: expected one of better, all, none"),
        ("otdf", {"xi": 0.0}, "expected xi above 0 and up to 1"),
        ("bosa", {"support": 1.0}, "expected support between 0 and 1"),
        ("srpo", {"low_fraction": 1.0}, "expected low_fraction between 0 and 1"),
        ("olp", {"eta": 1}, "olp: expected no settings; got eta"),
        ("dara", {"xi": 1, "beta": 2}, "dara: expected settings among eta, .*; got beta, xi"),
        ("dara", {"sampling": "thirds"}, "sampling: expected one of union, half, got 'thirds'"),
        ("dara", {"eta": -0.1}, "expected eta 0 or above and clip above 0, got eta -0.1"),
        ("dara", {"clip": 0.0}, "clip above 0, got eta 0.1, clip 0.0"),
        ("dara", {"num_steps": 0}, "num_steps: expected 1 or more, got 0"),
        ("igdf", {"xi": 0.0}, "xi: expected above 0 and up to 1, got 0.0"),
        ("igdf", {"batch_size": 1}, "batch_size: expected 2 or more"),
        ("igdf", {"num_dims": 0}, "num_dims: expected 1 or more, got 0"),
        ("igdf", {"weighting": "none"}, "weighting: expected one of row, batch, got 'none'"),
    ],
)
def test_what_is_refused(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        make(name, **settings)


@pytest.mark.parametrize("name", METHODS)
def test_settings_are_whole_and_make_the_same_method_again(name):
    settings = make(name, **TINY[name]).settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings.items() >= json.loads(json.dumps(TINY[name])).items()
    if not has_filter(name):  # the filter's config is written as a whole
        again = {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()}
        assert make(name, **again) == make(name, **TINY[name])


def test_titles_are_known_without_importing_a_method():
    titles = {True: [], False: []}
    for entry in METHODS.values():
        titles[entry.is_published].append(entry.title)
    assert titles[True] == ["OLP", "Sharing-All", "DARA", "IGDF", "PU", "Oracle"]
    assert titles[False] == [
        *("PU + sharing", "Oracle + sharing", "OTDF", "BOSA", "SRPO", "PU + DARA", "Oracle + DARA"),
        *("PU + IGDF", "Oracle + IGDF", "PU + OTDF", "Oracle + OTDF", "PU + BOSA", "Oracle + BOSA"),
        *("PU + SRPO", "Oracle + SRPO"),
    ]
    code = "import sys, puorl.methods; assert 'jax' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_method_must_prepare():
    with pytest.raises(TypeError, match="abstract method '?prepare"):
        Method()  # pyright: ignore[reportAbstractUsage]


def test_settings_reach_the_method():
    assert make("dara", eta=0.5) == find("dara")(eta=0.5)
    assert make("dara").eta == 0.1


def test_domains_are_raw_or_standardised_over_both(small_split):
    pool, rows = small_split.pool, np.arange(1_000)
    raw = as_domains(small_split, standardise=False)
    assert np.array_equal(raw.rows, rows)
    stacked = np.concatenate([pool.obs, pool.action, pool.next_obs], axis=1)
    assert np.array_equal(raw.x, stacked.astype(np.float32))
    assert raw.target.tolist() == list(range(100))
    assert raw.source.tolist() == list(range(100, 1_000))
    scaled = as_domains(small_split, standardise=True).x
    mean, scale = pool.obs.mean(), pool.obs.std() + 1e-3
    np.testing.assert_allclose(scaled[:, 0], (pool.obs[:, 0] - mean) / scale, atol=1e-6)
    np.testing.assert_allclose(scaled[:, 2], (pool.next_obs[:, 0] - mean) / scale, atol=1e-6)
    assert np.array_equal(scaled[:, 1], raw.x[:, 1])


def test_rows_without_a_next_state_are_set_apart(open_split):
    split = PUSplit.from_mask(open_split, np.arange(1_000) < 100)
    seen = as_domains(split, standardise=False)
    assert np.flatnonzero(~seen.known).tolist() == list(range(0, 1_000, 50))
    assert (len(seen.target), len(seen.source)) == (98, 882)
    assert np.array_equal(seen.x[0, [0]], seen.x[0, [2]])
    assert np.isfinite(seen.x).all()


def test_domains_need_next_states(open_split):
    with pytest.raises(DataError, match="labelled: expected rows with a known next state"):
        as_domains(PUSplit.from_mask(open_split, np.arange(1_000) == 50), standardise=False)
