"""Methods across domains as lanes of one benchmark: one program, whatever they change in rows."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_suite import BUDGET

from puorl.bench.plan import make_plan
from puorl.bench.runner import run
from puorl.bench.settings import Setting
from puorl.bench.store import Store
from puorl.bench.suites import LearnerChoice, MethodChoice, Part, Suite
from puorl.methods import METHODS

QUICK = {"residuals": None, "network": {"hidden": (8,)}, "num_warm_up": 1, "num_main": 1}
_NETS = {"hidden": (4,), "num_steps": 3, "batch_size": 8}
_OWN = {
    "dara": _NETS,
    "igdf": _NETS | {"num_dims": 2},
    "otdf": {"num_anchors": 20, "num_iterations": 5, "block": 400},
    "bosa": _NETS | {"num_members": 2},
    "srpo": _NETS,
    "share": _NETS | {"num_members": 2, "tolerance": 100.0},
}


def choices():
    """Every method that is not the paper's, and PU twice: as itself and as sharing nothing."""
    found = [MethodChoice("pu", QUICK), MethodChoice("pu_share", QUICK | {"share": 0.0}, "none")]
    for name, entry in METHODS.items():
        if not entry.is_published:
            own = _OWN[name.split("_")[-1]]
            found.append(MethodChoice(name, own | (QUICK if name.startswith("pu_") else {})))
    return tuple(found)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Rows of the store, by label."""
    setting = Setting("morphology", "hopper", "M/R", 0.1, rows=600, record=10)
    learner = LearnerChoice("td3_bc", settings={"hidden": (4,), "batch_size": 8})
    suite = Suite("sharing", "", (Part(setting, learner, choices()),), BUDGET)
    out, plan = tmp_path_factory.mktemp("sharing"), make_plan(suite, seeds=1)
    run(plan, out)
    latest = Store(out).latest()
    return {each.method.label: latest[each.id] for each in plan.runs}


def test_all_of_them_train_together(rows):
    assert [row["error"] for row in rows.values()] == [None] * len(rows)
    assert len(rows) == 17
    assert len({row["group"] for row in rows.values()}) == 1
    assert all(len(row["scores"]) == BUDGET.episodes for row in rows.values())
    trainings = [row["training"] for row in rows.values()]
    assert len(set(trainings)) == len(rows) - 1


def test_sharing_nothing_is_the_very_training_of_pu(rows):
    pu, none = rows["pu"], rows["pu_share-none"]
    assert none["content_hash"] == pu["content_hash"]
    assert none["training"] == pu["training"]
    assert none["scores"] == pu["scores"]
    assert rows["pu_share"]["content_hash"] != pu["content_hash"]


def test_what_a_filters_labels_cost_can_be_read(rows):
    for name in ("dara", "igdf", "otdf", "bosa", "srpo"):
        assert "alpha_interval" in rows[f"pu_{name}"]["metadata"]
        assert rows[f"oracle_{name}"]["metadata"]["alpha"] == pytest.approx(0.22, abs=0.05)
