"""From rows of results to words: summaries, the overview, the tables of the pages.

    python examples/cases/tables.py

writes the tables of docs/cases, from the last recorded run of each case.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from puorl.bench.stats import SampleSummary, difference
from puorl.core.run_folder import decode
from puorl.core.stats import Estimate, mean_estimate

ROOT = Path(__file__).parents[2]
RESULTS, PAGES = ROOT / "benchmarks" / "results" / "cases", ROOT / "docs" / "cases"
BEGIN, END = "<!-- examples/cases/tables.py -->", "<!-- end -->"
METHODS = {"olp": "OLP", "sharing_all": "Sharing-All", "pu": "PU", "oracle": "Oracle"}
USABLE = ("olp", "sharing_all", "pu")
"""Methods that need no truth."""


def scores(row: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the mean of each policy in the simulator, by method."""
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    for policy, own in sorted(row["simulator_judges"].items()):
        found[policy.rpartition("-seed-")[0]].append(float(np.mean(own["return"])))
    return found


def minus(row: Mapping[str, Any], one: str, other: str) -> Estimate:
    """Estimate the difference of two methods in the simulator, with Welch's interval."""
    found = scores(row)
    return difference(SampleSummary.of(found[one]), SampleSummary.of(found[other]))


def choice(row: Mapping[str, Any]) -> tuple[str, bool, float]:
    """Return the method that the log puts first, whether that is right, and the rank correlation.

    Right: in the simulator no method that can be used is clearly above it. The correlation is
    Spearman's, over all policies.
    """
    judged = {each["method"]: each["scores"] for each in row["log_judges"]["methods"]}
    first = max(USABLE, key=lambda name: float(np.mean(judged[name])))
    true = scores(row)
    right = not any(minus(row, name, first).is_above_zero
                    for name in USABLE if name != first)  # fmt: skip
    pairs = [(a, b) for name in METHODS for a, b in zip(judged[name], true[name], strict=True)]
    rank = round(float(spearmanr(*zip(*pairs, strict=True)).statistic), 2)
    return first, right, rank + 0.0  # no -0.00


def summary(row: Mapping[str, Any]) -> str:
    """Say in lines what a run found."""
    found = row["filter"]
    lines = [
        f"{row['case']}, {row['size']}: verdict {found['verdict']}; {found['num_right']} of "
        f"{found['num_asked']} units right, {found['rows_right']:.1%} of their rows"
    ]
    for name, true in found["true"].items():
        lines.append(f"  {name}: {_text(found['estimated'][name])}, truly {true:.3f}")
    for name, own in scores(row).items():
        behind = "" if name == "pu" else f"; PU minus it {_both(minus(row, 'pu', name))}"
        lines.append(f"  {METHODS[name]}: {_both(mean_estimate(own))}{behind}")
    if found := row.get("episodes"):
        lines.append(f"  {episodes_text(found)}")
    if row["drift"]:
        lines.append(f"  {drift_text(row['drift'])}")
    first, right, rank = choice(row)
    lines.append(f"  the log puts {METHODS[first]} first: {'right' if right else 'wrong'}; rank "
                 f"correlation of all policies {rank:.2f}")  # fmt: skip
    return "\n".join(lines)


def drift_text(watched: Sequence[Mapping[str, Any]]) -> str:
    """Say how many changes were seen, how late, and how many alarms were false."""
    changed = [each for each in watched if each["changed"] is not None]
    late = [each["alarm"] - each["changed"] for each in changed if each["alarm"] is not None]
    seen = sorted(delay for delay in late if delay >= 0)
    quiet = [each for each in watched if each["changed"] is None]
    wrong = sum(each["alarm"] is not None for each in quiet) + sum(delay < 0 for delay in late)
    return (
        f"{len(seen)} of {len(changed)} changes seen, {', '.join(map(str, seen))} windows after "
        f"they began; {wrong} false alarms on {len(watched)} units"
    )


def episodes_text(found: Mapping[str, Any]) -> str:
    """Say what came of deciding about single episodes."""
    return (
        f"By single episodes, {found['num_known']} of ours known: verdict *{found['verdict']}*, "
        f"alpha {_text(found['alpha'])} where {found['num_ours'] / found['num_asked']:.2f} of the "
        f"episodes are ours; {found['num_right'] / found['num_asked']:.0%} of them right. Who "
        f"knows both tables of the simulator is right in "
        f"{found['num_right_by_truth'] / found['num_asked']:.0%}."
    )


def rows_of(size: str) -> dict[str, dict[str, Any]]:
    """Return the last recorded run of each case that has one at a size."""
    found = {}
    for path in sorted(RESULTS.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if rows := [row for row in rows if row["size"] == size]:
            found[path.stem] = rows[-1]
    return found


def last_rows() -> dict[str, dict[str, Any]]:
    """Return the last recorded run of each case, a full one where there is any."""
    return rows_of("small") | rows_of("full")


def overview(full: Mapping[str, Mapping[str, Any]], small: Mapping[str, Mapping[str, Any]]) -> str:
    """Make the tables over all cases, as Markdown: what the filter found and said, the policies."""
    filters = [
        "| case | size | rows | units, known | told the truth | right (rows) | verdict |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    reports = [
        "| case | size | alpha, estimated (true) | recall | precision |",
        "|---|---|--:|--:|--:|",
    ]
    policies = [
        "| case | size | OLP | all rows | PU | Oracle | first by the log |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for name, row in [*full.items(), *small.items()]:
        found, begin = row["filter"], f"| [{name}]({name}.md) | {row['size']} | "
        cells = [
            f"{found['num_rows']:,}",
            f"{len(found['units'])}, {len(row['known'])}",
            told_text(row.get("told")),
            f"{found['num_right']} of {found['num_asked']} ({found['rows_right']:.0%})",
            f"{found['verdict']}, {'right' if found['verdict_is_right'] else 'wrong'}",
        ]
        filters.append(f"{begin}{' | '.join(cells)} |")
        cells = [f"{_text(found['estimated'][each])} ({true:.2f})"
                 for each, true in found["true"].items()]  # fmt: skip
        reports.append(f"{begin}{' | '.join(cells)} |")
        first, right, rank = choice(row)
        means = [_both(mean_estimate(own)) for own in scores(row).values()]
        said = f"{METHODS[first]}, {'right' if right else 'wrong'} ({rank:.2f})"
        policies.append(f"{begin}{' | '.join([*means, said])} |")
    counts = [f"- Size *{size}*. {holds_text(rows)} {counts_text(rows)}"
              for size, rows in (("full", full), ("small", small)) if rows]  # fmt: skip
    return "\n".join([*filters, "", *reports, "", *policies, "", *counts])


def counts_text(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Count verdicts and choices that are right, and intervals that hold the truth."""
    verdicts = sum(row["filter"]["verdict_is_right"] for row in rows.values())
    choices = sum(choice(row)[1] for row in rows.values())
    firsts = sum(choice(row)[0] == max(USABLE, key=lambda name: float(np.mean(scores(row)[name])))
                 for row in rows.values())  # fmt: skip
    inside = {name: sum(holds_truth(row["filter"], name) for row in rows.values())
              for name in ("alpha", "recall", "precision")}  # fmt: skip
    held = ", ".join(f"of {name} in {number}" for name, number in inside.items())
    return (f"The verdict is right in {verdicts} of {len(rows)}, the log's choice in {choices}, "
            f"and in {firsts} it has the highest mean in the simulator too; "
            f"the report's interval holds the truth {held}.")  # fmt: skip


def holds_truth(found: Mapping[str, Any], name: str) -> bool:
    """Say whether the interval of the report holds the truth, up to rounding."""
    guess, true = found["estimated"][name], found["true"][name]
    if guess["value"] is None:
        return False
    return bool(guess["low"] - 1e-6 <= true <= guess["high"] + 1e-6)


def told_text(told: Mapping[str, Any] | None) -> str:
    """Say how many units a read-out gets right that is told the truth of the others."""
    if told is None:
        return "not asked"
    most = max(told[seen]["num_right"] for seen in ("dynamics", "habits", "both"))
    return f"{most} of {told['num_units']}"


def holds_text(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Count where PU is at least as good as the better of OLP and all rows, or within noise."""
    above, near, below = [], [], []
    for name, row in rows.items():
        means = {method: float(np.mean(own)) for method, own in scores(row).items()}
        better = max(("olp", "sharing_all"), key=lambda method: means[method])
        if means["pu"] >= means[better]:
            above.append(name)
        else:
            (below if minus(row, better, "pu").is_above_zero else near).append(name)
    counted = (
        (above, "with the highest mean of the three"),
        (near, "within noise of the better"),
        (below, "clearly below it"),
    )
    parts = [f"{len(found)} {words} ({', '.join(found)})" for found, words in counted if found]
    return (f"PU against OLP and all rows: at least as good, or within noise of the better, in "
            f"{len(above) + len(near)} of {len(rows)}: {'; '.join(parts)}.")  # fmt: skip


def details(row: Mapping[str, Any]) -> str:
    """Make the tables of one case's page, as Markdown."""
    found, size = row["filter"], row["settings"]
    lines = [
        f"{found['num_rows']:,} rows of {len(found['units'])} units, {len(row['known'])} known. "
        f"The filter's verdict is *{found['verdict']}*; {found['num_right']} of "
        f"{found['num_asked']} units are right, and {found['rows_right']:.1%} of their rows.",
        "",
        "| of the unlabelled rows | estimated, 95 % | true |",
        "|---|--:|--:|",
        *(f"| {name} | {_text(found['estimated'][name])} | {true:.3f} |"
          for name, true in found["true"].items()),
        "",
        "| method | rows | value by the log | return in the simulator | PU minus it | outside "
        "the log |",
        "|---|--:|--:|--:|--:|--:|",
    ]  # fmt: skip
    true = scores(row)
    for each in row["log_judges"]["methods"]:
        name = each["method"]
        guess = decode(Estimate, each["estimate"], RESULTS)
        behind = "" if name == "pu" else _both(minus(row, "pu", name))
        lines.append(f"| {METHODS[name]} | {each['num_rows']:,} | {_both(guess)} | "
                     f"{_both(mean_estimate(true[name]))} | {behind} | {each['outside']:.0%} "
                     "|")  # fmt: skip
    first, right, rank = choice(row)
    lines += [
        "",
        f"Size *{row['size']}*: {size['seeds']} policies a method, {size['steps']:,} updates, "
        f"hidden layers {size['hidden']}, batches of {size['batch_size']}, {size['episodes']} "
        f"episodes each in the simulator. The log puts {METHODS[first]} first, which is "
        f"{'right' if right else 'wrong'} (rank correlation over all policies {rank:.2f}).",
    ]
    if found := row.get("episodes"):
        lines += ["", episodes_text(found)]
    if row["drift"]:
        lines += ["", f"Watched afterwards: {drift_text(row['drift'])}."]
    return "\n".join(lines)


def _text(estimate: Mapping[str, Any]) -> str:
    value, low, high = (estimate[name] for name in ("value", "low", "high"))
    return "none" if value is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _both(estimate: Estimate) -> str:
    return f"{estimate.value:.1f} ± {estimate.half_width:.1f}"


def written(page: str, text: str) -> str:
    """Return a page with a text between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"


def texts() -> dict[Path, str]:
    """Return the generated text of each page."""
    found = {PAGES / f"{name}.md": details(row) for name, row in last_rows().items()}
    return {PAGES / "index.md": overview(rows_of("full"), rows_of("small")), **found}


def main() -> None:
    """Write all tables into their pages."""
    for path, text in texts().items():
        path.write_text(written(path.read_text(encoding="utf-8"), text), encoding="utf-8")


if __name__ == "__main__":
    main()
