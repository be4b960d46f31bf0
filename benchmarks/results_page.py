"""Write the tables of docs/results.md anew from the rows in benchmarks/results.

    python benchmarks/results_page.py [--check]

What stands between two marks of the page is made by ``puorl bench report``; the rest is written by
hand and left alone.
"""

import argparse
import re
import sys
from pathlib import Path

from puorl.bench.report import make_report, to_markdown
from puorl.bench.store import Store

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
_BLOCK = re.compile(
    r"(<!-- puorl bench report (\S+) --against (paper|none) -->\n).*?(<!-- end -->)", re.DOTALL
)


def written(page: str) -> str:
    """The page with all its tables as the rows have them now."""

    def block(found: re.Match[str]) -> str:
        store = Store(ROOT / found[2])
        report = make_report(store.latest().values(), store.read().notes, paper=found[3] == "paper")
        title, _, tables = to_markdown(report).partition("\n\n")
        assert title.startswith("# "), title
        return f"{found[1]}\n{tables}\n{found[4]}"

    return _BLOCK.sub(block, page)


def main() -> None:
    """Write, or with --check only say whether that would change anything."""
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
