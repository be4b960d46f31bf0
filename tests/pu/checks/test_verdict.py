from dataclasses import replace

import numpy as np
import pytest

from puorl.core.stats import Estimate
from puorl.pu.alpha import alpha_estimate
from puorl.pu.checks.behaviour import Selection, Shortcut
from puorl.pu.checks.quality import Quality
from puorl.pu.checks.recording import ColumnShortcut
from puorl.pu.checks.verdict import CheckResults, decide
from puorl.pu.units import Unit, parse_unit

GOOD = CheckResults(
    second_domain_detectable=True,
    alphas=(
        alpha_estimate(0.3, (0.29, 0.31), method="bbe"),
        alpha_estimate(0.3, (0.29, 0.31), method="dedpul"),
    ),
    alphas_agree=True,
    quality=Quality(
        num_labelled=1000,
        num_unlabelled=9000,
        num_kept=2700,
        recall=Estimate(0.98, 0.97, 0.99),
        precision=Estimate(0.97, 0.95, 0.99),
        purity=Estimate(0.98, 0.96, 0.99),
        precision_is_upper=False,
    ),
    num_scored=1000,
    num_groups=None,
    num_groups_u=None,
    shortcut=Shortcut(Estimate(0.8, 0.79, 0.81), Estimate(0.55, 0.54, 0.56), 0.17, False),
    columns=(),
    selection=Selection(Estimate(0.5, 0.48, 0.52), True, "Nothing speaks against it."),
    unit=Unit("transition"),
    has_episodes=True,
    num_scattered=0,
    may_use_reward=False,
)
ALIKE = replace(
    GOOD,
    second_domain_detectable=False,
    shortcut=Shortcut(Estimate(0.52, 0.48, 0.56), Estimate(0.5, 0.46, 0.54), 0.0, False, False),
)
COLUMN = ColumnShortcut("obs[1]", "rounding", 1.0, "obs[1]: 100% are rounded.")


def quality(**changes):
    return replace(GOOD, quality=replace(GOOD.quality, **changes))


def test_nothing_wrong_is_clear():
    verdict, advice, warnings = decide(GOOD)
    assert (verdict, warnings) == ("clear", ())
    assert "95 % to 99 %" in advice


def test_no_second_domain():
    evidence = replace(ALIKE, columns=(COLUMN,))
    verdict, advice, warnings = decide(evidence)
    assert verdict == "cannot_tell"
    assert "No second domain is detectable" in advice
    assert "the data cannot say which" in advice
    assert "upper estimate" in advice
    assert any("obs[1]" in text for text in warnings)


def test_the_next_step_where_rows_look_alike():
    advice = decide(ALIKE)[1]
    assert "To learn more, label more rows, in other episodes too or decide by" in advice
    assert "inputs sars" not in advice
    rewarded = replace(
        ALIKE, may_use_reward=True, num_groups=30, num_groups_u=90, unit=Unit("episode")
    )
    advice = decide(rewarded)[1]
    assert "label rows in more episodes or add rewards to the inputs" in advice
    by_value = replace(
        rewarded, unit=Unit("column", column="robot_id"), may_use_reward=False, has_episodes=False
    )
    assert "To learn more, label rows of more values of robot_id, and read" in decide(by_value)[1]


@pytest.mark.parametrize("precision", [Estimate(np.nan, np.nan, np.nan), Estimate(0.8, 0.0, 1.0)])
def test_unknown_precision_is_no_upper_estimate(precision):
    unknown = replace(GOOD.quality, precision=precision, precision_is_upper=True)
    for evidence in (ALIKE, GOOD):
        _, advice, warnings = decide(replace(evidence, quality=unknown))
        said = " ".join((advice, *warnings))
        assert "upper estimate" not in said
        assert "so is the precision" not in said
        assert "20%" not in said


SEPARATED = replace(
    GOOD,
    second_domain_detectable=False,
    shortcut=Shortcut(Estimate(0.98, 0.4, 1.0), Estimate(0.9, 0.3, 1.0), 0.83, False, False),
)


@pytest.mark.parametrize(
    ("changes", "few"),
    [
        (
            {"num_groups": 3, "num_groups_u": 40},
            "3 labelled episodes are too few to be sure: label rows in more episodes.",
        ),
        ({"num_groups": 3, "num_groups_u": 40, "num_scored": 60}, "3 labelled episodes are too"),
        ({"num_scored": 20}, "20 labelled rows are too few to be sure: label more rows"),
        (
            {"num_groups": 40, "num_groups_u": 3},
            "3 unlabelled episodes are too few to be sure: add unlabelled rows of more episodes.",
        ),
        (
            {"num_groups": 3, "num_groups_u": 9, "unit": Unit("column", column="robot_id")},
            "3 labelled values of "
            "robot_id are too few to be sure: label rows of more values of robot_id.",
        ),
    ],
)
def test_separated_scores_of_few_rows_are_doubtful_not_alike(changes, few):
    verdict, advice, warnings = decide(replace(SEPARATED, **changes))
    assert verdict == "doubtful"
    assert advice.startswith(f"The scores differ (AUROC 0.98), but {few}")
    assert any("0.40 to 1.00" in text for text in warnings)
    assert any("83% of the AUROC above chance, but" in text for text in warnings)


def test_values_of_a_column_are_not_called_episodes():
    few = replace(GOOD, unit=Unit("column", column="robot_id"), num_groups=4, num_groups_u=20)
    _, _, warnings = decide(few)
    assert "come from 4 values of robot_id only" in warnings[0]
    doubt = replace(DOUBT, unit=Unit("column", column="robot_id"), has_episodes=False)
    assert "look at the doubtful values of robot_id" in decide(doubt)[1]


def test_behaviour_outranks_doubt():
    shortcut = replace(GOOD.shortcut, fraction=0.93, is_shortcut=True)
    verdict, advice, warnings = decide(replace(GOOD, shortcut=shortcut, alphas_agree=False))
    assert verdict == "behaviour"
    assert "State and action alone" in advice
    assert "93%" in warnings[0]
    assert any("disagree" in text for text in warnings)


def alpha(value, low, high):
    return replace(GOOD, alphas=(alpha_estimate(value, (low, high), method="bbe"), GOOD.alphas[1]))


@pytest.mark.parametrize(
    ("evidence", "said", "advised"),
    [
        (replace(GOOD, alphas_agree=False), "disagree: bbe 0.30 and dedpul 0.30", "whole episodes"),
        (alpha(0.004, 0.0, 0.01), "Hardly any unlabelled row", "the target is among"),
        (alpha(0.3, 0.1, 0.5), "10% to 50%", "label more rows"),
        (replace(GOOD, columns=(COLUMN,)), "rounded", "Record labelled and unlabelled rows alike"),
        (replace(GOOD, num_scored=40), "Only 40 labelled rows", "label more"),
        (replace(GOOD, num_groups=4, num_groups_u=90), "4 episodes", "in more episodes"),
        (
            replace(GOOD, shortcut=replace(GOOD.shortcut, fraction=0.97, is_sure=False)),
            "97% of the AUROC above chance, but the intervals are too wide",
            "whole episodes",
        ),
        (quality(precision=Estimate(0.7, 0.65, 0.8)), "About 30% of the kept", "65 % to 80 %"),
        (quality(recall=Estimate(0.6, 0.5, 0.7)), "About 40% of the target's", "doubtful"),
        (quality(precision_is_upper=True), "Alpha is an upper bound", "whole episodes"),
        (
            quality(precision=Estimate(0.95, 0.7, 1.0)),
            "interval of the precision is wide: 70% to 100%",
            "anything from 70 % to 100 %",
        ),
        (
            quality(precision=Estimate(np.nan, np.nan, np.nan)),
            "is not known",
            "is not known. Decide by whole episodes",
        ),
        (
            quality(precision=Estimate(0.7, 0.001, 1.0)),
            "is not known: any fraction fits the data",
            "is not known. Decide by whole episodes",
        ),
        (
            quality(num_kept=0, precision=Estimate(np.nan, np.nan, np.nan)),
            "No unlabelled row is kept",
            "same kind of recording",
        ),
        (
            replace(GOOD, selection=replace(GOOD.selection, is_random=False, sentence="Not so.")),
            "Not so.",
            "from everywhere",
        ),
    ],
)
def test_each_cause_of_doubt_is_named_with_what_to_do(evidence, said, advised):
    verdict, advice, warnings = decide(evidence)
    assert verdict == "doubtful"
    assert len(warnings) == 1
    assert said in warnings[0]
    assert advised in advice
    assert "nan" not in advice


def test_a_wide_precision_is_no_certainty():
    evidence = replace(
        alpha(0.3, 0.05, 0.5), quality=replace(GOOD.quality, precision=Estimate(0.93, 0.15, 1.0))
    )
    verdict, advice, warnings = decide(evidence)
    assert verdict == "doubtful"
    assert "The precision is uncertain: anything from 15 % to 100 % of" in advice
    assert "likely yours" not in advice
    assert any("15% to 100%" in text for text in warnings)


def test_an_upper_estimate_is_advised_as_one():
    advice = decide(quality(precision_is_upper=True))[1]
    assert advice.startswith("At most 99 % of the kept rows are yours, and it may be far fewer.")


DOUBT = replace(GOOD, alphas_agree=False)
FEW = replace(GOOD, num_scored=40)
ACTED = replace(GOOD, shortcut=replace(GOOD.shortcut, is_shortcut=True))


@pytest.mark.parametrize("evidence", [DOUBT, ALIKE])
@pytest.mark.parametrize(
    ("unit", "has_episodes", "is_advised"),
    [
        ("transition", True, True),
        ("transition", False, False),
        ("window:50", True, False),
        ("episode", True, False),
        ("column:robot", True, False),
    ],
)
def test_whole_episodes_are_advised_where_that_is_new_and_possible(
    evidence, unit, has_episodes, is_advised
):
    advice = decide(replace(evidence, unit=parse_unit(unit), has_episodes=has_episodes))[1]
    assert ("by whole episodes" in advice) is is_advised


@pytest.mark.parametrize("evidence", [DOUBT, ALIKE, FEW, ACTED])
def test_without_episodes_none_are_spoken_of(evidence):
    assert "episode" in decide(evidence)[1]
    assert "episode" not in decide(replace(evidence, has_episodes=False))[1]


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [(GOOD, "clear"), (DOUBT, "doubtful"), (ALIKE, "cannot_tell"), (ACTED, "behaviour")],
)
def test_scattered_labels_are_said_and_change_no_verdict(evidence, verdict):
    scattered = replace(evidence, unit=parse_unit("window:50"), num_scattered=1234)
    found, _, warnings = decide(scattered)
    assert found == verdict == decide(evidence)[0]
    assert "1,234 unlabelled rows share their window" in warnings[-1]
    assert not any("scattered" in text for text in decide(evidence)[2])


def test_soft_weights_are_not_called_kept():
    soft = replace(GOOD.quality, mean_weight=0.31)
    clear = decide(replace(GOOD, quality=soft))
    assert (clear[0], clear[2]) == ("clear", ())
    assert "weigh 0.5 or more 95 % to 99 % are likely yours" in clear[1]
    poor = replace(soft, precision=Estimate(0.7, 0.65, 0.75), recall=Estimate(0.6, 0.5, 0.7))
    nothing = replace(soft, num_kept=0, precision=Estimate(np.nan, np.nan, np.nan))
    for each in (poor, nothing):
        _, advice, warnings = decide(replace(GOOD, quality=each))
        assert not any("kept" in text for text in (advice, *warnings))
        assert any("0.5" in text for text in warnings)
    acted = decide(replace(ACTED, quality=soft))[1]
    assert "episodes of low weight" in acted
