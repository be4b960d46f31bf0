"""Pages cannot rot: every Python block of README and docs runs, every docstring example too."""

import doctest
import pkgutil
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import puorl

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def pages_with_code():
    return [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


def modules():
    found = pkgutil.walk_packages(puorl.__path__, "puorl.")
    return [m.name for m in found if not m.name.endswith("__main__")]


def test_readme_has_code():
    assert ROOT / "README.md" in pages_with_code()


@pytest.mark.parametrize("page", pages_with_code(), ids=lambda p: str(p.relative_to(ROOT)))
def test_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    """The blocks of one page are one program, run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1):
        exec(compile(block, f"{page.name} block {number}", "exec"), names)


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name):
    result = doctest.testmod(import_module(name))
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_results_page_says_what_the_rows_say():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from results_page import PAGE, written

    page = PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- puorl bench report ") == page.count("<!-- end -->") == 2
    assert written(page) == page  # else: python benchmarks/results_page.py
