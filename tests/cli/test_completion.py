"""The script is run: bash here always, fish and zsh where they are installed."""

import shutil
import subprocess
import sys

import pytest

from puorl.cli.main import COMMANDS, main

BASH = shutil.which("bash")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripts")
    made = {shell: folder / f"puorl.{shell}" for shell in ("bash", "zsh", "fish")}
    for shell, path in made.items():
        path.write_text(run_program(shell), encoding="utf-8")
    return made


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


def run_program(shell):
    code = (
        "import sys; from puorl.cli.main import main; code = main(['completion', sys.argv[1]]); "
        "assert 'jax' not in sys.modules; sys.exit(code)"
    )
    done = run(sys.executable, "-c", code, shell)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_script_knows_every_command_and_its_options(scripts, capsys):
    for path in scripts.values():
        text = path.read_text(encoding="utf-8")
        for word in (*COMMANDS, "--labelled", "top_alpha", "--others", "--dry-run"):
            assert word in text
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == scripts["bash"].read_text(encoding="utf-8")


def completed(scripts, *lines):
    """What bash would offer for the last word of each line; all in one shell."""
    parts = [f"source {scripts['bash']}"]
    for line in lines:
        words = line.split(" ")
        listed = " ".join(f"'{word}'" for word in words)
        parts.append(f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; COMPREPLY=()")
        parts.append('_tyro_puorl; echo "${COMPREPLY[*]}"')
    done = run(BASH, "--norc", "-c", "\n".join(parts))
    assert (done.returncode, done.stderr) == (0, "")
    return [set(line.split()) for line in done.stdout.splitlines()]


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_bash_completes_commands_options_and_choices(scripts):
    asked = {
        "puorl ": {"-h", "--help", *COMMANDS},
        "puorl ins": {"inspect"},
        "puorl bench re": {"report"},
        "puorl filter a.csv --mo": {"--mode"},
        "puorl filter a.csv --mode ": {"hard", "top_alpha", "soft"},
        "puorl inspect a --format p": {"parquet"},
        "puorl train a --seed ": set(),
    }
    assert dict(zip(asked, completed(scripts, *asked), strict=True)) == asked


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_accepts_its_script(scripts):
    done = run("zsh", "-n", str(scripts["zsh"]))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_accepts_its_script(scripts):
    done = run("fish", "-N", "--no-execute", str(scripts["fish"]))
    assert (done.returncode, done.stderr) == (0, "")
