import dataclasses
import json

import numpy as np
import pytest

from puorl.bench import prepare as preparing
from puorl.bench.prepare import method_settings, prepare
from puorl.bench.suites import METHODS, MethodChoice
from puorl.core.errors import ConfigError
from puorl.data.dataset import Dataset
from puorl.data.split import make_split

IGDF = MethodChoice("igdf", {"hidden": (4,), "num_steps": 2, "num_dims": 2, "batch_size": 4})


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(0)
    domains = []
    for shift in (0.0, 1.0):
        rows = {name: rng.normal(size=(80, 2)) + shift for name in ("obs", "next_obs")}
        made = Dataset.from_arrays(
            **rows,
            action=rng.uniform(-1, 1, (80, 1)),
            reward=rng.normal(size=80),
            terminal=np.zeros(80, bool),
            timeout=np.arange(80) % 10 == 9,
        )
        domains.append(made)
    return make_split(*domains, rows=100, target_fraction=0.3, labelled_fraction=0.1, seed=0)


def arrays(done):
    chosen = done.set
    names = ("rows", "weight", "reward", "critic_weight", "score")
    return {n: getattr(chosen, n) for n in names if getattr(chosen, n) is not None}


def test_what_is_kept_is_what_was_made(split, tmp_path, monkeypatch):
    first = prepare(tmp_path, split, split.fingerprint, IGDF, seed=3)
    monkeypatch.setattr(preparing, "_make", None)  # nothing is made again
    again = prepare(tmp_path, split, split.fingerprint, IGDF, seed=3)
    assert arrays(first).keys() == arrays(again).keys() == {"rows", "critic_weight", "score"}
    for name, array in arrays(first).items():
        np.testing.assert_array_equal(array, arrays(again)[name])
        assert array.dtype == arrays(again)[name].dtype
    for name in ("groups", "returns", "about"):
        assert getattr(first.set, name) == getattr(again.set, name)
    assert (first.content, first.seconds) == (again.content, again.seconds)
    assert first.set.groups.num_first == 10
    assert first.set.about["seed"] == 3


def test_other_seeds_settings_and_splits_are_made_anew(split, tmp_path):
    other = make_split(split.pool, split.pool, rows=50, labelled_fraction=0.1, seed=0)
    wider = dataclasses.replace(IGDF, settings={**IGDF.settings, "num_dims": 3})
    for at, choice, seed in (
        (split, IGDF, 0),
        (split, IGDF, 1),
        (split, wider, 0),
        (other, IGDF, 0),
    ):
        prepare(tmp_path, at, at.fingerprint, choice, seed=seed)
    assert len(list(tmp_path.glob("*.npz"))) == len(list(tmp_path.glob("*.json"))) == 4


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_damaged_file_is_made_anew(split, tmp_path, suffix):
    choice = MethodChoice("sharing_all")
    first = prepare(tmp_path, split, split.fingerprint, choice, seed=0)
    [file] = tmp_path.glob(f"*{suffix}")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    again = prepare(tmp_path, split, split.fingerprint, choice, seed=0)
    assert again.content == first.content
    assert file.stat().st_size == len(whole)


def test_rows_of_another_content_are_not_believed(split, tmp_path):
    choice = MethodChoice("olp")
    prepare(tmp_path, split, split.fingerprint, choice, seed=0)
    [file] = tmp_path.glob("*.npz")
    np.savez(file, rows=np.arange(5))
    again = prepare(tmp_path, split, split.fingerprint, choice, seed=0)
    np.testing.assert_array_equal(again.set.rows, split.labelled)


def test_settings_are_whole_and_json():
    for choice in METHODS:
        settings = method_settings(choice)
        assert json.loads(json.dumps(settings)) == settings
    assert method_settings(MethodChoice("dara"))["eta"] == 0.1
    changed = method_settings(MethodChoice("pu", {"mode": "soft", "features": {"inputs": "sar"}}))
    assert (changed["mode"], changed["preset"]) == ("soft", "default")
    assert changed["config"]["features"]["inputs"] == "sar"
    assert changed["config"]["network"] == method_settings(MethodChoice("pu"))["config"]["network"]


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        (MethodChoice("magic"), "method: expected one of olp"),
        (MethodChoice("dara", {"etta": 1}), "dara: expected settings among eta"),
        (
            MethodChoice("pu", {"etta": 1}),
            "pu: expected settings among preset, mode, unit",
        ),
        (
            MethodChoice("pu", {"preset": "best"}),
            "preset: expected one of default, thorough",
        ),
    ],
)
def test_unknown_settings_are_refused(choice, says):
    with pytest.raises(ConfigError, match=says):
        method_settings(choice)
