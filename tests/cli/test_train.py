"""`puorl train`: what it reads, writes, says, refuses, and goes on with."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import jax
import numpy as np
import pytest
import tyro
from filter_runs import hashes
from jax.experimental.compilation_cache import compilation_cache
from train_rows import STEPS, names_in, train_rows, words

import puorl
from puorl.cli.evaluate import Evaluate
from puorl.cli.main import main
from puorl.cli.train import Train
from puorl.core.run_folder import Checkpoint
from puorl.rl import run
from puorl.rl.trainer import Stopped

ROOT = Path(__file__).parents[2]
PARSING = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
EVERY = 20
PROGRAM = """
import sys, time
from puorl.cli.main import main
from puorl.core.run_folder import Checkpoint
from puorl.rl import run

run.CHECKPOINT_INTERVAL = int(sys.argv[1])
store = Checkpoint.store

def slowly(self, stage, *args, **kwargs):
    store(self, stage, *args, **kwargs)
    time.sleep(60)

Checkpoint.store = slowly
sys.exit(main(sys.argv[2:]))
"""
"""The program, which stops for long after its first checkpoint."""


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch):
    monkeypatch.setattr(run, "CHECKPOINT_INTERVAL", EVERY)


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """All runs share what they compile, as that is most of their time; as environment variables."""
    folder = str(tmp_path_factory.mktemp("compiled"))
    settings = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    earlier = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield {name.upper(): str(value) for name, value in settings.items()}
    for name, value in earlier.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return puorl.save(train_rows(), tmp_path_factory.mktemp("data") / "rows.npz")


@pytest.fixture
def here(data, tmp_path, monkeypatch):
    """A folder with rows.npz in it, to work in."""
    shutil.copy(data, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture(scope="module")
def unbroken(data, tmp_path_factory):
    """The folder of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("unbroken")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "CHECKPOINT_INTERVAL", EVERY)
        assert main(words(data=str(data), out=str(folder / "run"))) == 0
    return folder / "run"


def results(folder):
    """What must be the same however often a run was stopped."""
    kept = {name: text for name, text in hashes(folder).items() if name != "record.json"}
    assert {name.partition("/")[0] for name in kept} == {"policies", "metrics.jsonl", "run.json"}
    return kept


# ---------------------------------------------------------------------------- what it makes


def test_policies_metrics_and_one_line(here, unbroken, capsys):
    assert main(words()) == 0
    out, err = capsys.readouterr()
    assert out.startswith("300 rows; 2 policies by bc, 60 steps each\n")
    last = out.splitlines()[-1]
    assert re.fullmatch(
        r"run/policies: 2 policies, 60 steps; trained in \d:\d\d at [\d,]+ steps/s per lane",
        last,
    )
    assert "\x1b" not in out
    assert err == ""
    assert results(here / "run") == results(unbroken)
    assert names_in(here) == ["rows.npz", "run"]
    lines = [json.loads(line) for line in (here / "run/metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["lane"]) for line in lines] == [
        (step, f"seed-{seed}") for step in (20, 40, 60) for seed in (0, 1)
    ]
    settings = {"hidden": (16, 16), "batch_size": 16}
    again = puorl.train_many("bc", train_rows(), 2, steps=STEPS, **settings).policies
    for seed in (0, 1):
        policy = puorl.Policy.load(f"run/policies/seed-{seed}.safetensors")
        assert policy.fingerprint == again[f"seed-{seed}"].fingerprint
        assert policy.metadata["seed"] == seed


def test_evaluations_on_the_way_and_at_the_end(here, capsys):
    more = ["--env", "hopper", "--eval-every", "40", "--eval-episodes", "2"]
    assert main(words(*more)) == 0
    out = capsys.readouterr().out
    lines = [json.loads(line) for line in (here / "run/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "return" in line] == [40, 40, 60, 60]
    policies = [puorl.Policy.load(f"run/policies/seed-{seed}.safetensors") for seed in (0, 1)]
    seen = puorl.evaluate(policies, "hopper", episodes=2, seed=0)
    assert [line["return"] for line in lines[-2:]] == seen.mean.tolist()
    assert [line["score"] for line in lines[-2:]] == seen.mean_score.tolist()
    assert f"{seen.mean[1]:,.1f}" in out
    assert "run: mean of 2 policies: return" in out


def test_json_is_one_object_and_a_finished_run_is_evaluated_anew(here, unbroken, capsys):
    shutil.copytree(unbroken, "run")
    more = ["--env", "hopper", "--eval-episodes", "2", "--json"]
    assert main(words(*more)) == 0
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert content["policies"] == {
        f"seed-{seed}": f"run/policies/seed-{seed}.safetensors" for seed in (0, 1)
    }
    assert (content["learner"], content["steps"], content["stopped"]) == ("bc", STEPS, {})
    assert content["config"]["hidden"] == [16, 16]
    assert content["steps_per_second"] is None
    assert len(content["evaluation"]["policies"][1]["returns"]) == 2
    assert err == "300 rows; 2 policies by bc, 60 steps each\n"
    assert results(here / "run") == results(unbroken)
    assert main(words()) == 0
    out = capsys.readouterr().out
    assert out.endswith("2 policies, 60 steps; already finished, nothing to do\n")


def test_rewards_that_cannot_be_scaled_are_warned_of(here, capsys, monkeypatch):
    monkeypatch.setattr(
        "puorl.cli.train.run", lambda *_, **__: run.TrainResult({"seed-0": None}, {})
    )
    puorl.save(train_rows(timeout=np.zeros(300, bool)), "loose.npz")
    assert main(["train", "loose.npz", "--steps", "10", "--out", "run"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("puorl: warning: iql: rewards are not scaled")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "bounds"),
    [("-2 3", [[-2] * 3, [3] * 3]), ("-2 3 0 1.5 -1 1", [[-2, 0, -1], [3, 1.5, 1]])],
)
def test_bounds_of_actions(here, data, capsys, monkeypatch, given, bounds):
    specs = []

    def stop(out, spec, **_):
        specs.append(spec.to_dict())
        return run.TrainResult({"seed-0": None}, {})

    monkeypatch.setattr("puorl.cli.train.run", stop)
    assert main(["train", str(data), "--action-bounds", *given.split(), "--out", "run"]) == 0
    assert specs[0]["action_bounds"] == bounds
    for wrong, said in (("-2", "expected pairs"), ("2 -2", "with low below high")):
        words = ["train", str(data), "--out", "run", "--action-bounds", *wrong.split()]
        assert main(words) == 2
        assert said in capsys.readouterr().err


def test_a_kept_run_goes_on_only_as_it_began(here, unbroken, capsys):
    shutil.copytree(unbroken, "run")
    puorl.save(train_rows(seed=1), "others.npz")
    before = hashes(here / "run")
    for more, said in (
        (["--seeds", "3"], "the run has no seed-2"),
        (["--seed", "1"], "the run has also seed-0; the run has no seed-2"),
        (["--steps", "80"], "steps was 60, is 80"),
        (["--set", "actor_learning_rate=0.1"], "actor_learning_rate was 0.001, is 0.1"),
        (["--learner", "iql"], "learner was bc, is iql"),
        ([], "data differs"),
    ):
        assert main(words(*more, data="rows.npz" if more else "others.npz")) == 2
        err = capsys.readouterr().err
        assert f"run: the folder holds another run: {said};" in err
        assert err.count("\n") == 1
    assert hashes(here / "run") == before
    for text, said in (
        ("[]", "expected what puorl wrote"),
        ("{}", "another run"),
        ("{", "JSON"),
    ):
        (here / "run" / "run.json").write_text(text)
        assert main(words()) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1


def asked_in(folder):
    return json.loads((folder / "record.json").read_text())["invocations"]


def test_what_was_read_is_recorded_and_a_moved_file_goes_on(here, unbroken, data, capsys):
    rows = puorl.load(data)
    part = {"files": [str(data)], "num_rows": 300, "fingerprint": rows.fingerprint}
    whole = {"paths": [str(data)], "fields": {}, "parts": [part], "hold_out": None}
    nowhere = {"env": None, "eval_every": None, "eval_episodes": None}
    assert asked_in(unbroken) == [whole | nowhere]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "store", stopping(Checkpoint.store))
        assert main(words("--env", "hopper", "--eval-episodes", "2")) == 130
    (here / "rows.npz").rename(here / "moved.npz")
    assert main(words(data="moved.npz")) == 0
    first, second = asked_in(here / "run")
    assert (first["paths"], first["env"], first["eval_episodes"]) == (
        ["rows.npz"],
        "hopper/nominal",
        2,
    )
    assert (second["paths"], second["env"]) == (["moved.npz"], None)
    assert first["parts"][0]["fingerprint"] == second["parts"][0]["fingerprint"]
    record = json.loads((here / "run" / "record.json").read_text())
    assert [each["resumed"] for each in record["resumed"]] == ["bitwise"]
    assert results(here / "run") == results(unbroken)
    assert main(words(data="moved.npz")) == 0
    assert len(asked_in(here / "run")) == 2  # the same again is not told again


def test_resume_is_accepted_and_changes_nothing(here, unbroken):
    shutil.copytree(unbroken, "run")
    before = hashes(here / "run")
    assert main(words("--resume")) == 0
    assert hashes(here / "run").keys() == before.keys()
    assert results(here / "run") == results(unbroken)


def stopping(store):
    """Ctrl-C after the first checkpoint."""

    def stopped(self, stage, *args, **kwargs):
        if int(stage.removeprefix("step-")) > EVERY:
            raise KeyboardInterrupt
        store(self, stage, *args, **kwargs)

    return stopped


# --------------------------------------------------------------------- what comes in between


def test_lanes_that_were_given_up_are_said_and_the_others_count(
    here, unbroken, capsys, monkeypatch
):
    policy = puorl.Policy.load(unbroken / "policies" / "seed-0.safetensors")
    lost = {"seed-1": Stopped(1200, "a loss is not finite")}
    for made, code, said in (
        ({"seed-0": policy}, 0, "run/policies: 1 policy, 60 steps"),
        ({}, 2, "puorl: error: run: every policy was given up"),
    ):
        monkeypatch.setattr(
            "puorl.cli.train.run", lambda *_, made=made, **__: run.TrainResult(made, lost)
        )
        assert main(words()) == code
        out, err = capsys.readouterr()
        assert err.startswith("puorl: given up: seed-1 at step 1,200: a loss is not finite\n")
        assert said in out + err


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_comes_in_between_loses_nothing(here, unbroken, capsys, monkeypatch, failure):
    store = Checkpoint.store

    def failing(self, stage, *args, **kwargs):
        if int(stage.removeprefix("step-")) > EVERY:
            raise failure
        store(self, stage, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "store", failing)
        if isinstance(failure, OSError):
            assert main(words()) == 2
            said = "left on device; what was done is kept: once repaired, the same command goes on"
        else:
            assert main(words()) == 130
            said = "puorl: interrupted; the same command goes on from there\n"
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
    assert names_in(here) == ["rows.npz", "run"]
    assert main(words()) == 0
    assert "60 steps; trained from step 20 on in 0:" in capsys.readouterr().out
    assert results(here / "run") == results(unbroken)


def test_an_interruption_before_the_first_checkpoint_leaves_nothing(here, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "store", interrupted)
    assert main(words()) == 130
    said = "puorl: interrupted; nothing is stored yet: the same command begins anew\n"
    assert capsys.readouterr().err == said
    assert names_in(here) == ["rows.npz"]


def test_a_killed_run_ends_as_an_unbroken_one(here, unbroken, compiled, capsys):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(EVERY), *words()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **compiled},
    )
    try:
        deadline = time.monotonic() + 120
        while not any((here / "run").glob("checkpoints/*/step-*.safetensors")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)
        assert main(words()) == 2
        assert "another run is filling this folder" in capsys.readouterr().err
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (here / "run" / "policies").exists()
    assert main(words()) == 0
    assert "trained from step 20 on" in capsys.readouterr().out
    assert results(here / "run") == results(unbroken)
    assert names_in(here) == ["rows.npz", "run"]


class FakeWriter:
    made: list = []

    def __init__(self, folder, purge_step):
        self.folder, self.purge_step, self.scalars = folder, purge_step, []
        self.made.append(self)

    def add_scalar(self, name, value, step):
        self.scalars.append((name, step))

    def flush(self):
        pass

    def close(self):
        self.scalars.append("closed")


def test_metrics_go_to_a_tracker_too(here, monkeypatch):
    monkeypatch.setattr(FakeWriter, "made", [])
    fake = types.SimpleNamespace(SummaryWriter=FakeWriter)
    monkeypatch.setitem(sys.modules, "tensorboardX", fake)
    assert main(words("--logger", "tensorboard")) == 0
    [writer] = FakeWriter.made
    assert (writer.folder, writer.purge_step) == ("run/tensorboard", None)
    steps = [(f"actor_loss/seed-{seed}", step) for step in (20, 40, 60) for seed in (0, 1)]
    assert writer.scalars == [*steps, "closed"]
    assert main(words("--logger", "tensorboard")) == 0
    assert len(FakeWriter.made) == 1  # nothing was left to log


def test_help_and_import_do_not_load_jax():
    code = (
        "import sys; from puorl.cli.main import main; code = main(['train', '--help']);"
        "assert 'jax' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("puorl train kept", "--set NAME=VALUE", "weight", "--next-obs", "--eval-every"):
        assert word in done.stdout
    assert "--label" not in done.stdout


PAGE = (ROOT / "docs" / "train-command.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^puorl (.*)$", PAGE, re.MULTILINE)


def test_the_commands_on_the_page_are_understood():
    assert len(COMMANDS) >= 9
    examples = re.findall(r"^ +puorl (train .*)$", str(Train.__doc__), re.MULTILINE)
    for command in [*COMMANDS, *examples]:
        name, *rest = shlex.split(command)
        kind = {"train": Train, "evaluate": Evaluate}.get(name)
        if kind is not None:
            assert tyro.cli(kind, args=rest, config=PARSING).paths


def test_what_the_page_says_to_try_works(here, capsys):
    first = [shlex.split(command) for command in COMMANDS[:3]]
    assert [command[0] for command in first] == ["collect", "train", "evaluate"]
    (here / "rows.npz").unlink()
    for command in first:
        assert main(command) == 0
    assert "run: mean of 2 policies: return" in capsys.readouterr().out
