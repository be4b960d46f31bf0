import numpy as np
import pytest

from puorl.core.errors import ConfigError, NotFittedError
from puorl.methods import make
from puorl.methods.pu import PU
from puorl.pu.config import PRESETS
from puorl.pu.filter import DomainFilter


def test_a_fitted_filter_serves_all_seeds(small_split, fitted):
    first, second = (PU(filter=fitted).prepare(small_split, seed=s) for s in (0, 1))
    kept = fitted.filter(small_split)
    assert np.array_equal(first.rows, kept.rows)
    assert np.array_equal(second.rows, kept.rows)
    assert first.weight is None
    assert first.metadata == second.metadata


def test_what_it_found(small_split, fitted):
    metadata = PU(filter=fitted).prepare(small_split, seed=0).metadata
    num_kept = int(fitted.predict(small_split).sum())
    assert 0 < num_kept < 900
    assert metadata["seed"] == 5
    assert metadata["num_kept"] == num_kept
    assert metadata["kept_fraction"] == num_kept / 900
    assert metadata["alpha"] == fitted.alpha_.value
    assert (metadata["preset"], metadata["mode"], metadata["unit"]) == (
        "own settings",
        "hard",
        "transition",
    )
    assert metadata["fitted_on_this_split"]


def test_another_splits_filter_is_said_to_be_one(worlds, fitted):
    other = worlds.split(1_000, shift=1.5)
    assert not PU(filter=fitted).prepare(other, seed=0).metadata["fitted_on_this_split"]


def test_it_keeps_target_rows(small_split, fitted):
    chosen = PU(filter=fitted).prepare(small_split, seed=0)
    is_target = small_split.reveal("scoring") == 0
    assert is_target[chosen.rows].mean() > 0.9
    assert is_target[chosen.rows].sum() > 0.8 * is_target.sum()


def test_it_fits_a_filter_of_its_own(small_split, quick_config, monkeypatch):
    monkeypatch.setitem(PRESETS, "thorough", quick_config)
    chosen = PU("thorough", mode="soft").prepare(small_split, seed=5)
    expected = DomainFilter(config=quick_config, mode="soft").fit(small_split, seed=5)
    assert np.array_equal(chosen.weight[100:], expected.predict_proba(small_split))
    assert np.all(chosen.weight[:100] == 1.0)
    assert chosen.metadata["kept_fraction"] == pytest.approx(chosen.weight[100:].mean(), rel=1e-5)
    assert (chosen.metadata["preset"], chosen.metadata["mode"]) == ("thorough", "soft")
    assert chosen.metadata["seed"] == 5


def test_evidence_is_passed_on_and_old_hashes_stay(small_split, quick_config, monkeypatch):
    monkeypatch.setitem(PRESETS, "thorough", quick_config)
    by_rows = PU("thorough", evidence="rows")
    assert by_rows.fitted(small_split, seed=5).evidence == "rows"
    assert by_rows.settings()["evidence"] == "rows"
    assert "evidence" not in PU("thorough").settings()


def test_a_fitted_filter_goes_with_no_settings(fitted):
    with pytest.raises(ConfigError, match="got filter= and preset, mode; set them where"):
        PU(preset="paper", mode="soft", filter=fitted)


def test_the_filter_must_have_learnt(small_split):
    with pytest.raises(NotFittedError):
        PU(filter=DomainFilter()).prepare(small_split, seed=0)


def test_unknown_modes_are_refused(small_split):
    with pytest.raises(ConfigError, match="mode: expected one of hard, top_alpha, soft"):
        PU(mode="firm").prepare(small_split, seed=0)


def test_settings_may_change_the_filters_config():
    settings = {"mode": "soft", "num_main": 3, "network": {"hidden": (8,)}, "residuals": None}
    method = make("pu", **settings)
    assert method.config.network.hidden == (8,)
    assert method.config.network.batch_size == PRESETS["default"].network.batch_size
    assert method.settings()["config"]["num_main"] == 3
    assert method.settings()["config"]["residuals"] is None
    assert (method.settings()["mode"], method.settings()["preset"]) == ("soft", "default")
    assert make("pu", num_main=None) == PU()
    assert PU().settings()["config"] == PRESETS["default"].to_dict()
    with pytest.raises(ConfigError, match="expected settings among learner, .*; got eta"):
        make("pu", eta=1)
    with pytest.raises(ConfigError, match="preset: expected one of default, thorough, robots"):
        make("pu", preset="own")


def test_a_changed_config_is_said_to_be_one(small_split, quick_config, monkeypatch):
    monkeypatch.setitem(PRESETS, "thorough", quick_config)
    chosen = make("pu", preset="thorough", num_main=1).prepare(small_split, seed=5)
    assert chosen.metadata["preset"] == "thorough, changed"


def test_a_fit_goes_on_from_a_folder(small_split, quick_config, monkeypatch, tmp_path):
    monkeypatch.setitem(PRESETS, "thorough", quick_config)
    chosen = PU("thorough").prepare(small_split, seed=5, checkpoint=tmp_path)
    assert list(tmp_path.iterdir())
    assert np.array_equal(PU("thorough").prepare(small_split, seed=5).rows, chosen.rows)
