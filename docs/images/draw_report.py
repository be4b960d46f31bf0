"""Make the two pictures of the report that docs/filter.md shows, from a real run of the filter.

    python docs/images/draw_report.py

One Hopper among others with half the foot's mass, all driven by one medium policy: the first line
of "Where only the dynamics differ" in docs/filter-results.md, 1M rows, 1 % labelled, preset
`default`, seed 0. The pictures are the report's own; here they only get colours, as they leave its
page. `report-hopper.json` is the report, with the truth that it did not see.
"""

from pathlib import Path

from sheet import write

import puorl
from puorl.core.files import write_json
from puorl.html.page import as_percent, as_percent_range
from puorl.pu.report import FilterReport
from puorl.pu.report_page import alpha_picture, score_picture

HERE = Path(__file__).parent


def main() -> None:
    """Fit, report, and write the pictures and the numbers beside this file."""
    body, quality, policy = "hopper", "medium", "nominal"
    target = puorl.collect(body, quality=quality, rows="300k", policy_domain=policy)
    other = puorl.collect(
        body, "body_mass", quality=quality, rows="700k", seed=1, policy_domain=policy
    )
    split = puorl.make_split(target, other, rows="1M", labelled_fraction=0.01, seed=0)
    flt = puorl.DomainFilter("default").fit(split, seed=0)
    report = flt.report()
    ours = split.reveal("benchmark")[split.unlabelled] == 0
    kept = flt.predict_proba(split) >= 0.5
    truth = {
        "alpha": float(ours.mean()),
        "accuracy": float((kept == ours).mean()),
        "recall": float(kept[ours].mean()),
        "precision": float(ours[kept].mean()),
    }
    write_json(
        HERE / "report-hopper.json", {"truth": truth, "report": report.to_dict()}, force=True
    )
    draw(report, truth)


def draw(report: FilterReport, truth: dict[str, float]) -> None:
    """Draw the scores, and the estimates with the truth below, into two files."""
    write("report-scores.svg", "Scores of rows", score_picture(report.histogram))
    table = _table(report, truth)
    write("report-alpha.svg", "How many rows are yours?", alpha_picture(report), table)


def _table(report: FilterReport, truth: dict[str, float]) -> str:
    """Tabulate alpha, recall and precision of the report beside the truth."""
    own, quality = report.alphas[0], report.quality
    estimates = {"alpha": own, "recall": quality.recall, "precision": quality.precision}
    lines = [("", "report (95 % interval)", "truth")]
    for name, found in estimates.items():
        words = f"{as_percent(found.value)} ({as_percent_range(found.low, found.high)})"
        lines.append((name, words, as_percent(truth[name])))
    return "\n".join(
        f'<text x="34" y="{y}">{name}</text><text x="292" y="{y}" text-anchor="end">{words}</text>'
        f'<text x="366" y="{y}" text-anchor="end">{true}</text>'
        for y, (name, words, true) in zip(range(212, 300, 22), lines, strict=True)
    )


if __name__ == "__main__":
    main()
