"""`puorl train` with wrong settings, data and folders: one clear line, and nothing is left."""

import sys
from pathlib import Path

import numpy as np
import pytest
from messages import message
from train_rows import names_in, train_rows, words

import puorl
from puorl.cli.main import main
from puorl.core.run_folder import exclusive


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    puorl.save(train_rows(), "rows.npz")
    return tmp_path


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--learner", "sac"], "'td3_bc', 'iql'"),
        (["--steps", "0"], "--steps: expected 1 or more, got 0"),
        (["--steps", "-5"], "-5"),
        (["--steps", "15", "--learner", "td3_bc"], "steps: expected a multiple of 2"),
        (["--seeds", "0"], "--seeds: expected 1 or more, got 0"),
        (["--seed", "-1"], "seed: expected a whole number"),
        (
            ["--seed", "2147483647", "--seeds", "2"],
            "seed: expected a whole number from 0 to 2147483647",
        ),
        (["--preset", "best"], "bc: expected a preset among default, got 'best'"),
        (["--set", "hiden=8"], "among actor_learning_rate, batch_size, hidden, got 'hiden'; did"),
        (["--set", "hidden=0"], "--set hidden: expected 1 or more"),
        (["--set", "hidden"], "--set: expected name=value, got 'hidden'"),
        (["--eval-every", "20"], "--eval-every: expected an --env"),
        (["--env", "hopper", "--eval-every", "0"], "--eval-every: expected 1 or more, got 0"),
        (["--env", "hopper", "--eval-episodes", "0"], "--eval-episodes: expected 1 or more"),
        (["--env", "hoper"], "hopper"),
        (
            ["--env", "walker2d"],
            "the data has 11 state and 3 action components, but walker2d/nominal has 17 and 6",
        ),
        (["--set", "hidden=8", "other.npz"], "--set: expected name=value, got 'other.npz'"),
        (["--reward", "gain"], "gain"),
        (["--logger", "tensorboard"], "pip install 'puorl[tensorboard]'"),
    ],
)
def test_wrong_settings_end_with_one_clear_message(here, capsys, monkeypatch, more, said):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    start = ["train", "rows.npz", "--learner", "bc", "--steps", "20", "--out", "run"]
    assert main([*start, *more]) == 2
    assert said in message(capsys.readouterr().err)
    assert names_in(here) == ["rows.npz"]


def test_data_that_cannot_be_learnt_from_leaves_nothing_behind(here, capsys):
    puorl.save(train_rows(reward=None), "bare.npz")
    np.savez("empty.npz", obs=np.zeros((0, 2)), action=np.zeros((0, 1)))
    (here / "text.npz").write_text("no rows at all")
    (here / "hollow").mkdir()
    (here / "run").mkdir()  # an empty folder of the user's stays
    before = names_in(here)
    for path, said in (
        ("none.npz", "none.npz: no such file or folder"),
        ("bare.npz", "expected rows with a reward, got none; name it"),
        ("empty.npz", "expected at least one row, found none"),
        ("text.npz", "text.npz"),
        ("hollow", "found a folder with none of these"),
    ):
        assert main(words("--learner", "td3_bc", data=path)) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1
        assert names_in(here) == before
        assert names_in(here / "run") == []
    assert main(["train", "--out", "run"]) == 2
    assert "need at least one path" in capsys.readouterr().err


def test_a_folder_of_others_is_left_alone_and_not_even_data_is_read(here, capsys, monkeypatch):
    monkeypatch.setattr("puorl.cli.train.read_training_set", None)
    (here / "mine").mkdir()
    (here / "mine" / "letter").write_text("precious")
    assert main(words(out="mine")) == 2
    assert "mine: expected a new or empty folder" in capsys.readouterr().err
    assert names_in(here / "mine") == ["letter"]
    assert main(words(out="mine/letter")) == 2
    assert "expected a folder, found a file" in capsys.readouterr().err
    assert (here / "mine" / "letter").read_text() == "precious"


def test_two_commands_cannot_train_in_one_folder(here, capsys):
    lock = here / ".run.lock"
    with exclusive(lock, Path("run")):
        assert main(words()) == 2
    assert "run: another run is filling this folder" in capsys.readouterr().err
    assert names_in(here) == [".run.lock", "rows.npz"]
