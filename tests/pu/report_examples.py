"""Reports of every kind, made by hand: what a page or a text must be able to show."""

import dataclasses
import math

import numpy as np

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

NAN = math.nan
HOSTILE = '<script>alert("x")</script><img src=http://evil.test/x onerror=y>&amp;\x00\ud800\u202e'
LONG = "run_2026-03-14T09:26:53_site-" + "x" * 3000


def scores(alpha, spread, num_bins=30):
    """Shares in bins of the scores of two Gaussian heaps, the second ``spread`` logits lower."""
    rng = np.random.default_rng(5)
    target = 3 + 1.5 * rng.normal(size=40_000)
    other = 3 - spread + 1.5 * rng.normal(size=40_000)
    mixed = np.where(rng.random(40_000) < alpha, target, other)
    edge = np.linspace(0, 1, num_bins + 1)
    share = [tuple(np.histogram(1 / (1 + np.exp(-x)), edge)[0] / x.size) for x in (target, mixed)]
    return Histogram(tuple(edge), *share)


def clear():
    history = 0.293 + 0.35 * np.exp(-np.arange(60) / 9) * np.cos(np.arange(60) / 7)
    return FilterReport(
        verdict="clear",
        advice="Train on what was kept. Look at the listed episodes if you have the time.",
        warnings=(),
        alphas=(
            alpha_estimate(0.2931, (0.2874, 0.2989), method="bbe"),
            alpha_estimate(0.2957, (0.2902, 0.3011), method="dedpul"),
        ),
        alphas_agree=True,
        quality=Quality(
            num_labelled=10_000,
            num_unlabelled=990_000,
            num_kept=291_377,
            recall=Estimate(0.9831, 0.9802, 0.9857),
            precision=Estimate(0.9790, 0.9611, 0.9913),
            purity=Estimate(0.9797, 0.9624, 0.9916),
            precision_is_upper=False,
        ),
        shortcut=Shortcut(
            Estimate(0.8514, 0.8482, 0.8546), Estimate(0.5621, 0.5560, 0.5682), 0.1767, False
        ),
        columns=(),
        selection=Selection(
            Estimate(0.503, 0.494, 0.512),
            True,
            "Labelled rows cannot be told from kept unlabelled rows by state and action.",
        ),
        histogram=scores(0.293, 8.0),
        alpha_history=tuple(history),
        doubtful=tuple(
            DoubtfulEpisode(f"hopper-{100 + 7 * k}", 1000 - 31 * k, 0.5 + 0.013 * k, 0.48 + k / 50)
            for k in range(6)
        ),
        unit="transition",
        settings={
            "preset": "default",
            "learner": "tedn",
            "inputs": ["obs", "action", "next_obs - obs"],
            "seed": 0,
            "network": {"hidden": [256, 256], "learning_rate": 0.001},
            "split": "sha256:9f2c41d07a3be85516c0aa0d4d4be1e6f3c3c9f0",
        },
    )


def behaviour():
    return dataclasses.replace(
        clear(),
        verdict="behaviour",
        advice="Do not train on this choice yet: label rows of other behaviour in the target, or "
        "compare runs of the same policy.",
        warnings=(
            "States and actions alone separate the rows almost as well as all inputs.",
            "gripper_force has 2 decimal digits in labelled rows and 6 in the others.",
        ),
        shortcut=Shortcut(
            Estimate(0.8514, 0.8482, 0.8546), Estimate(0.8460, 0.8420, 0.8500), 0.9846, True
        ),
        columns=(
            ColumnShortcut(
                "gripper_force",
                "rounding",
                0.962,
                "2 decimal digits in labelled rows, 6 in unlabelled rows.",
            ),
            ColumnShortcut("time", "sample rate", 0.701, "50 Hz against 40 Hz."),
        ),
    )


def cannot_tell():
    plain = clear()
    return dataclasses.replace(
        plain,
        verdict="cannot_tell",
        advice="Nearly all rows are yours, or the others look the same; the data cannot say "
        "which. Try other inputs, or decide by episode.",
        warnings=("Precision is an upper estimate.",),
        alphas=(
            alpha_estimate(0.951, (0.0, 0.999), method="bbe"),
            alpha_estimate(0.712, (0.58, 0.841), method="dedpul"),
        ),
        alphas_agree=False,
        quality=dataclasses.replace(
            plain.quality,
            num_kept=871_204,
            precision=Estimate(0.95, 0.1, 1),
            precision_is_upper=True,
        ),
        shortcut=Shortcut(
            Estimate(0.504, 0.487, 0.521), Estimate(0.483, 0.466, 0.5), NAN, False, False
        ),
        histogram=scores(0.95, 0.4),
        doubtful=(),
    )


def many_warnings():
    return dataclasses.replace(
        clear(),
        verdict="doubtful",
        warnings=tuple(
            f"Warning number {k} says that something is not as it was." for k in range(14)
        ),
        selection=Selection(
            Estimate(0.66, 0.62, 0.7), False, "Labelled rows are slower than kept ones."
        ),
    )


def bare():
    """As little as a report can hold: no episodes, no intervals, nothing known."""
    nothing = Estimate(NAN, NAN, NAN)
    return FilterReport(
        verdict="doubtful",
        advice="",
        warnings=(),
        alphas=(alpha_estimate(0.0, None, method="bbe"),),
        alphas_agree=True,
        quality=Quality(1, 0, 0, nothing, nothing, nothing, True),
        shortcut=Shortcut(nothing, nothing, NAN, False),
        columns=(),
        selection=Selection(nothing, False, ""),
        histogram=Histogram((), (), ()),
        alpha_history=(),
        doubtful=(),
        unit="episode",
        settings={},
    )


def hostile():
    return dataclasses.replace(
        behaviour(),
        advice=HOSTILE + LONG,
        warnings=(HOSTILE, LONG, "数据" * 400),
        alphas=(
            alpha_estimate(0.31, (0.3, 0.32), method=HOSTILE),
            alpha_estimate(0.35, (0.33, 0.37), method=LONG),
        ),
        columns=(ColumnShortcut(HOSTILE, LONG, 0.9, HOSTILE + LONG),),
        selection=Selection(Estimate(0.6, 0.55, 0.65), False, HOSTILE),
        doubtful=(
            DoubtfulEpisode(HOSTILE, 10**9, 0.5, 0.5),
            DoubtfulEpisode(LONG, 3, NAN, NAN),
            DoubtfulEpisode("𝕳" * 500, 3, 0.5, 0.5),
        ),
        unit=f"column:{HOSTILE}",
        settings={HOSTILE: {LONG: HOSTILE}, "list": [HOSTILE], "nothing": None},
        alpha_history=(NAN, 0.4, NAN, 0.31),
    )


REPORTS = [clear, behaviour, cannot_tell, many_warnings, bare, hostile]
