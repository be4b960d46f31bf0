"""The short form of benchmarks/reliability: every kind of file, and one full disk."""

import random

import own_files
import processes
import pytest

from puorl.core.errors import PuorlError


@pytest.mark.parametrize("name", own_files.KINDS)
def test_no_damage_is_silent(name):
    found = own_files.fuzz(name, 35, seed=1)
    assert (found["wrong"], found["traceback"], found["bad"]) == (0, 0, [])
    assert found["told"] > found["inputs"] / 2


def test_the_fuzzer_sees_what_is_silent(monkeypatch):
    made, read = own_files.KINDS["policy"]

    def guess(folder):
        try:
            return read(folder)
        except PuorlError:
            return "other values"

    monkeypatch.setitem(own_files.KINDS, "policy", own_files.Kind(made, guess))
    found = own_files.fuzz("policy", 35, seed=1)
    assert found["wrong"] > 30
    assert found["bad"]


def test_damage_is_of_every_sort():
    content, seen = bytes(range(256)), {}
    for how, damaged in own_files.damages(content, random.Random(0)):
        seen.setdefault(how, damaged)
        if len(seen) == 6:
            break
    assert set(seen) == {"bit", "zeros", "bytes", "cut", "longer", "exchanged"}


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # a limit is set after the fork
def test_a_full_disk_ends_in_one_line_and_the_command_goes_on():
    [trial] = processes.disturb("collect", "full disk", 1, seed=1)
    assert processes.is_good(trial), trial
    assert trial["left_with"] == "2"
    assert "File too large" in trial["error"]
