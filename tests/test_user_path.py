"""A user's path by commands alone: CSV logs go in; kept rows, a policy and a report come out."""

import contextlib
import csv
import html
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import minari
import numpy as np
import pytest

import puorl
from puorl.cli.main import main
from puorl.pu.config import PRESETS, FilterConfig
from puorl.pu.learners import NetworkConfig

NUM_OURS, NUM_OTHERS, NUM_KNOWN = 16, 24, 8
OBS_DIM, ACT_DIM = 11, 3
FIELDS = "--episode run --time clock --reward gain --terminal fell"
# Small, as the command has no option for it; the slow test takes what a user gets.
SMALL = FilterConfig(
    learner="pvu",
    network=NetworkConfig(hidden=(16, 16), batch_size=64),
    residuals=None,
    num_warm_up=12,
    num_main=0,
)


@dataclass(frozen=True)
class Log:
    """What was written, and what only we know of it."""

    ours: dict[str, bool]
    known: frozenset[str]
    num_rows: dict[str, int]


def falls(domain, count, rng):
    """The last 40 to 60 rows of episodes in which the robot falls, all by the same policy."""
    data = puorl.collect(
        "hopper", domain, "medium", count * 700, 1, policy_domain="nominal", cache=False
    )
    found = []
    for end in np.flatnonzero(data.terminal)[:count]:
        rows = slice(end + 1 - rng.integers(40, 61), end + 1)
        found.append(np.column_stack([data.obs[rows], data.action[rows], data.reward[rows]]))
    assert len(found) == count
    return found


def write_logs(folder):
    """Two files of runs of two domains, mixed; nothing but ``checked`` tells some of ours."""
    rng = np.random.default_rng(0)
    made = falls("nominal", NUM_OURS, rng) + falls("gravity=0.5", NUM_OTHERS, rng)
    names = [f"run-{number:02d}" for number in rng.permutation(len(made))]
    known = frozenset(sorted(names[:NUM_OURS])[:NUM_KNOWN])
    runs = dict(zip(names, made, strict=True))
    header = ["run", "clock", *(f"obs_{i}" for i in range(OBS_DIM))]
    header += [*(f"act_{i}" for i in range(ACT_DIM)), "gain", "fell", "checked"]
    folder.mkdir()
    for part in range(2):
        with open(folder / f"week-{part}.csv", "w", newline="") as file:
            log = csv.writer(file)
            log.writerow(header)
            for name in sorted(runs)[part::2]:
                last = len(runs[name]) - 1
                for step, row in enumerate(runs[name]):
                    log.writerow([name, step, *row, int(step == last), int(name in known)])
    ours = dict.fromkeys(names, False) | dict.fromkeys(names[:NUM_OURS], True)
    return Log(ours, known, {name: len(rows) for name, rows in runs.items()})


def here(*words):
    """One command in this process; what it prints on stdout."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(list(words)) == 0
    return printed.getvalue()


def installed(*words):
    """One command as a user gives it; what it prints on stdout."""
    program = Path(sys.executable).with_name("puorl")
    run = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def keep(command, *more):
    words = ["filter", "logs/*.csv", "--labelled", "checked == 1", *FIELDS.split()]
    how = "--unit episode --evidence rows --out-format minari --out ours"
    return command(*words, *how.split(), *more)


def listed(folder):
    with open(folder / "ours" / "keep.csv", newline="") as file:
        return {row["run"]: float(row["score"]) for row in csv.DictReader(file)}


def check_kept(folder, log):
    """All known runs are kept, most of the others of ours, and few of anybody else's."""
    kept = listed(folder)
    assert log.known < set(kept)
    assert all(kept[name] == 1 for name in log.known)
    ours = sum(log.ours[name] for name in kept)
    assert ours >= NUM_OURS - 2
    assert len(kept) - ours <= 4


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """The folder after the whole path, and what is true of the logs in it."""
    folder = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setitem(PRESETS, "default", SMALL)
        log = write_logs(folder / "logs")
        look = ["inspect", "logs/*.csv", "--labelled", "checked == 1", "--json", *FIELDS.split()]
        Path("inspected.json").write_text(here(*look))
        Path("printed.txt").write_text(keep(here))
        small = "--learner bc --seeds 2 --steps 300 --set hidden=32,32 batch_size=64".split()
        here("train", "ours", *small, "--out", "run")
        tried = here(*"evaluate run --env hopper --episodes 3 --json".split())
        Path("evaluated.json").write_text(tried)
    return folder, log


def test_inspect_counts_what_was_logged(walk):
    folder, log = walk
    found = json.loads((folder / "inspected.json").read_text())
    assert found["num_rows"] == sum(log.num_rows.values())
    assert found["episodes"]["count"] == NUM_OURS + NUM_OTHERS
    assert found["ends"]["num_terminal"] == NUM_OURS + NUM_OTHERS
    assert found["labels"]["num_rows"] == sum(log.num_rows[name] for name in log.known)
    assert found["labels"]["num_episodes"] == NUM_KNOWN
    assert [each for each in found["findings"] if each["level"] == "warning"] == []


def test_the_kept_runs_are_ours(walk):
    check_kept(*walk)


def test_minari_and_puorl_read_the_same_kept_rows(walk, monkeypatch):
    folder, log = walk
    kept = sorted(listed(folder))
    lengths = [log.num_rows[name] for name in kept]
    own = puorl.load(folder / "ours" / "kept")
    assert len(own) == sum(lengths)
    assert own.terminal.sum() == len(np.unique(own.episode)) == len(kept)
    assert sorted(set(own.columns["run"])) == kept
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / "ours"))
    theirs = minari.load_dataset("kept")
    assert (theirs.total_episodes, theirs.total_steps) == (len(kept), sum(lengths))
    episodes = {each.infos["run"][0].decode(): each for each in theirs}
    assert [len(episodes[name].actions) for name in kept] == lengths
    name = min(log.known)
    rows = np.flatnonzero(own.columns["run"] == name)
    np.testing.assert_array_equal(episodes[name].observations[:-1], own.obs[rows])
    np.testing.assert_array_equal(episodes[name].rewards, own.reward[rows])
    assert episodes[name].terminations.tolist() == own.terminal[rows].tolist()


def test_kept_numbers_are_those_of_the_log(walk):
    folder, _ = walk
    kept = puorl.load(folder / "ours" / "kept")
    written = {}
    for file in (folder / "logs").glob("*.csv"):
        with open(file, newline="") as text:
            for row in csv.DictReader(text):
                written[row["run"], float(row["clock"])] = row
    for row in range(0, len(kept), 17):
        logged = written[str(kept.columns["run"][row]), float(kept.time[row])]
        assert kept.obs[row].tolist() == [float(logged[f"obs_{i}"]) for i in range(OBS_DIM)]
        assert kept.action[row].tolist() == [float(logged[f"act_{i}"]) for i in range(ACT_DIM)]
        assert kept.reward[row] == float(logged["gain"])


def test_the_report_names_alpha(walk):
    folder, log = walk
    report = json.loads((folder / "ours" / "report.json").read_text())
    alphas = {each["method"]: each for each in report["alphas"]}
    others = set(log.ours) - log.known
    rows = sum(log.num_rows[name] for name in others)
    share = sum(log.num_rows[name] for name in others if log.ours[name]) / rows
    assert alphas["bbe"]["low"] < share < alphas["bbe"]["high"]
    assert abs(alphas["bbe"]["value"] - share) < 0.15
    assert report["quality"]["num_unlabelled"] == rows
    page = html.unescape((folder / "ours" / "report.html").read_text())
    assert "alpha" in page
    assert report["advice"] in page
    assert "check (bbe)" in (folder / "printed.txt").read_text()


def test_the_policies_act_and_were_tried(walk):
    folder, _ = walk
    kept = puorl.load(folder / "ours" / "kept")
    policies = [
        puorl.Policy.load(folder / "run" / "policies" / f"seed-{seed}.safetensors")
        for seed in range(2)
    ]
    actions = [policy.act(kept.obs[:20]) for policy in policies]
    for action in actions:
        assert action.shape == (20, ACT_DIM)
        assert np.abs(action).max() <= np.abs(kept.action).max()
        # Behaviour is cloned: nearer to what was done than standing still is.
        assert np.square(action - kept.action[:20]).mean() < np.square(kept.action[:20]).mean()
    assert not np.array_equal(*actions)
    tried = json.loads((folder / "evaluated.json").read_text())
    assert [len(each["returns"]) for each in tried["policies"]] == [3, 3]
    assert min(min(each["lengths"]) for each in tried["policies"]) > 5


@pytest.mark.slow  # a minute or two
def test_the_same_with_the_settings_that_a_user_gets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = write_logs(tmp_path / "logs")
    printed = keep(installed)
    assert "check (bbe)" in printed
    check_kept(tmp_path, log)
    installed(*"train ours --learner td3_bc --steps 2000 --out run".split())
    tried = json.loads(installed(*"evaluate run --env hopper --episodes 10 --json".split()))
    # The logs hold falls alone, so no good policy is to be expected: only that it was run.
    (policy,) = tried["policies"]
    assert len(policy["returns"]) == 10
    assert np.isfinite(policy["returns"]).all()
