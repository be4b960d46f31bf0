"""The page's part on policies that were judged from a log."""

import pytest

from puorl.cli.main import main
from puorl.core.files import read_json, write_json


def value(number, *, doubtful=False, low=None, high=None):
    return {
        "value": {"value": number, "low": low, "high": high},
        "effective_size": 7.5,
        "is_doubtful": doubtful,
        "trust": "Do not trust it: far." if doubtful else "The policy stays inside the data.",
    }


def content(**changes):
    names = ("run/policies/seed-0.safetensors", "run/policies/seed-1.safetensors")
    values = ({"fqe": value(3.0, low=2.0, high=4.0)}, {"fqe": value(9.0, doubtful=True)})
    ranking = {"sentence": "seed-1 comes first, but cannot be told from seed-0.", "regret": None}
    made = {
        "kind": "offline", "gamma": 0.95, "num_episodes": 12, "num_rows": 480, "default": "fqe",
        "behaviour": value(2.5, low=2.0, high=3.0), "ranking": {"fqe": ranking},
        "policies": [
            {"policy": name, "outside": 0.1, "values": own, "group": "run"}
            for name, own in zip(names, values, strict=True)
        ],
        "notes": ["only 12 episodes <judge>"], "settings": {},
    }  # fmt: skip
    return made | changes


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_estimates_ranking_and_doubts_are_shown(here, capsys):
    write_json(here / "offline.json", content())
    assert main(["report", "offline.json", "--out", "page.html"]) == 0
    assert "offline.json: of puorl evaluate" in capsys.readouterr().out
    html = (here / "page.html").read_text(encoding="utf-8")
    for text in (
        "Estimated from the log", "3 (2 to 4)", "fqe (doubtful)", "Do not trust it: far.",
        "run/seed-1", "cannot be told from seed-0", "not measurements",
        "only 12 episodes &lt;judge&gt;", "2 policies worth, judged from 12 logged episodes",
    ):  # fmt: skip
        assert text in html, text
    assert "How good are they?</h2>" not in html  # no empty section about a simulator


def test_an_evaluation_in_a_folder_is_found_once(here, capsys):
    write_json(here / "seen" / "offline.json", content())
    assert main(["report", "seen", "seen/offline.json", "--out", "page.html"]) == 0
    html = (here / "page.html").read_text(encoding="utf-8")
    assert html.count("Estimated from the log</h2>") == 1


@pytest.mark.parametrize(
    "changes",
    [{"policies": []}, {"gamma": "x"}, {"behaviour": {}}, {"policies": [{"policy": "a"}]}],
)
def test_a_damaged_file_is_refused(here, capsys, changes):
    write_json(here / "offline.json", content(**changes))
    assert read_json(here / "offline.json")["kind"] == "offline"
    assert main(["report", "offline.json", "--out", "page.html"]) == 2
    assert "offline.json: expected" in capsys.readouterr().err
    assert not (here / "page.html").exists()
