"""`puorl evaluate --offline`: which rows judge, what is printed, what is refused."""

import json

import numpy as np
import pytest
from messages import message
from rich.console import Console

import puorl
from puorl.cli.evaluate import offline_lines
from puorl.cli.main import main
from puorl.core.files import read_json, write_json
from puorl.core.stats import Estimate
from puorl.ope.values import OfflineEvaluation, Value

QUICK = (
    "--gamma", "0.8", "--set", "updates=100", "critics=2", "hidden=8", "batch_size=8",
    "model_updates=20",
)  # fmt: skip


def write_log(path, num_episodes, seed, machine="A"):
    """Write episodes of a linear machine, with a label and a reward."""
    rng, lines = np.random.default_rng(seed), ["machine,run,obs_0,act_0,gain"]
    for episode in range(num_episodes):
        x = rng.uniform(-1, 1)
        for _ in range(8):
            u = np.clip(-0.4 * x + 0.4 * rng.normal(), -1, 1)
            lines.append(f"{machine},{machine}{seed}-{episode},{x:.6f},{u:.6f},{1 - x * x:.6f}")
            x = 0.8 * x + 0.4 * u
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


FIELDS = ("--episode", "run", "--reward", "gain")


def make_run(folder, gains, trained_on=None):
    """A folder as training leaves it, of linear controllers."""
    names = [f"seed-{i}" for i in range(len(gains))]
    write_json(folder / "run.json", {"groups": [names]})
    for name, gain in zip(names, gains, strict=True):
        layer = {"w": np.array([[-gain]], np.float32), "b": np.zeros(1, np.float32)}
        puorl.Policy.of("clip", [layer]).save(folder / "policies" / f"{name}.safetensors")
    if trained_on is not None:
        asked = {"paths": [str(trained_on)], "fields": {"episode": "run", "reward": "gain"}}
        write_json(folder / "record.json", {"invocations": [asked]})
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write_log(tmp_path / "train.csv", 8, seed=0)
    write_log(tmp_path / "judge.csv", 12, seed=1)
    make_run(tmp_path / "run", [0.4, -0.4], trained_on="train.csv")
    return tmp_path


def refused(capsys, *words):
    assert main(["evaluate", *words]) == 2
    return message(capsys.readouterr().err)


def test_policies_are_judged_and_ranked(here, capsys):
    words = ["evaluate", "run", "--offline", "--data", "judge.csv", *FIELDS, *QUICK]
    assert main([*words, "--out", "run/offline.json"]) == 0
    text = capsys.readouterr().out
    assert "from 12 logged starts" in text
    assert "all rows of --data are taken as the target's" in text
    assert "run: mean of 2 policies by blend" in text
    assert "choosing it is expected to cost" in text
    content = read_json(here / "run" / "offline.json")
    assert content["kind"] == "offline"
    assert [each["group"] for each in content["policies"]] == ["run", "run"]
    assert set(content["policies"][0]["values"]) == {"blend", "fqe", "model"}
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == content


def test_a_warning_names_the_run_too():
    """Policies of several runs have the same names of files."""
    doubtful = {"fqe": Value(Estimate(1.0, 0.0, 2.0), 3.0, True, "Do not trust it.", (1.0, 1.1))}
    paths = ["runs/a/policies/seed-0.safetensors", "runs/b/policies/seed-0.safetensors", "alone"]
    seen = OfflineEvaluation(
        gamma=0.9, num_episodes=3, num_rows=9, default="fqe",
        values=dict.fromkeys(paths, doubtful), behaviour=doubtful["fqe"],
        outside=dict.fromkeys(paths, 0.0),
    )  # fmt: skip
    console = Console(record=True, width=200)
    for line in offline_lines(seen, ["runs/a", "runs/b", ""]):
        console.print(line)
    text = console.export_text()
    for name in ("a/seed-0", "b/seed-0", "alone"):
        assert f"\n{name}, fqe: Do not trust it." in text


def test_with_noise_all_estimators_are_shown(here, capsys):
    words = ["evaluate", "run/policies/seed-0.safetensors", "--offline", "--data", "judge.csv"]
    assert main([*words, *FIELDS, *QUICK, "--action-noise", "0.4", "--json"]) == 0
    [policy] = json.loads(capsys.readouterr().out)["policies"]
    assert list(policy["values"]) == ["blend", "fqe", "model", "dr", "pdis", "wis"]
    for value in policy["values"].values():
        assert value["effective_size"] > 0
        assert value["trust"]


def test_episodes_that_were_trained_on_do_not_judge(here, capsys):
    words = ["evaluate", "run", "--offline", "--data", "train.csv", "judge.csv", *FIELDS, *QUICK]
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["num_episodes"] == 12
    assert "8 episodes were left out: policies were trained on them" in content["notes"]
    text = refused(capsys, "run", "--offline", "--data", "train.csv", *FIELDS)
    assert "expected episodes that no policy was trained on, got none: all 8 were" in text


def test_training_rows_that_are_gone_are_said_to_be_unchecked(here, capsys):
    (here / "train.csv").unlink()
    words = ["evaluate", "run", "--offline", "--data", "judge.csv", *FIELDS, *QUICK, "--json"]
    assert main(words) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert any("nobody checked" in note for note in notes)


def test_only_labelled_episodes_judge(here, capsys):
    write_log(here / "other.csv", 5, seed=2, machine="B")
    both = (here / "judge.csv").read_text() + "".join(
        line + "\n" for line in (here / "other.csv").read_text().splitlines()[1:]
    )
    (here / "both.csv").write_text(both)
    words = ["evaluate", "run", "--offline", "--data", "both.csv", *FIELDS, *QUICK, "--json"]
    assert main([*words, "--labelled", "machine == 'A'"]) == 0
    assert json.loads(capsys.readouterr().out)["num_episodes"] == 12
    text = refused(capsys, *words[1:], "--labelled", "obs_0 > 0.1")
    assert "whole episodes whose rows are all labelled" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--estimators", "wis"], "wis: expected a policy with probabilities"),
        (["--estimators", "all"], "expected one of blend"),
        (["--gamma", "1"], "gamma: expected 0 or more and less than 1"),
        (["--set", "critics=0"], "critics: expected 1 or more"),
        (
            ["--set", "updates=30", "target_interval=20"],
            "updates: expected a multiple of target_interval",
        ),
        (["--set", "critic=2"], "did you mean critics?"),
        (["--env", "hopper"], "--offline with --data and without --env"),
        (["--out", "run/run.json"], "--out: expected a name that ends in .json"),
    ],
)
def test_what_makes_no_sense_is_refused(here, capsys, words, expected):
    assert expected in refused(capsys, "run", "--offline", "--data", "judge.csv", *FIELDS, *words)


def test_rows_without_rewards_are_refused(here, capsys):
    text = refused(capsys, "run", "--offline", "--data", "judge.csv", "--episode", "run")
    assert "expected rows with a reward" in text


def test_rows_that_training_held_out_judge(here, capsys):
    apart = "run == 'A0-6' or run == 'A0-7'"
    words = ["train", "train.csv", *FIELDS, "--learner", "bc", "--steps", "20", "--out", "kept"]
    words += ["--set", "hidden=8", "batch_size=8"]
    assert main([*words, "--hold-out", "run == 'nowhere'"]) == 2
    said = message(capsys.readouterr().err)
    assert "--hold-out run == 'nowhere': expected it to hold for some rows and not for all" in said
    assert main([*words, "--hold-out", apart]) == 0
    assert "42 rows" in capsys.readouterr().out
    judging = ["evaluate", "kept", "--offline", "--data", "train.csv", *FIELDS, *QUICK, "--json"]
    assert main([*judging, "--labelled", apart]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["num_episodes"] == 2
    assert not any("left out" in note for note in content["notes"])
    assert main(judging) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["num_episodes"] == 2
    assert "6 episodes were left out: policies were trained on them" in content["notes"]


# ------------------------------------------------------------------------------- columns


def write_wide(path, columns, *, episodes=12):
    """A log of two states and two commands, with its columns in any order."""
    rng = np.random.default_rng(5)
    rows = {name: rng.normal(size=6 * episodes) for name in ("obs_2", "obs_10", "cmd_2", "cmd_10")}
    rows["gain"] = rows["obs_2"] * rows["cmd_10"]
    lines = [",".join(["run", *columns, "gain"])]
    for i in range(6 * episodes):
        cells = (f"{rows[name][i]:.6f}" for name in (*columns, "gain"))
        lines.append(",".join([f"r{i // 6}", *cells]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


WIDE = ("--obs", "obs_*", "--action", "cmd_*", "--episode", "run", "--reward", "gain")


@pytest.fixture
def wide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write_wide(tmp_path / "train.csv", ("cmd_10", "obs_10", "obs_2", "cmd_2"))
    data = puorl.load("train.csv", obs="obs_*", action="cmd_*", episode="run", reward="gain")
    policy = puorl.train("bc", data, steps=30, hidden=(8,), batch_size=16)
    assert policy.obs_names == ("obs_2", "obs_10")  # a pattern's matches go by number
    assert policy.action_names == ("cmd_2", "cmd_10")
    policy.save("policy.safetensors")
    return tmp_path


def test_columns_in_another_order_are_sorted_by_name(wide, capsys):
    words = ["evaluate", "policy.safetensors", "--offline", "--data", "train.csv", *QUICK]
    words += ["--estimators", "model", "--episode", "run", "--reward", "gain"]
    order = ["--obs", "obs_2,obs_10", "--action", "cmd_2,cmd_10"]
    assert main([*words, *order]) == 0
    told = capsys.readouterr().out
    assert "columns: obs_2, obs_10 -> cmd_2, cmd_10" in told
    assert "another order" not in told
    assert main([*words, "--obs", "obs_10,obs_2", "--action", "cmd_10,cmd_2", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert any("sorted by name for policy.safetensors" in note for note in content["notes"])
    [policy] = content["policies"]
    swapped = puorl.load("train.csv", obs="obs_10,obs_2", action="cmd_10,cmd_2", episode="run")
    given = puorl.Policy.load("policy.safetensors")
    turned = given.for_columns(("obs_10", "obs_2"), ("cmd_10", "cmd_2"))
    np.testing.assert_allclose(
        turned.act(swapped.obs), given.act(swapped.obs[:, ::-1])[:, ::-1], atol=1e-6
    )
    assert policy["outside"] < 0.5


def test_a_log_of_other_columns_is_refused(wide, capsys):
    text = (wide / "train.csv").read_text(encoding="utf-8")
    (wide / "other.csv").write_text(text.replace("obs_10", "obs_11"), encoding="utf-8")
    words = ["policy.safetensors", "--offline", "--data", "other.csv", *WIDE, *QUICK]
    told = refused(capsys, *words)
    assert told.startswith("policy.safetensors: obs: expected the columns that the policy was")
    assert "(obs_2, obs_10), got obs_2, obs_11, without obs_10 and with obs_11; name" in told


def test_inspect_shows_what_a_policy_takes_and_gives(wide, capsys):
    assert main(["inspect", "policy.safetensors"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "obs obs_2, obs_10 action cmd_2, cmd_10" in text
    assert main(["inspect", "policy.safetensors", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["policies"]
    assert found["obs"] == ["obs_2", "obs_10"]
    assert found["learner"] == "bc"
    assert len(found["action_low"]) == 2
