"""Codes as actions, on the command line: told, trained, resumed, evaluated, refused."""

import json

import numpy as np
import pytest

import puorl
from puorl.cli.main import main
from puorl.cli.options import DataOptions
from puorl.core.stats import Estimate
from puorl.pu import result_folder
from puorl.pu.filter import DomainFilter


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A log of short CartPole runs: each file line a step, the action a number."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    rng = np.random.default_rng(0)
    lines = ["run,x,v,angle,spin,push,reward"]
    for run in range(12):
        state = rng.normal(size=4)
        for _ in range(10):
            push = int(state[2] + state[3] > 0)
            lines.append(",".join([str(run), *(f"{s:.6f}" for s in state), str(push), "1.0"]))
            state = state + 0.1 * rng.normal(size=4)
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


NAMES = ["--obs", "x,v,angle,spin", "--action", "push", "--episode", "run"]
SMALL = ["--steps", "40", "--set", "hidden=8", "batch_size=16"]


def test_inspect_tells_that_actions_are_codes_and_how_to_say_otherwise(log, capsys):
    assert main(["inspect", "log.csv", *NAMES]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "push: 2 codes (0, 1), taken as discrete; if they are amounts, say so with" in shown
    assert "push 2 texts, e.g. 0, 1" in shown or "push 2 texts, e.g. 1, 0" in shown
    assert main(["inspect", "log.csv", *NAMES, "--action-kind", "continuous", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["action_dim"] == 1


def test_train_takes_the_discrete_form_and_evaluate_finds_the_environment(log, capsys):
    words = ["train", "log.csv", *NAMES, *SMALL, "--learner", "bc", "--out", "run", "--seeds", "2"]
    assert main([*words, "--env", "CartPole-v1", "--eval-episodes", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["learner"] == "discrete_bc"
    assert told["evaluation"]["env"] == "CartPole-v1"
    policy = puorl.Policy.load(log / "run/policies/seed-0.safetensors")
    assert policy.codes == ("0", "1")
    assert main(["evaluate", "run", "--env", "CartPole-v1", "--episodes", "2", "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert [len(each["returns"]) for each in seen["policies"]] == [2, 2]
    assert main(["evaluate", "run", "--env", "hopper"]) == 2
    assert "codes such as 0, 1" in capsys.readouterr().err


def test_a_filter_stores_the_codes_for_new_logs(log, monkeypatch):
    stored = {}
    monkeypatch.setattr(result_folder, "write_kept", lambda *_: None)
    monkeypatch.setattr(result_folder, "finish", lambda *a: stored.update(a[3]["arguments"]) or {})
    monkeypatch.setattr(DomainFilter, "fit", lambda self, *_, **__: self)
    monkeypatch.setattr(DomainFilter, "alpha_", Estimate(0.5, 0.4, 0.6))
    words = ["filter", "log.csv", *NAMES, "--labelled", "run < 4", "--unit", "episode"]
    assert main([*words, "--no-report", "--evidence", "rows", "--out", "ours"]) == 0
    assert stored["data"]["action_kind"] == "discrete:0,1"
    options = DataOptions(**stored["data"])
    first = (log / "log.csv").read_text().splitlines()
    one = [line for line in first[1:] if line.split(",")[5] == "0"]
    (log / "new.csv").write_text("\n".join([first[0], *one]) + "\n")
    assert options.load(["new.csv"]).action_codes == ("0", "1")


def test_kinds_that_there_are_not(log, capsys):
    for kind in ("codes", "continuous:1,2"):
        assert main(["inspect", "log.csv", *NAMES, "--action-kind", kind]) == 2
        assert "expected continuous, discrete or discrete:CODE,CODE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--learner", "td3_bc"], "td3_bc: expected continuous actions, got 2 codes; use bcq"),
        (
            ["--learner", "cql", "--set", "num_sampled=3"],
            "expected a setting of discrete_cql among",
        ),
        (
            ["--learner", "bcq", "--action-kind", "continuous"],
            "bcq: expected discrete actions, got continuous ones; use td3_bc",
        ),
        (["--learner", "bc", "--env", "Pendulum-v1"], "but those of Pendulum-v1 are continuous"),
    ],
)
def test_what_is_refused(log, capsys, words, message):
    assert main(["train", "log.csv", *NAMES, "--steps", "40", *words, "--out", "run"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (log / "run").exists()
