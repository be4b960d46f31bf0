"""What tests of `puorl report` share: folders of commands, and ways to look at a page."""

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from train_rows import train_rows

import puorl
from puorl.cli.filter import Filter
from puorl.core.files import read_json, write_json
from puorl.pu.config import PRESETS
from puorl.pu.result_folder import split_fingerprints

FILTER_FIGURES = [
    "Estimates of alpha",
    "Alpha over the epochs",
    "Scores of labelled and unlabelled rows",
    "AUROC with all inputs and with behaviour alone",
    "Labelled rows against kept unlabelled rows",
]
RUN_FIGURES = ["Score over training", "Return over training", "actor_loss of run"]
EVALUATION_FIGURE = "Mean score in hopper/nominal"
SPOILT = {
    "run/run.json": ["", "[]", "{}", '{"learner": 3}', "{" * 100_000, "\x00"],
    "run/record.json": ["", "[1]", '{"stopped": {"seed-0": {"step": "x"}}}'],
    "run/metrics.jsonl": ["nothing\n", '{"step": 1}\n', '{"step":1e999,"lane":"a","b":1}\n'],
    "run/other.json": ["{", '{"env": "hopper", "policies": []}'],
    "kept/settings.json": ["", "null", '{"arguments": {}}'],
    "kept/report.json": ["", "{}", '{"verdict": "fine"}'],
    "scores.json": ["", "{}", '{"env": 1, "policies": []}', '{"evaluation": null}'],
    "results/runs.jsonl": ["", "{}\n", '{"run": "a"}\n'],
}
"""File to what may stand in it that must be refused."""
WRONG_VALUES = [
    ("histogram__edge", [0.0, 1.0]),
    ("quality__num_kept", "many"),
    ("quality__recall", [1, 2, 3]),
    ("alphas", [{"value": None, "interval": None, "method": "bbe"}]),
    ("alpha_history", [10**400]),
    ("unit", None),
    ("alphas_agree", 1),
    ("doubtful", {}),
]
"""Place in a report to what cannot stand there."""


def make_filter_folder(folder, report):
    """As `puorl filter` leaves it, but for the learning, which takes long."""
    rows = dataclasses.replace(train_rows(), columns={"labelled": np.arange(300) < 40})
    split = puorl.PUSplit.from_mask(rows, rows.columns["labelled"], seed=0)
    asked = Filter(("logs/*.npz",), Path("kept"), "checked == 1", unit="window:5", seed=3)
    kept = {"file": "kept.npz", "num_rows": len(rows), "fingerprint": rows.fingerprint}
    prints = split_fingerprints(split)
    settings = asked._settings(prints, None, PRESETS["default"])
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "filter.json").write_text("{}")
    puorl.save(rows, folder / "kept.npz")
    write_json(folder / "report.json", report.to_dict())
    write_json(folder / "settings.json", {**settings, "returns": [1.0, 2.0], "kept": kept})


def change(path, **values):
    """Replace values of a JSON file, named by dotted places."""
    content = read_json(path)
    for place, value in values.items():
        *way, last = place.split("__")
        inner = content
        for step in way:
            inner = inner[step]
        inner[last] = value
    Path(path).write_text(json.dumps(content))


class Content(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.tags, self.ids, self.addresses, self.text = [], [], [], ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [v for k, v in attrs if k == "id"]
        self.addresses += [v for k, v in attrs if k in ("src", "href", "srcset", "xlink:href")]
        assert not [k for k, _ in attrs if k.startswith("on")]

    def handle_data(self, data):
        self.text += data


def figures(html):
    return re.findall(r'role="img">\s*<title>([^<]*)</title>', html)
