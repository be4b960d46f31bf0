"""The scripts are run: bash here always, fish and zsh where they are installed."""

import dataclasses
import os
import pty
import shutil
import subprocess
import sys
import typing
from importlib import import_module

import pytest

from puorl.cli.completion import _flat, read_commands, script
from puorl.cli.main import COMMANDS, main
from puorl.envs import bodies

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="bash is not installed")


@pytest.fixture(scope="module")
def commands():
    return {" ".join(command.words): command for command in _flat(read_commands())}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripts")
    made = {shell: folder / f"puorl.{shell}" for shell in ("bash", "zsh", "fish")}
    for shell, path in made.items():
        path.write_text(script(shell), encoding="utf-8")
    return made


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


# ------------------------------------------------------------------- what the help tells


def fields(command):
    """Options of a command's class, found another way than by its help."""
    hints = typing.get_type_hints(command, include_extras=True)
    for field in dataclasses.fields(command):
        kind = str(hints[field.name])
        inner = typing.get_type_hints(command)[field.name]
        if dataclasses.is_dataclass(inner):
            yield from fields(inner)
        elif "Positional" not in kind and "Suppress" not in kind:
            yield "--" + {"settings": "set"}.get(field.name, field.name).replace("_", "-")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "bench"])
def test_every_option_of_a_command_is_known(commands, name):
    module, _, attribute = COMMANDS[name][0].partition(":")
    known = {long for option in commands[name].options for long in option.names}
    assert known == {"-h", "--help", *fields(getattr(import_module(module), attribute))}


def test_commands_of_a_command_are_known(commands):
    assert {member.words for member in commands["bench"].members} == {
        ("bench", "run"),
        ("bench", "report"),
        ("bench", "list"),
    }
    assert commands["bench run"].argument.words[0] == "smoke"
    assert {"--out", "--dry-run"} <= {o.names[-1] for o in commands["bench run"].options}


def test_values_are_known(commands):
    found = {(n, o.names[-1]): o.value for n, c in commands.items() for o in c.options}
    assert found["filter", "--mode"].words == ("hard", "top_alpha", "soft")
    assert found["collect", "--env"].words == bodies.names()
    assert "hopper/body_mass" in found["evaluate", "--env"].words
    assert found["split", "--others"].files
    assert found["split", "--others"].many
    assert found["filter", "--force"] is None
    assert not found["train", "--steps"].words
    assert commands["inspect"].argument.files
    assert commands["collect"].argument is None
    assert commands["completion"].argument.words == ("bash", "zsh", "fish")


def test_the_command_prints_the_script(scripts, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")  # a narrow terminal changes nothing
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == scripts["bash"].read_text(encoding="utf-8")
    assert os.environ["COLUMNS"] == "40"


def test_making_it_does_not_load_jax_and_running_it_no_python(scripts):
    code = (
        "import sys; from puorl.cli.main import main; main(['completion', 'fish']); "
        "assert 'jax' not in sys.modules"
    )
    assert run(sys.executable, "-c", code).returncode == 0
    for path in scripts.values():
        assert "python" not in path.read_text(encoding="utf-8").lower()


# ---------------------------------------------------------------------------------- bash


def completed(scripts, *lines):
    """What bash would offer for the last word of each line; all in one shell."""
    parts = [f"source {scripts['bash']}"]
    for line in lines:
        words = line.replace("=", " = ").split(" ")
        listed = " ".join(f"'{word}'" for word in words)
        parts.append(f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _puorl")
        parts.append('echo "${COMPREPLY[*]}"')
    done = run(BASH, "--norc", "-c", "\n".join(parts))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@needs_bash
def test_bash_completes_commands_options_and_choices(scripts):
    asked = {
        "puorl ": " ".join(COMMANDS),
        "puorl ins": "inspect",
        "puorl --v": "--version",
        "puorl bench ": "run report list",
        "puorl bench re": "report",
        "puorl bench run s": "smoke",
        "puorl bench run smoke --dry": "--dry-run",
        "puorl bench report results --format m": "markdown",
        "puorl filter a.csv --mo": "--mode",
        "puorl filter a.csv --mode ": "hard top_alpha soft",
        "puorl filter a.csv --mode=s": "soft",
        "puorl filter a.csv --mode=": "hard top_alpha soft",
        "puorl collect --env hopper --quality medium-": "medium-replay medium-expert",
        "puorl collect --env h": "halfcheetah hopper",
        "puorl evaluate run --env walker2d/b": "walker2d/body_mass",
        "puorl train a --seed ": "",  # any number
        "puorl train a --set gamma=0.9 hi": "",
        "puorl train --learner iql --res": "--resume",
        "puorl completion z": "zsh",
        "puorl nothing ": "",
        "puorl inspect a.npz": "",  # files are the shell's own
    }
    assert dict(zip(asked, completed(scripts, *asked), strict=True)) == asked


def typed(scripts, folder, *lines):
    """What words a line has in the end, typed into a real bash with its tabs."""
    keyboard, terminal = pty.openpty()
    shell = subprocess.Popen(
        [BASH, "--norc", "--noprofile", "-i"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=folder,
        env={**os.environ, "TERM": "dumb", "PS1": "", "INPUTRC": "/dev/null"},
        start_new_session=True,
    )
    os.close(terminal)
    called = """puorl() { printf '<%s>' "$@" >> said; echo >> said; }"""
    for line in (f"source {scripts['bash']}", called, *lines, "exit"):
        os.write(keyboard, f"{line}\n".encode())
    try:
        while os.read(keyboard, 4096):  # until the shell has gone
            pass
    except OSError:
        pass
    shell.wait(timeout=30)
    os.close(keyboard)
    return (folder / "said").read_text().splitlines()


@needs_bash
def test_bash_completes_in_a_real_terminal(scripts, tmp_path):
    (tmp_path / "rows one.npz").touch()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "day.csv").touch()
    assert typed(
        scripts,
        tmp_path,
        "puorl insp\tro\t",
        "puorl split logs/d\t --others ro\t logs/d\t --out lo\t",
        "puorl filter --labelled lo\td\t --mo\ts\t",
        "puorl collect --qual\tra\t",
        "puorl collect --quality=ra\t",
        "puorl ben\tru\tsm\t",
    ) == [
        "<inspect><rows one.npz>",
        "<split><logs/day.csv><--others><rows one.npz><logs/day.csv><--out><logs/>",
        "<filter><--labelled><logs/day.csv><--mode><soft>",
        "<collect><--quality><random>",
        "<collect><--quality=random>",
        "<bench><run><smoke>",
    ]


# --------------------------------------------------------------------------- zsh and fish


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_accepts_its_script(scripts):
    done = run("zsh", "-n", str(scripts["zsh"]))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes(scripts, tmp_path):
    (tmp_path / "rows.npz").touch()
    asked = {
        "puorl ins": ["inspect"],
        "puorl bench ru": ["run"],
        "puorl bench run sm": ["smoke"],
        "puorl filter --mode s": ["soft"],
        "puorl filter --mo": ["--mode"],
        "puorl inspect ro": ["rows.npz"],
        "puorl inspect --reward ro": [],
        "puorl collect ro": [],
        "puorl split --others ro": ["rows.npz"],
    }
    code = "; ".join(f"complete -C '{line}'; echo =====" for line in asked)
    done = run("fish", "-N", "-c", f"source {scripts['fish']}; {code}", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    parts = done.stdout.split("=====\n")[:-1]
    offered = [[line.partition("\t")[0] for line in part.splitlines()] for part in parts]
    assert dict(zip(asked, offered, strict=True)) == asked
