import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from puorl.pu.alpha import alpha_estimate
from puorl.pu.report import (
    ColumnShortcut,
    DoubtfulEpisode,
    Estimate,
    FilterReport,
    Histogram,
    Quality,
    Selection,
    Shortcut,
)
from puorl.pu.report_text import as_text

REPORT = FilterReport(
    verdict="clear",
    advice="Use what is kept: 95 % to 99 % of it is likely yours.",
    warnings=("Two estimates of the target's share disagree: bbe 0.31 and dedpul 0.45.",),
    alphas=(
        alpha_estimate(0.31, (0.29, 0.33), method="bbe"),
        alpha_estimate(0.45, None, method="dedpul"),
    ),
    alphas_agree=False,
    quality=Quality(
        num_labelled=1000,
        num_unlabelled=99_000,
        num_kept=29_685,
        recall=Estimate(0.98, 0.97, 0.99),
        precision=Estimate(0.962, 0.951, 1.0),
        purity=Estimate(0.97, 0.96, 0.99),
        precision_is_upper=False,
    ),
    shortcut=Shortcut(Estimate(0.81, 0.79, 0.83), Estimate(0.56, 0.54, 0.58), 0.19, False),
    columns=(),
    selection=Selection(Estimate(0.5, 0.48, 0.52), True, "Nothing speaks against a random draw."),
    histogram=Histogram((0.0, 0.25, 0.5, 0.75, 1.0), (0.0, 0.0, 0.1, 0.9), (0.7, 0.0, 0.0, 0.3)),
    alpha_history=(0.5, 0.3),
    doubtful=(DoubtfulEpisode("robot [3] / monday", 1200, 0.48, 0.45),),
    unit="transition",
    settings={},
)


def shown(report, width=80, **settings):
    console = Console(file=io.StringIO(), width=width, **settings)
    console.print(as_text(report))
    return console.file.getvalue()


def test_verdict_and_advice_stand_first():
    lines = shown(REPORT).splitlines()
    assert "clear" in lines[0]
    assert "Use what is kept" in lines[1]


def test_numbers_with_intervals():
    text = " ".join(shown(REPORT).split())
    assert "check (bbe) 31.0 29.0 to 33.0" in text
    assert "check (dedpul) 45.0 –" in text
    assert "precision 96.2 95.1 to 100.0" in text
    assert "29,685 of 99,000" in text
    assert "upper estimate" not in text


def test_the_filters_own_alpha_stands_first_and_others_are_checks():
    own = replace(REPORT, alpha=alpha_estimate(0.3, (0.28, 0.34), method="bbe"))
    text = " ".join(shown(own).split())
    assert text.index("alpha 30.0 28.0 to 34.0") < text.index("check (bbe) 31.0")
    assert text.count("A check: alpha estimated again.") == 2


def test_upper_estimate_is_said():
    upper = replace(REPORT, quality=replace(REPORT.quality, precision_is_upper=True))
    assert "upper estimate" in " ".join(shown(upper).split())


def test_nothing_kept_shows_no_number():
    nothing = replace(REPORT.quality, num_kept=0, precision=Estimate(np.nan, np.nan, np.nan))
    text = shown(replace(REPORT, quality=nothing))
    assert "nan" not in text


def test_checks_and_episodes():
    text = shown(REPORT)
    assert "disagree" in text
    assert "0.56" in text
    # Ids are shown as they are, brackets too.
    assert "robot [3] / monday" in text
    assert "most doubtful" not in shown(replace(REPORT, doubtful=()))


def test_many_columns_are_shortened():
    columns = tuple(
        ColumnShortcut(f"obs[{k}]", "rounding", 1.0, f"obs[{k}]: rounded.") for k in range(9)
    )
    text = " ".join(shown(replace(REPORT, columns=columns)).split())
    assert "obs[4]: rounded. And 4 more." in text
    assert "obs[5]" not in text


def row(report, name):
    """What is said beside a check, from its mark to the next check."""
    text = " ".join(shown(replace(report, warnings=())).split())
    names = ("behaviour", "recording", "selection", "estimates", "labelled █")
    after = text.split(f" {name} ", 1)[1]
    return min((after.split(f" {each} ")[0] for each in names if each != name), key=len)


def test_what_is_not_known_is_marked_unsure():
    shortcut = Shortcut(Estimate(0.98, 0.5, 1.0), Estimate(0.97, 0.4, 1.0), 0.97, False, False)
    selection = Selection(Estimate(0.5, 0.0, 1.0), True, "Cannot be said: too few rows.", False)
    alphas = (
        alpha_estimate(0.3, (0.05, 0.95), method="bbe"),
        alpha_estimate(0.5, (0.4, 0.6), method="dedpul"),
    )
    wide = replace(REPORT, shortcut=shortcut, selection=selection, alphas=alphas, alphas_agree=True)
    assert row(wide, "behaviour").startswith("unsure")
    assert "Unclear, since the intervals are too wide" in row(wide, "behaviour")
    assert row(wide, "selection").startswith("unsure Cannot be said")
    assert row(wide, "estimates").startswith("unsure")
    assert "says little: the interval of bbe is 5.0–95.0 %" in row(wide, "estimates")
    agreed = replace(REPORT, alphas_agree=True)
    for name in ("behaviour", "recording", "selection", "estimates"):
        assert row(agreed, name).startswith("fine")
    assert row(REPORT, "estimates").startswith("look")


def test_nothing_for_a_shortcut_to_explain():
    alike = Shortcut(Estimate(0.51, 0.48, 0.54), Estimate(0.5, 0.47, 0.53), 0.1, False, False)
    assert "close to chance" in row(replace(REPORT, shortcut=alike), "behaviour")


def test_unknown_precision_is_no_upper_estimate():
    unknown = replace(
        REPORT.quality, precision=Estimate(np.nan, np.nan, np.nan), precision_is_upper=True
    )
    assert "upper estimate" not in " ".join(shown(replace(REPORT, quality=unknown)).split())


def test_a_precision_of_which_nothing_is_known_has_no_estimate():
    unknown = replace(
        REPORT.quality, precision=Estimate(0.95, 0.0, 0.9999), precision_is_upper=True
    )
    text = " ".join(shown(replace(REPORT, quality=unknown)).split())
    assert "precision unknown 0.0 to 100.0 Fraction of the kept" in text
    assert "purity unknown 96.0 to 99.0 Fraction of" in text
    assert "recall 98.0 97.0 to 99.0" in text


def test_values_of_a_column_are_listed_under_its_name():
    text = shown(replace(REPORT, unit="column:robot_id"))
    assert "most doubtful values of robot_id" in text
    assert "most doubtful episodes" in shown(REPORT)


@pytest.mark.parametrize("verdict", ["clear", "behaviour", "doubtful", "cannot_tell"])
def test_fits_into_80_columns_with_and_without_colour(verdict):
    report = replace(REPORT, verdict=verdict, advice="A long sentence of advice. " * 8)
    assert max(len(line) for line in shown(report, width=200).splitlines()) <= 80
    assert "\x1b[" in shown(report, force_terminal=True, color_system="truecolor")


def test_bars_show_where_scores_are():
    lines = shown(REPORT).splitlines()
    labelled = next(line for line in lines if line.startswith("labelled ")).rstrip()
    unlabelled = next(line for line in lines if line.startswith("unlabelled ")).rstrip()
    assert labelled.endswith("█")
    assert unlabelled.split()[1].startswith("█")


def test_soft_weights():
    soft = replace(REPORT, quality=replace(REPORT.quality, mean_weight=0.3127))
    text = " ".join(shown(soft).split())
    assert "all 99,000 unlabelled rows kept with weights (mean 0.313), 29,685 of them" in text
    assert "Fraction of the target's rows that weighs 0.5 or more." in text
    assert "weight ≥ 0.5" in text
    assert "29,685 of 99,000" not in text
    assert max(len(line) for line in shown(soft, width=200).splitlines()) <= 80
