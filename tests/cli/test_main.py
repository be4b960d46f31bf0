import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from messages import message
from safetensors import SafetensorError

import puorl
from puorl.cli import main as program
from puorl.cli.main import COMMANDS, main
from puorl.core.errors import DataError


def puorl_program(*words, **options):
    code = "import sys; from puorl.cli.main import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, **options
    )


@dataclass(frozen=True)
class Raising:
    """Stands in for a command that fails.

    Examples:
      puorl raising
    """

    kind: str
    """Which way."""

    def run(self) -> None:
        """Fail."""
        kinds = {
            "ours": DataError("a.csv: expected rows,\n  got none"),
            "interrupt": KeyboardInterrupt(),
            "resumable": KeyboardInterrupt("the same command goes on"),
            "bug": ZeroDivisionError("a bug"),
        }
        raise kinds[self.kind]


@pytest.fixture
def raising(monkeypatch):
    monkeypatch.setitem(COMMANDS, "raising", "fails")
    monkeypatch.setattr(program, "load_command", lambda _: Raising)


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_overview_names_every_command(capsys, words):
    assert main(words) == 0
    out = capsys.readouterr().out
    assert all(f"\n  {name} " in out for name in COMMANDS)
    assert max(map(len, out.splitlines())) <= 80


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"puorl {puorl.__version__}\n"


def test_unknown_command_suggests_a_known_one(capsys):
    assert main(["inspekt"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("puorl: error: unknown command 'inspekt'; did you mean 'inspect'?")
    assert err.count("\n") == 1


def test_our_errors_are_one_line(raising, capsys):
    assert main(["raising", "--kind", "ours"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "puorl: error: a.csv: expected rows, got none\n"
    assert captured.out == ""


def test_interruption_is_one_line(raising, capsys):
    assert main(["raising", "--kind", "interrupt"]) == 130
    assert capsys.readouterr().err == "puorl: interrupted\n"
    assert main(["raising", "--kind", "resumable"]) == 130
    assert capsys.readouterr().err == "puorl: interrupted; the same command goes on\n"


def test_bugs_keep_their_traceback(raising):
    with pytest.raises(ZeroDivisionError):
        main(["raising", "--kind", "bug"])


def test_usage_errors_and_help_of_a_command(raising, capsys):
    assert main(["raising"]) == 2
    assert main(["raising", "--nothing", "1"]) == 2
    capsys.readouterr()
    assert main(["raising", "--help"]) == 0
    out = capsys.readouterr().out
    assert "Stands in for a command that fails." in out
    assert "  puorl raising\n" in out  # examples keep their lines
    assert "Which way." in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["split"], ["Missing from puorl split:", "--others PATH...", "--out PATH"]),
        (["inspect", "a", "--obz", "x"], ["Unrecognized options: --obz", "--obs NAMES"]),
        (
            ["collect", "--env", "hopper", "--seed", "0", "--out", "x.npz", "--rows", "many"],
            ["--rows: expected a whole number such as 1000000, 1e6 or 1M, got 'many'"],
        ),
        (
            ["collect", "--env", "hopper", "--out", "x", "--seed", "x"],
            ["--seed: expected a whole number, got 'x'"],
        ),
        (["collect", "--env"], ["Missing value for argument '--env'"]),
        (["split", "a", "--unit", "hour"], ["'transition', 'episode'"]),
    ],
)
def test_wrong_usage_is_one_message(words, says):
    run = puorl_program(*words, env={**os.environ, "COLUMNS": "80"})
    assert (run.returncode, run.stdout) == (2, "")
    text = message(run.stderr)
    assert [part for part in says if part not in text] == []
    assert text.endswith(f"puorl {words[0]} --help")


def test_wrong_usage_on_a_terminal_without_line_drawing():
    run = puorl_program("split", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (run.returncode, run.stdout) == (2, "")
    assert "Missing from puorl split:" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_full_disk_is_one_line(tmp_path):
    rows = np.zeros((5, 2))
    file = puorl.save(puorl.Dataset.from_arrays(obs=rows, action=rows), tmp_path / "rows.npz")
    code = "import sys; from puorl.cli.main import main; sys.exit(main())"
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-c", code, "inspect", str(file)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert run.returncode != 0
    assert "No space left" in run.stderr
    assert "Traceback" not in run.stderr


def test_no_command_removes_a_folder_of_other_files(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.arange(40.0).reshape(20, 2)
    for name in ("a.npz", "b.npz"):
        puorl.save(puorl.Dataset.from_arrays(obs=rows, action=rows), name)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("precious")
    split = ["split", "a.npz", "--others", "b.npz", "--rows", "20", "--labelled-fraction", "0.1"]
    collect = ["collect", "--env", "hopper", "--rows", "10"]
    for words in (split, collect):
        assert main([*words, "--seed", "0", "--out", "mine", "--force"]) == 2
        assert "a folder of other files" in capsys.readouterr().err
    assert (tmp_path / "mine" / "letter.txt").read_text() == "precious"
    for force in ([], ["--force"]):
        assert main([*split, "--seed", "0", "--out", "s", *force]) == 0


def test_overview_is_fast_and_loads_nothing_heavy():
    code = (
        "import sys, time; start = time.perf_counter(); from puorl.cli.main import main; main([]);"
        "took = time.perf_counter() - start; assert took < 0.5, took;"
        "heavy = {'jax', 'numpy', 'tyro', 'gymnasium'} & set(sys.modules); assert not heavy, heavy"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_commands_here_exist_and_do_not_load_jax():
    code = (
        "import sys; from importlib import import_module\n"
        "for name in ('inspect', 'demo', 'split', 'filter'):\n"
        "    import_module(f'puorl.cli.{name}')\n"
        "assert 'jax' not in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_exit_codes_of_the_program(tmp_path):
    done = puorl_program("--version")
    assert (done.returncode, done.stderr) == (0, "")
    wrong = puorl_program("inspect", str(tmp_path / "none.npz"))
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("puorl: error: ")
    assert wrong.stderr.count("\n") == 1


def test_a_closed_pipe_is_quiet(tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 400))
    file = puorl.save(puorl.Dataset.from_arrays(obs=rows, action=rows), tmp_path / "wide.npz")
    code = "import sys; from puorl.cli.main import main; sys.exit(main())"
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(file), "--json"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (run.returncode, run.stderr) == (141, "")


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "--version",
        "inspect a.npz",
        "inspect --help",
        "split a.npz --others b.npz --rows 20 --labelled-fraction 0.1 --seed 0 --out split",
        "bench list",
        "bench list --json",
        "completion bash",
        "doctor",
    ],
)
def test_a_closed_pipe_is_quiet_whoever_prints(words, tmp_path):
    rows = np.random.default_rng(0).normal(size=(50, 2))
    for name in ("a.npz", "b.npz"):
        puorl.save(puorl.Dataset.from_arrays(obs=rows, action=rows), tmp_path / name)
    reading, writing = os.pipe()
    os.close(reading)
    code = "import sys; from puorl.cli.main import main; sys.exit(main())"
    run = subprocess.run(
        [sys.executable, "-c", code, *words.split()],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    os.close(writing)
    assert (run.returncode, run.stderr) == (141, "")


def test_start_of_the_program_is_quick():
    start = time.perf_counter()
    assert puorl_program("--help").returncode == 0
    assert time.perf_counter() - start < 2  # half a second on an idle machine


def test_a_command_is_a_module_and_nothing_else_lists_it(tmp_path):
    folder = Path(program.__file__).parent
    for name in COMMANDS:
        command = program.load_command(name)
        assert command.__module__ == f"puorl.cli.{name}"
        assert callable(command.run)
    others = {path.stem for path in folder.glob("*.py")} - COMMANDS.keys()
    assert others == {"__init__", "main", "options"}
    (tmp_path / "greet.py").write_text('"""`puorl greet`: say hello."""\n')
    (tmp_path / "other.py").write_text('"""Not a command."""\n')
    assert program._summaries(tmp_path) == {"greet": "say hello"}


def test_an_interrupt_leaves_at_once():
    # Threads of compiled code may crash while the interpreter ends, after the message.
    code = (
        "import atexit, sys; from puorl.cli import main as program\n"
        "def interrupted(words): raise KeyboardInterrupt('the same command goes on')\n"
        "program._dispatch = interrupted; atexit.register(print, 'the usual exit')\n"
        "sys.exit(program.main())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (130, "")
    assert run.stderr == "puorl: interrupted; the same command goes on\n"


def test_an_interrupt_in_a_callback_of_the_garbage_collector_is_not_lost():
    # Python drops what such a callback raises, and jax has one.
    code = (
        "import gc, signal, sys, time; from puorl.cli import main as program\n"
        "def unlucky(phase, info): gc.callbacks.clear(); signal.raise_signal(signal.SIGINT)\n"
        "def collect(words): gc.callbacks.append(unlucky); gc.collect(); time.sleep(30); return 0\n"
        "program._dispatch = collect; sys.exit(program.main())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "puorl: interrupted\n")


def test_other_errors_that_python_drops_are_still_shown():
    code = (
        "import sys; from puorl.cli import main as program\n"
        "class Bad:\n    def __del__(self): raise ValueError('seen')\n"
        "def drop(words): Bad(); return 0\n"
        "program._dispatch = drop; sys.exit(program.main())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0
    assert "ValueError: seen" in run.stderr


def test_an_interrupt_after_the_work_changes_nothing():
    code = (
        "import atexit, signal, sys; from puorl.cli import main as program\n"
        "program._dispatch = lambda words: 0; atexit.register(signal.raise_signal, signal.SIGINT)\n"
        "sys.exit(program.main())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_trouble(tmp_path, closed):
    rows = np.zeros((5, 2))
    file = puorl.save(puorl.Dataset.from_arrays(obs=rows, action=rows), tmp_path / "rows.npz")
    code = "import sys; from puorl.cli.main import main; sys.exit(main())"
    before = file.read_bytes()
    command = f'"{sys.executable}" -c "{code}" inspect {file} {closed}'
    run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert file.read_bytes() == before  # no output went there


def test_names_cannot_command_the_terminal(tmp_path, capsys):
    table = tmp_path / "a.csv"
    table.write_text("obs_0,act_0,\x1b[2J\x1b]0;hi\x07\n" + "1,0.5,3\n" * 5)
    assert main(["inspect", str(table)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert r"\x1b[2J" in out


def test_a_fault_of_the_machine_is_one_line(monkeypatch, capsys):
    def full(words):
        raise SafetensorError("Error while serializing: No space left on device (os error 28)")

    monkeypatch.setattr(program, "_dispatch", full)
    assert main(["inspect"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("puorl: error: Error while serializing: No space left on device")
    assert err.endswith("once repaired, run the same command again\n")
    assert err.count("\n") == 1
