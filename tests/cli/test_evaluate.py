import json
import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
import tyro
from safetensors.numpy import save_file
from scipy import stats

import puorl
from puorl.cli.evaluate import Evaluate
from puorl.cli.main import main
from puorl.core.files import read_json, write_json
from puorl.core.stats import mean_estimate

PARSING = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)


def policy(seed, obs_dim=11, act_dim=3):
    w = np.random.default_rng(seed).normal(size=(obs_dim, act_dim)).astype(np.float32)
    return puorl.Policy.of("tanh", [{"w": w, "b": np.zeros(act_dim, np.float32)}])


def make_run(folder, seeds, lost=()):
    """A folder as training leaves it, of policies that nobody trained."""
    names = [f"seed-{seed}" for seed in seeds]
    write_json(folder / "run.json", {"groups": [names[:2], names[2:]]})
    for seed, name in zip(seeds, names, strict=True):
        if seed not in lost:
            policy(seed).save(folder / "policies" / f"{name}.safetensors")
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def asked(capsys, *words):
    assert main(["evaluate", *words, "--env", "hopper", "--episodes", "3", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_policy_of_a_run_is_evaluated_in_one_go(here, capsys):
    make_run(here / "run", [9, 10, 11])
    content = asked(capsys, "run", "--seed", "4")
    expected = puorl.evaluate([policy(s) for s in (9, 10, 11)], "hopper", episodes=3, seed=4)
    assert [p["policy"] for p in content["policies"]] == [
        f"run/policies/seed-{seed}.safetensors" for seed in (9, 10, 11)
    ]
    assert [p["returns"] for p in content["policies"]] == expected.returns.tolist()
    assert [p["scores"] for p in content["policies"]] == expected.scores.tolist()
    assert [p["lengths"] for p in content["policies"]] == expected.lengths.tolist()
    assert (content["env"], content["episodes"], content["seed"]) == ("hopper/nominal", 3, 4)
    [mean] = content["means"]
    assert (mean["group"], mean["num_policies"]) == ("run", 3)
    assert mean["return"]["value"] == pytest.approx(expected.mean.mean())
    assert mean["score"]["value"] == pytest.approx(expected.mean_score.mean())


def test_the_table_has_a_line_for_each_policy_and_their_mean(here, capsys):
    make_run(here / "run", [0, 1])
    assert main(["evaluate", "run", "--env", "hopper", "--episodes", "3"]) == 0
    out = capsys.readouterr().out
    seen = puorl.evaluate([policy(0), policy(1)], "hopper", episodes=3, seed=0)
    assert out.startswith("2 policies in hopper/nominal, 3 episodes each\n")
    for row in (0, 1):
        [line] = [text for text in out.splitlines() if f"seed-{row}.safetensors" in text]
        assert line.split()[:-1] == [
            f"{seen.mean[row]:,.1f}",
            "±",
            f"{seen.std[row]:,.1f}",
            f"{seen.mean_score[row]:.1f}",
            f"{seen.lengths[row].mean():,.0f}",
        ]
    mean = mean_estimate(seen.mean)
    said = f"run: mean of 2 policies: return {mean.value:,.1f} [{mean.low:,.1f}, {mean.high:,.1f}]"
    assert said in out


def test_long_paths_are_not_broken(here, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder = "a-run-of-many-words/" * 5 + "run"
    make_run(here / folder, [0, 1])
    assert main(["evaluate", folder, "--env", "hopper", "--episodes", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["return", "std", "score", "length", "policy"]
    files = [f"{folder}/policies/seed-{seed}.safetensors" for seed in (0, 1)]
    assert [line.split()[-1] for line in lines[2:4]] == files
    assert {line.index(folder) for line in lines[2:4]} == {lines[1].index("policy")}
    assert lines[4].startswith(f"{folder}: mean of 2 policies: return ")


def test_the_file_has_what_json_prints_and_is_replaced_by_force_only(here, capsys, monkeypatch):
    make_run(here / "run", [0, 1])
    words = [
        "evaluate",
        "run",
        "--env",
        "hopper",
        "--episodes",
        "2",
        "--out",
        "run/new/hopper.json",
    ]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert out.endswith("(95 % interval over policies)\nwrote run/new/hopper.json\n")
    written = read_json(here / "run/new/hopper.json")
    assert [path.name for path in (here / "run/new").iterdir()] == ["hopper.json"]
    assert main([*words, "--force", "--seed", "1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert read_json(here / "run/new/hopper.json") == printed != written
    with monkeypatch.context() as patch:
        patch.setattr("puorl.cli.evaluate.evaluate", None)  # nothing is simulated in vain
        assert main(words) == 2
    assert "run/new/hopper.json: already exists" in capsys.readouterr().err
    assert read_json(here / "run/new/hopper.json") == printed


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 10, 30])
def test_the_interval_is_students(count):
    values = np.random.default_rng(count).normal(size=count)
    error = stats.sem(values)
    low, high = stats.t.interval(0.95, count - 1, values.mean(), error)
    mean = mean_estimate(values)
    assert mean.value == pytest.approx(values.mean())
    assert [mean.low, mean.high] == pytest.approx([low, high], abs=4e-3 * error)


def test_runs_are_averaged_apart_and_loose_files_together(here, capsys):
    make_run(here / "a", [0, 1])
    make_run(here / "b", [2, 3, 4], lost=[3])
    policy(5).save("x.safetensors")
    content = asked(capsys, "a", "b", "x.safetensors")
    assert [p["group"] for p in content["policies"]] == ["a", "a", "b", "b", ""]
    assert [(m["group"], m["num_policies"]) for m in content["means"]] == [("a", 2), ("b", 2)]
    files = [f"b/policies/seed-{seed}.safetensors" for seed in (2, 4)]
    both = asked(capsys, *files)
    assert [(m["group"], m["num_policies"]) for m in both["means"]] == [("", 2)]


def test_one_policy_has_no_interval_and_another_reward_no_score(here, capsys):
    policy(0).save("one.safetensors")
    words = ["evaluate", "one.safetensors", "--env", "hopper/reward", "--episodes", "2"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "mean of" not in out
    assert "score" not in out
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["means"] == []
    assert content["policies"][0]["scores"] is None


def test_wrong_input_ends_with_one_clear_message(here, capsys):
    good = make_run(here / "run", [0])
    policy(0, 17, 6).save("walker.safetensors")
    np.savez("rows.npz", obs=np.zeros((3, 2)))
    save_file({"w": np.zeros(2, np.float32)}, "foreign.safetensors")
    (here / "empty").mkdir()
    make_run(here / "begun", [0, 1], lost=[0, 1])
    one = str(good / "policies" / "seed-0.safetensors")
    for words, said in (
        (["none.safetensors"], "none.safetensors: expected a policy file, found no such file"),
        (["rows.npz"], "rows.npz: expected a policy in safetensors"),
        (["foreign.safetensors"], "foreign.safetensors: expected a policy of puorl"),
        (["empty"], "empty: expected a folder that puorl train wrote, found no run.json"),
        (["begun"], "begun: expected policies, found none: the run has not ended"),
        (
            ["walker.safetensors"],
            "walker.safetensors: the policy has 17 state and 6 action components, but "
            "hopper/nominal has 11 and 3",
        ),
        ([one, one], "is named twice"),
        ([], "expected a folder of puorl train or a policy file, got none"),
        (["run", "--env", "hoper"], "hopper"),
        (["run", "--env", "hopper/gravty=0.5"], "gravity=0.5"),
        (["run", "--episodes", "0"], "--episodes: expected 1 or more, got 0"),
        (["run", "--seed", "-1"], "seed: expected a whole number"),
    ):
        assert main(["evaluate", "--env", "hopper", *words]) == 2
        out, err = capsys.readouterr()
        assert said in err
        assert (out, err.count("\n")) == ("", 1)
    assert main(["evaluate", "--env", "hopper", "run", "--episodes", "few"]) == 2
    assert "expected a whole number" in capsys.readouterr().err  # in the option parser's own words


def test_the_program_itself_answers_and_needs_no_jax(here):
    make_run(here / "run", [0, 1])
    code = (
        "import sys; from puorl.cli.main import main; code = main();"
        "assert 'jax' not in sys.modules; sys.exit(code)"
    )
    words = ["evaluate", "run", "--env", "hopper/body_mass", "--episodes", "2", "--json"]
    run = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["env"] == "hopper/body_mass"


def test_the_examples_of_the_help_are_understood():
    lines = [text.strip() for text in str(Evaluate.__doc__).splitlines()]
    commands = [text for text in lines if text.startswith("puorl evaluate")]
    assert len(commands) == 7
    for command in commands:
        words = shlex.split(command)[2:]
        assert tyro.cli(Evaluate, args=words, config=PARSING).paths
