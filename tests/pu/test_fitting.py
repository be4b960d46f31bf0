import dataclasses
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from puorl.core.run_folder import Checkpoint
from puorl.core.stats import Estimate
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu import fitting
from puorl.pu.config import FilterConfig, NetworkConfig, ResidualConfig
from puorl.pu.cross_fit import cross_fit, cross_fit_behaviour
from puorl.pu.fitting import fit as fit_model
from puorl.pu.fitting import identity
from puorl.pu.units import Unit, group, parse_unit

SMALL = FilterConfig(
    network=NetworkConfig(hidden=(16,), batch_size=64, learning_rate=5e-3),
    residuals=ResidualConfig(hidden=(16,), num_steps=1_000, batch_size=32),
    num_warm_up=30,
    num_main=10,
)
PLAIN = dataclasses.replace(SMALL, residuals=None)
ROW = Unit("transition")


def make(world, seed):
    both = Dataset.concatenate([world(600, 0.0, seed=seed), world(900, 2.0, seed=seed + 100)])
    return PUSplit.from_mask(both, labelled=np.arange(len(both)) < 200, seed=seed)


def fit(split, config=SMALL, seed=0):
    return fit_model(split, config, unit=ROW, seed=seed, checkpoint=Checkpoint(None))


def score(model, split):
    return model.probability(model.logits(split, split.unlabelled))


def with_rows(split, **changes):
    """The same split over other fields."""
    rows = dataclasses.replace(split.pool.rows, **changes)
    return dataclasses.replace(split, pool=dataclasses.replace(split.pool, rows=rows))


def permuted(split, order):
    """Row order[i] of the old pool at place i; the lists name the same rows in the same order."""
    back = np.argsort(order)
    return dataclasses.replace(
        split,
        pool=split.pool[order],
        labelled=back[split.labelled],
        unlabelled=back[split.unlabelled],
    )


@pytest.fixture(scope="module")
def splits(world):
    return [make(world, seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def fitted(splits):
    return fit(splits[0])


@pytest.fixture(scope="module")
def plain(splits):
    return fit(splits[0], PLAIN)


def test_splits_side_by_side_are_fitted_as_alone(splits, plain, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "filter"))
    together = import_module("many").fit_many(splits, PLAIN, seeds=[0, 7])
    alone = [plain, fit(splits[1], PLAIN, seed=7)]
    for one, many, split in zip(alone, together, splits, strict=True):
        # The same steps on the same batches; lanes only sum in another order, which grows a little.
        np.testing.assert_allclose(score(many, split), score(one, split), atol=1e-3)
        np.testing.assert_allclose(many.alpha_history, one.alpha_history, atol=1e-3)
        assert many.alpha.value == pytest.approx(one.alpha.value, abs=1e-3)
        assert (many.seed, many.unit) == (one.seed, one.unit)
        assert many.split_fingerprint == one.split_fingerprint == split.fingerprint
    # Not because all fits are alike: what the lanes differ by is far above the tolerance.
    crossed = score(together[1], splits[0]) - score(together[0], splits[0])
    assert np.abs(crossed).max() > 0.1


def test_episode_ids_do_not_enter_a_fit_by_rows(splits, fitted):
    split = splits[0]
    assert split.pool.num_episodes == 15
    other_ids = np.random.default_rng(0).permutation(100)[split.pool.episode]
    for ids in (other_ids, np.zeros(len(split.pool), np.int64), None):
        changed = with_rows(split, episode=ids)
        again = fit(changed)
        np.testing.assert_array_equal(score(again, changed), score(fitted, split))
        assert again.alpha == fitted.alpha


def test_times_and_flags_do_not_enter_either(splits, fitted):
    split = splits[0]
    changed = with_rows(split, time=np.arange(1_500.0), timeout=np.zeros(1_500, bool))
    np.testing.assert_array_equal(score(fit(changed), changed), score(fitted, split))


def test_the_order_of_rows_does_not_enter_a_fit(splits, plain):
    split = splits[0]
    moved = permuted(split, np.random.default_rng(0).permutation(len(split.pool)))
    again = fit(moved, PLAIN)
    # Batches follow the split's lists, which name the same rows; column means may round otherwise.
    np.testing.assert_allclose(score(again, moved), score(plain, split), atol=1e-4)
    assert again.alpha.value == pytest.approx(plain.alpha.value, abs=1e-3)


def test_the_order_of_rows_moves_models_of_the_dynamics_no_more_than_a_seed(splits, fitted):
    # They draw batches by place, so another order is another draw, not another result.
    split = splits[0]
    moved = permuted(split, np.random.default_rng(0).permutation(len(split.pool)))
    again = fit(moved)
    difference = np.abs(score(again, moved) - score(fitted, split)).mean()
    other_seed = np.abs(score(fit(split, seed=1), split) - score(fitted, split)).mean()
    assert difference < 0.5 * other_seed
    same = (score(again, moved) >= 0.5) == (score(fitted, split) >= 0.5)
    assert same.mean() > 0.97


def test_a_fitted_filter_judges_rows_in_any_order_alike(splits, fitted):
    split = splits[0]
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(split.pool))
        np.testing.assert_allclose(
            score(fitted, permuted(split, order)), score(fitted, split), atol=1e-6
        )


def test_identity_is_of_all_that_decides_a_result(splits):
    split = splits[0]
    settings = [
        ("fit", split, SMALL, ROW, 0),
        ("report", split, SMALL, ROW, 0),
        ("fit", splits[1], SMALL, ROW, 0),
        ("fit", split, PLAIN, ROW, 0),
        ("fit", split, SMALL, Unit("episode"), 0),
        ("fit", split, SMALL, ROW, 1),
    ]
    assert len({identity(*each) for each in settings}) == len(settings)
    assert identity(*settings[0]) == identity(*settings[0])


def test_few_labelled_episodes_leave_no_row_unjudged(world):
    data = Dataset.concatenate([world(1_000, 0.0, seed=1), world(2_000, 2.0, seed=2)])
    assert data.episode is not None
    known = np.isin(data.episode, np.unique(data.episode)[:3])
    split = PUSplit.from_mask(data, labelled=known, unit="episode")
    model = fit(split, PLAIN)
    assert model.params[0].w.shape[0] == 3  # a lane for each fold that has labels
    assert np.isfinite(model.logits(split, split.unlabelled)).all()


class Stopped(Exception):
    """Ends a fit before its training."""


@pytest.mark.parametrize("unit", ["episode", "window:10"])
def test_every_unit_is_trained_on_by_all_lanes_but_the_one_that_holds_it_out(
    world, unit, monkeypatch
):
    data = Dataset.concatenate(
        [world(1_000, 0.0, seed=1, length=20), world(1_500, 2.0, seed=2, length=20)]
    )
    split = PUSplit.from_mask(data, labelled=np.arange(2_500) < 500)
    seen = {}

    def stop(x, rows, *args, **kwargs):
        seen["rows"] = rows
        raise Stopped

    monkeypatch.setattr(fitting, "train", stop)
    with pytest.raises(Stopped):
        fit_model(split, PLAIN, unit=parse_unit(unit), seed=0, checkpoint=Checkpoint(None))
    grouping = group(split, parse_unit(unit), 0)
    for name, labelled in (("p", True), ("u", False)):
        units = np.unique(grouping.number[grouping.labelled == labelled])
        train, held = (
            [np.unique(grouping.number[lane]) for lane in np.asarray(getattr(seen["rows"], part))]
            for part in (f"train_{name}", f"held_{name}")
        )
        for learnt, kept_out in zip(train, held, strict=True):
            assert not np.isin(kept_out, learnt).any()
            np.testing.assert_array_equal(np.union1d(learnt, kept_out), units)
        assert sum(map(len, held)) == len(units)


WARM_UP = dataclasses.replace(SMALL, num_main=0)
"""For refits: one program to compile instead of two."""


class Killed(BaseException):
    """What no code catches."""


class Dying(Checkpoint):
    """Keeps every state, and dies right after one of them."""

    def __init__(self, folder, stage, done):
        super().__init__(folder, "job", seconds=-1.0)
        self._end = (stage, done)

    def store(self, stage, state, done, *, now=False):
        super().store(stage, state, done, now=now)
        if (stage, done) == self._end:
            raise Killed


@pytest.fixture(scope="module")
def split(world):
    both = Dataset.concatenate([world(600, 0.0, seed=1), world(900, 2.0, seed=2)])
    return PUSplit.from_mask(both, labelled=np.arange(len(both)) < 200)


def outcome(split, checkpoint):
    """All numbers that a fit and its report rest on."""
    model = fit_model(split, SMALL, unit=ROW, seed=0, checkpoint=checkpoint)
    short = dataclasses.replace(model, config=WARM_UP)
    again = cross_fit(short, split, "hard", seed=0, checkpoint=checkpoint)
    behaviour = cross_fit_behaviour(
        short, split, "hard", seed=0, checkpoint=checkpoint, progress=False
    )
    return {
        "score": model.probability(model.logits(split, split.unlabelled)),
        "alpha": np.array([model.alpha.value, *model.alpha.interval]),
        "alpha_history": model.alpha_history,
        "weights": np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model.params)]),
        "cross-fit": np.concatenate([again.score_p, again.score_u]),
        "behaviour": np.concatenate([behaviour.score_p, behaviour.score_u]),
    }


@pytest.fixture(scope="module")
def uninterrupted(split):
    return outcome(split, Checkpoint(None))


@pytest.mark.parametrize(
    ("stage", "done"),
    [
        ("residuals-0", 500),
        ("classifier", 30),
        ("cross-fit", 30),
        *(
            pytest.param(*moment, marks=pytest.mark.slow)
            for moment in (
                ("residuals-0", 1_000),
                ("residuals-1", 500),
                ("residuals-1", 1_000),
                ("classifier", 1),
                ("classifier", 39),
                ("classifier", 40),
                ("cross-fit", 3),
                ("behaviour", 3),
                ("behaviour", 30),
            )
        ),
    ],
)
def test_a_fit_killed_anywhere_goes_on_to_the_same_end(tmp_path, split, uninterrupted, stage, done):
    with pytest.raises(Killed):
        outcome(split, Dying(tmp_path, stage, done))
    assert (tmp_path / f"{stage}.safetensors").exists()
    resumed = outcome(split, Checkpoint(tmp_path, "job"))
    for name, wanted in uninterrupted.items():
        np.testing.assert_array_equal(resumed[name], wanted, err_msg=name)


def test_a_finished_fit_is_read_and_not_fitted_again(tmp_path, split, uninterrupted, monkeypatch):
    outcome(split, Checkpoint(tmp_path, "job"))
    names = ("residuals-0", "residuals-1", "classifier", "cross-fit", "behaviour")
    assert {path.name for path in tmp_path.iterdir()} == {f"{n}.safetensors" for n in names}

    def never(*_, **__):
        raise AssertionError("a step was taken")

    monkeypatch.setattr("puorl.pu.learners.run_epoch", never)
    monkeypatch.setattr("puorl.pu.features._run", never)
    again = outcome(split, Checkpoint(tmp_path, "job"))
    for name, wanted in uninterrupted.items():
        np.testing.assert_array_equal(again[name], wanted, err_msg=name)


# ------------------------------------------------------------------------- few labelled rows


@pytest.mark.parametrize(("plain_end", "is_plain"), [(0.4, True), (0.5, False), (0.9, False)])
def test_without_rejection_counts_where_it_halves_the_upper_end_of_alpha(plain_end, is_plain):
    def model(high):
        return SimpleNamespace(alpha=Estimate(0.1, 0.0, high, method="bbe"))

    tedn, plain = model(0.999), model(plain_end)
    assert fitting.clearer(tedn, plain) is (plain if is_plain else tedn)


def test_with_few_labelled_rows_nothing_is_rejected_in_a_second_fit(
    splits, plain, tmp_path, monkeypatch
):
    split, stage = splits[0], "classifier-without-rejection"

    def choose():
        return fit_model(
            split, PLAIN, unit=ROW, seed=0, checkpoint=Checkpoint(tmp_path, "job"), choose=True
        )

    pairs = []
    monkeypatch.setattr(fitting, "clearer", lambda *pair: pairs.append(pair) or pair[1])
    other = choose()
    [(tedn, _)] = pairs
    np.testing.assert_array_equal(score(tedn, split), score(plain, split))
    assert (other.config.learner, other.alpha.method) == ("pvu", "scott")
    assert (tmp_path / f"{stage}.safetensors").exists()
    held = cross_fit(other, split, "hard", seed=0, checkpoint=Checkpoint(None))
    assert ((held.score_u >= 0.0) & (held.score_u <= 1.0)).all()
    monkeypatch.setattr(fitting, "MANY_TO_REJECT", len(split.labelled))
    assert choose().config.learner == "tedn"
    assert len(pairs) == 1
