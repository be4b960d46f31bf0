"""What holds for every command: its help, wrong usage, unreadable input, interruption."""

import json
import os
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from messages import message

from puorl.cli.main import COMMANDS, main
from puorl.core.errors import MissingExtraError
from puorl.core.installation import requirements

CALLS = [*([name] for name in COMMANDS), *(["bench", name] for name in ("run", "report", "list"))]
HELP = """
import contextlib, io, json, sys
from puorl.cli.main import main
told = {}
for words in json.loads(sys.argv[1]):
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(said):
        code = main([*words, "--help"])
    said.seek(0)
    told[" ".join(words)] = [code, said.read()]
json.dump({"told": told, "jax": "jax" in sys.modules}, sys.stdout)
"""


def called(call):
    return " ".join(call)


@pytest.fixture(scope="module")
def helped():
    """The help of every command, asked for in one other process."""
    run = subprocess.run(
        [sys.executable, "-c", HELP, json.dumps(CALLS)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert (run.returncode, run.stderr) == (0, "")
    return json.loads(run.stdout)


def refused(words, capsys):
    """The message with which the program refuses; nothing stands on stdout."""
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return message(captured.err)


# ---------------------------------------------------------------------------------- help


@pytest.mark.parametrize("call", CALLS, ids=called)
def test_help_has_examples_that_call_the_command(helped, call):
    code, text = helped["told"][called(call)]
    assert code == 0
    assert f"usage: puorl {called(call)} [-h]" in text
    examples = text.partition("\nExamples:\n")[2].partition("\n\n")[0].splitlines()
    assert examples
    assert all(f"puorl {called(call)}" in line for line in examples)


@pytest.mark.parametrize("call", CALLS, ids=called)
def test_help_fits_eighty_columns(helped, call):
    lines = helped["told"][called(call)][1].splitlines()
    assert [line for line in lines if len(line) > 80] == []


def test_help_does_not_load_jax(helped):
    assert not helped["jax"]


@pytest.mark.parametrize("call", CALLS, ids=called)
def test_help_may_be_asked_for_by_a_letter(call, capsys):
    assert main([*call, "-h"]) == 0
    assert "Examples:" in capsys.readouterr().out


def test_what_a_program_may_read_comes_as_json(helped):
    """All but the group itself, and the script, which is for programs anyway."""
    without = {name for name, (_, text) in helped["told"].items() if "│ --json " not in text}
    assert without == {"bench", "completion"}


def test_the_same_option_takes_the_same_everywhere(helped):
    takes: dict = {}
    for name, (_, text) in helped["told"].items():
        for option, value in re.findall(r"^│ (--[a-z-]+)(?: ([A-Z{]\S*))?", text, re.MULTILINE):
            takes.setdefault(option, {}).setdefault(value, []).append(name)
    differing = {option: values for option, values in takes.items() if len(values) > 1}
    # A body, or a domain of it; a format of data, or of a report; settings of the filter, or of a
    # learner; rows or episodes, or parts of them.
    assert set(differing) <= {"--env", "--format", "--preset", "--unit"}
    assert {"--out", "--seed", "--seeds", "--steps", "--json", "--force"} <= takes.keys()


def test_a_seed_need_not_be_given(helped):
    texts = {name: " ".join(text.split()) for name, (_, text) in helped["told"].items()}
    told = {name: text.partition("│ --seed INT ")[2] for name, text in texts.items()}
    for name, text in told.items():
        own = text.partition("│ --")[0]
        assert not own or "(default: 0)" in own.replace(" │ │ ", " "), name
    takes = {name for name, text in told.items() if text}
    assert takes == {"collect", "split", "filter", "train", "evaluate", "compare", "demo"}


def test_help_on_a_terminal_without_our_signs():
    code = "import sys; from puorl.cli.main import main; sys.exit(main())"
    run = subprocess.run(
        [sys.executable, "-c", code, "bench", "--help"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert "Examples:" in run.stdout


def test_the_page_has_every_command_and_every_extra():
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    for call in CALLS:
        assert f"`{called(call)}`" in page or call == ["bench"]
    for extra in requirements().keys() - {"", "report"}:
        assert f"| `{extra}`" in page or f", `{extra}`" in page


# --------------------------------------------------------------------------- wrong usage


@pytest.mark.parametrize("call", CALLS, ids=called)
def test_an_unknown_option_is_refused(call, capsys):
    text = refused([*call, "--no-such-option"], capsys)
    assert re.search(rf"puorl {call[0]}( \w+)? --help$", text)


def test_settings_are_named_as_options(tmp_path, capsys):
    rows = np.zeros((9, 2), np.float32)
    np.savez(tmp_path / "a.npz", obs=rows, action=rows)
    file = str(tmp_path / "a.npz")
    words = ["split", file, "--others", file, "--seed", "0", "--out", str(tmp_path / "out")]
    assert "lower rows" in refused(words, capsys)


# ---------------------------------------------------------------------- unreadable input


def lying_npz(path):
    """Says that it holds a million million rows."""
    header = str({"descr": "<f4", "fortran_order": False, "shape": (10**12, 3)})
    padded = header.ljust(117) + "\n"
    start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded.encode()
    with zipfile.ZipFile(path, "w") as archive:
        for key in ("obs", "action", "reward"):
            archive.writestr(f"{key}.npy", start)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    for suffix in ("npz", "csv", "hdf5", "parquet", "safetensors", "jsonl", "txt"):
        (folder / f"empty.{suffix}").touch()
        (folder / f"garbage.{suffix}").write_bytes(np.random.default_rng(0).bytes(3000))
    lying_npz(folder / "huge.npz")
    (folder / "huge.safetensors").write_bytes(struct.pack("<Q", 10**15) + b"{}")
    with open(folder / "huge.parquet", "wb") as file:
        file.truncate(10**11)  # of nothing: it takes no room
    (folder / "folder").mkdir()
    rows = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    np.savez(folder / "good.npz", obs=rows, action=rows, reward=rows[:, 0])
    return folder


ROWS = (
    *("none.npz", "folder", "huge.npz", "huge.parquet"),
    *(f"{kind}.{suffix}" for kind in ("empty", "garbage") for suffix in ("npz", "csv", "hdf5")),
)
LISTS = ("none.txt", "empty.txt", "garbage.txt", "empty.csv", "garbage.csv", "huge.npz", "folder")
POLICIES = ("none.safetensors", "empty.safetensors", "garbage.safetensors", "huge.safetensors")
READERS = {
    "inspect {}": ROWS,
    "plan {}": ROWS,
    "split {} --others good.npz --seed 0 --out out": ROWS,
    "split good.npz --others {} --seed 0 --out out": ROWS[:4],
    "filter {} --labelled a==1 --out out": ROWS,
    "filter good.npz --labelled ./{} --out out": LISTS,
    "export {} --out out.parquet": ROWS,
    "export {} --out out.onnx": POLICIES,
    "explain {} P-01": ("none", "folder", "good.npz"),
    "score {} good.npz": ("none", "folder", "good.npz"),
    "train {} --steps 10 --out out": ROWS,
    "compare {} --labelled a==1 --steps 10 --out out": ROWS,
    "evaluate {} --env hopper": (*POLICIES, "folder", "good.npz"),
    "collect --env hopper --rows 9 --seed 0 --out out.npz --policy {}": (*POLICIES, "folder"),
    "report {}": ("none", "folder", "empty.jsonl", "garbage.jsonl", "garbage.txt", "good.npz"),
    "bench report {}": ("none.jsonl", "empty.jsonl", "garbage.jsonl", "folder", "good.npz"),
}


@pytest.mark.parametrize("command", READERS, ids=lambda text: re.sub(r"[^\w{}-]+", "-", text))
def test_unreadable_input_is_refused(command, inputs, capsys, monkeypatch):
    monkeypatch.chdir(inputs)
    before = sorted(inputs.iterdir())
    for name in READERS[command]:
        assert name in refused(command.format(name).split(), capsys)
    assert sorted(inputs.iterdir()) == before  # nothing half-made stays


def test_every_command_that_reads_is_among_them():
    reading = {command.split()[0] for command in READERS}
    assert reading == COMMANDS.keys() - {"demo", "doctor", "completion"}


@pytest.mark.parametrize(
    "words",
    [
        "split good.npz --others good.npz --rows 1e15 --seed 0 --out out",
        "train good.npz --steps 1e30 --out out",
        "train good.npz --seeds 0 --out out",
        "train good.npz --seed 99999999999999999999 --out out",
        "collect --env hopper --rows 1e30 --seed 0 --out out.npz",
        "evaluate good.npz --env hopper --episodes 0",
        "bench run smoke --seeds 0 --out out",
        "bench run nothing --out out",
        "demo --seed -1 --out out",
    ],
)
def test_impossible_numbers_and_names_are_refused(words, inputs, capsys, monkeypatch):
    monkeypatch.chdir(inputs)
    refused(words.split(), capsys)
    assert not (inputs / "out").exists()


def test_too_little_memory_is_one_line(capsys, monkeypatch):
    def greedy(*_, **__):
        raise MemoryError

    monkeypatch.setattr("puorl.cli.options.load", greedy)
    assert "not enough memory" in refused(["inspect", "a.npz"], capsys)


# -------------------------------------------------------------------- JSON, interruption


def test_split_and_collect_tell_programs_what_they_made(inputs, tmp_path, capsys):
    good, out = str(inputs / "good.npz"), tmp_path / "split"
    words = ["split", good, "--others", good, "--rows", "20", "--labelled-fraction", "0.1"]
    assert main([*words, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["folder"] == str(out)
    assert (told["num_labelled"], told["num_unlabelled"]) == (2, 18)
    pytest.importorskip("mujoco")
    file = str(tmp_path / "rows.npz")
    words = ["collect", "--env", "hopper", "--quality", "random", "--rows", "5"]
    assert main([*words, "--out", file, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["file"], told["num_rows"], told["mean_return"]) == (file, 5, None)


def test_filter_tells_programs_what_it_made(tmp_path, capsys, monkeypatch):
    def work(command, run):
        run.begin({"seed": command.seed})
        return SimpleNamespace(to_dict=lambda: {"alpha": 0.3}), {"kept.npz": "9 kept rows"}, None

    monkeypatch.setattr("puorl.cli.filter.Filter._work", work)
    out = str(tmp_path / "run")
    assert main(["filter", "a.npz", "--labelled", "a == 1", "--out", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "folder": out,
        "files": {"kept.npz": "9 kept rows"},
        "report": {"alpha": 0.3},
    }


INTERRUPTED = """
import os, signal, sys, threading
import mujoco.rollout
from puorl.cli.main import main
from puorl.envs import collect
record = collect.record

def disturbed(*args, **settings):
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    return record(*args, **settings)

collect.record = disturbed
sys.exit(main())
"""


def test_interruption_ends_in_130_and_leaves_nothing(tmp_path):
    pytest.importorskip("mujoco")
    words = "collect --env hopper --quality random --rows 5M --seed 0 --no-cache --out o.npz"
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *words.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert (run.returncode, run.stdout) == (130, "")
    assert run.stderr.splitlines()[-1] == "puorl: interrupted"
    assert "Traceback" not in run.stderr
    assert not list(tmp_path.iterdir())


def test_interruption_of_an_import_is_no_missing_package(capsys, monkeypatch):
    def load(*_, **__):
        try:
            raise ImportError("initialization failed") from KeyboardInterrupt()
        except ImportError as error:
            raise MissingExtraError("mujoco cannot be imported") from error

    monkeypatch.setattr("puorl.cli.options.load", load)
    assert main(["inspect", "a.npz"]) == 130
    assert capsys.readouterr().err == "puorl: interrupted\n"
