from collections import Counter

import pytest

from puorl.bench import published
from puorl.core.errors import ConfigError


def cell(shift, body, share, quality):
    [found] = [
        c
        for c in published.classifier_accuracy()
        if (c.shift, c.body, c.labelled_fraction, c.quality) == (shift, body, share, quality)
    ]
    return found.mean, found.std


def test_every_cell_is_there_once():
    cells = published.classifier_accuracy()
    assert Counter((c.shift, c.labelled_fraction) for c in cells) == {
        ("body_mass", 0.01): 12,
        ("body_mass", 0.03): 12,
        ("mixture", 0.01): 12,
        ("mixture", 0.03): 12,
        ("entire_body", 0.01): 4,
        ("entire_body", 0.03): 4,
    }
    assert len({(c.shift, c.body, c.labelled_fraction, c.quality) for c in cells}) == len(cells)
    assert {c.quality for c in cells} == {"ME/ME", "ME/R", "M/M", "M/R"}
    assert {c.body for c in cells} == {"hopper", "halfcheetah", "walker2d"}
    assert {c.body for c in cells if c.shift == "entire_body"} == {"halfcheetah"}


# Read off the printed tables by eye: corners, the lowest and the highest cell, the widest spread.
@pytest.mark.parametrize(
    ("key", "printed"),
    [
        (("body_mass", "hopper", 0.01, "ME/ME"), (99.54, 0.06)),
        (("body_mass", "hopper", 0.03, "M/R"), (99.32, 0.05)),
        (("body_mass", "walker2d", 0.01, "M/M"), (98.36, 0.02)),
        (("body_mass", "walker2d", 0.03, "M/R"), (99.39, 0.08)),
        (("body_mass", "halfcheetah", 0.03, "ME/R"), (99.70, 0.10)),
        (("mixture", "hopper", 0.01, "ME/ME"), (98.92, 0.54)),
        (("mixture", "walker2d", 0.01, "ME/R"), (98.02, 0.16)),
        (("mixture", "walker2d", 0.03, "M/R"), (98.81, 0.25)),
        (("entire_body", "halfcheetah", 0.03, "ME/ME"), (99.98, 0.01)),
        (("entire_body", "halfcheetah", 0.03, "M/R"), (99.96, 0.21)),
    ],
)
def test_cells_are_as_printed(key, printed):
    assert cell(*key) == printed


def test_the_paper_says_that_every_cell_is_above_98():
    assert min(c.mean for c in published.classifier_accuracy()) > 98


def test_policy_scores_are_complete_and_as_printed():
    rows = published.rows("policy_scores")
    assert len(rows) == 468
    keys = {tuple(v for k, v in row.items() if k not in ("mean", "ci95")) for row in rows}
    assert len(keys) == len(rows)
    # TD3+BC has both ratios, IQL one; each setting has six methods.
    assert Counter(row["learner"] for row in rows) == {"td3_bc": 312, "iql": 156}
    assert {n for n in Counter(row["method"] for row in rows).values()} == {78}
    [ours] = [
        row
        for row in rows
        if list(row.values())[:6] == ["td3_bc", "body_mass", "0.01", "hopper", "ME/ME", "pu"]
    ]
    assert (ours["mean"], ours["ci95"]) == ("98.3", "5.9")


def test_an_unknown_table_names_the_known():
    with pytest.raises(ConfigError, match="classifier_accuracy, policy_scores, got 'accuracy'"):
        published.rows("accuracy")


def test_no_table_lies_unnamed_in_the_package():
    folder = published.files("puorl.bench") / "published_numbers"
    assert {f.name for f in folder.iterdir() if f.name.endswith(".csv")} == {
        f"{table}.csv" for table in published.TABLES
    }
