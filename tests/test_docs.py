"""Pages cannot rot: Python blocks of README and docs run, docstring examples too, links resolve."""

import doctest
import pkgutil
import re
import shlex
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import puorl
from puorl.cli.main import main
from puorl.pu.config import PRESETS, FilterConfig, MachineConfig, NetworkConfig, ResidualConfig

ROOT = Path(__file__).parents[1]
README, OWN_DATA = ROOT / "README.md", ROOT / "docs" / "own-data.md"
NOTES = ROOT / "benchmarks" / "notes"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += [ROOT / "benchmarks" / "commands.md", *sorted(NOTES.glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
QUICK = FilterConfig(
    residuals=ResidualConfig(hidden=(16,), num_steps=50),
    network=NetworkConfig(hidden=(16,)),
    num_warm_up=5,
    num_main=5,
    machines=MachineConfig(hidden=(16,), latent_sizes=(2,), num_seeds=1, num_steps=200),
)
"""Whether code runs does not depend on how long it learns; the slow test takes the true preset."""
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def pages_with_code():
    return [page for page in PAGES if blocks(page)]


def modules():
    found = pkgutil.walk_packages(puorl.__path__, "puorl.")
    return [m.name for m in found if not m.name.endswith("__main__")]


def anchors(page):
    """Anchors that GitHub and the site both give to the headings of a page."""
    titles = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def run_blocks(page, count=None):
    """Run the blocks of one page as one program in the current folder."""
    names: dict = {}
    for number, block in enumerate(blocks(page)[:count], 1):
        exec(compile(block, f"{page.name} block {number}", "exec"), names)
    return names


def test_the_readme_is_short_and_has_code():
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    (block,) = blocks(README)
    assert len([line for line in block.splitlines() if line.strip()]) <= 12


@pytest.mark.parametrize("page", pages_with_code(), ids=lambda p: str(p.relative_to(ROOT)))
def test_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PRESETS, "default", QUICK)
    if page == README:
        run_blocks(OWN_DATA, 1)  # writes pumps.csv
    run_blocks(page)


@pytest.mark.slow  # a minute on two cores
def test_the_command_of_the_readme_prints_what_the_readme_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_blocks(OWN_DATA, 1)
    text = README.read_text(encoding="utf-8")
    command = re.search(r"^puorl (filter .*?)^```", text, re.MULTILINE | re.DOTALL)
    shown = re.search(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert command
    assert shown
    assert main(shlex.split(command[1].replace("\\\n", " "))) == 0
    shown_on_screen = capsys.readouterr().out.replace("\xa0", " ")  # 98 % does not break
    printed = {line.strip() for line in shown_on_screen.splitlines()}
    assert {line.strip() for line in shown[1].splitlines()} <= printed
    kept = Path("ours/keep.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert {line.partition(",")[0] for line in kept} == set(names["ours"])


@pytest.mark.parametrize("name", modules())
def test_docstring_examples(name):
    result = doctest.testmod(import_module(name))
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for found in LINK.finditer(page.read_text(encoding="utf-8")):
        target, _, anchor = (found[1] or found[2]).partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        other = page.parent / target if target else page
        assert other.exists(), f"{page.name} links to {target}"
        if anchor and other.suffix == ".md":
            assert anchor in anchors(other), f"{page.name} links to {target}#{anchor}"


def test_the_diffs_of_the_contributing_page_fit_the_code():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    diffs = re.findall(r"```diff\n(.*?)```", text, re.DOTALL)
    assert len(diffs) == 5  # learner, method, reader and its row, command
    for diff in diffs:
        lines = diff.splitlines()
        before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
        assert any(before in source for source in sources), before
        after = "\n".join(line[1:] for line in lines if not line.startswith("-"))
        for module, names in re.findall(r"^from (puorl[\w.]*) import (.+)$", after, re.MULTILINE):
            for name in (each.partition(" as ")[0] for each in names.split(", ")):
                assert hasattr(import_module(module), name) or find_spec(f"{module}.{name}")


def test_every_page_is_in_the_navigation_of_the_site():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r"([\w./-]+\.md)", navigation))
    docs = ROOT / "docs"
    assert listed == {str(page.relative_to(docs)) for page in docs.rglob("*.md")}


def test_the_results_page_says_what_the_rows_say():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from results_page import PAGE, written

    page = PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- puorl bench report ") == page.count("<!-- end -->") == 2
    assert written(page) == page  # else: python benchmarks/results_page.py
