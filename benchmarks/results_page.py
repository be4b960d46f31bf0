"""Write the tables of docs/results.md anew from the rows in benchmarks/results.

    python benchmarks/results_page.py [--check]

Between two marks of the page is the output of ``puorl bench report``, after the answers to the
paper's questions (`benchmarks/paper/questions.py`); the rest is written by hand.
"""

import argparse
import re
import sys
from pathlib import Path

from puorl.bench.report import make_report, to_markdown
from puorl.bench.tables import as_markdown

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "paper"))
from questions import question_tables  # noqa: E402

PAGE = ROOT / "docs" / "results.md"
_BLOCK = re.compile(
    r"(<!-- puorl bench report (\S+)(?: --reference (\S+))? -->\n).*?(<!-- end -->)", re.DOTALL
)


def written(page: str) -> str:
    """Return the page with all its tables made anew."""

    def block(found: re.Match[str]) -> str:
        report = make_report(ROOT / found[2], reference=found[3])
        title, lead, tables = to_markdown(report).split("\n\n", 2)
        assert title.startswith("# "), title
        rule, questions = question_tables(report)
        parts = [lead, *([rule] if rule else [])]
        parts += [as_markdown(table).rstrip() for table in questions]
        return "\n\n".join([found[1] + "\n" + parts[0], *parts[1:], tables]) + f"\n{found[4]}"

    return _BLOCK.sub(block, page)


def main() -> None:
    """Write the page, or with --check only report whether it would change."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if stale")
    args = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    after = written(before)
    if args.check:
        sys.exit(int(after != before))
    PAGE.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
