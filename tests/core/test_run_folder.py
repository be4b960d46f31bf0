import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from safetensors import SafetensorError

from puorl.core.errors import ConfigError, DataError
from puorl.core.run_folder import KeptRows, announce_resume, exclusive, exclusive_beside, run_folder

BASIS = {"seed": 0, "data": "abc"}


def opened(out, force=False):
    return run_folder(out, force=force, marker="made.txt")


def fail(out, *, checkpoint, **options):
    """A run that stops in the middle."""

    def work():
        with opened(out, **options) as run:
            run.begin(BASIS)
            (run.result / "half").touch()
            if checkpoint:
                run.checkpoint("fit").mkdir(parents=True, exist_ok=True)
                (run.checkpoint("fit") / "state").write_text("half way")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()


def finish(out, **options):
    with opened(out, **options) as run:
        went_on = run.begin(BASIS)
        (run.result / "made.txt").write_text("whole")
    return went_on


def test_the_folder_appears_whole_and_nothing_else_stays(tmp_path):
    out = tmp_path / "new" / "run"
    with opened(out) as run:
        assert run.begin(BASIS) is False
        (run.result / "made.txt").write_text("whole")
        assert not out.exists()
    assert [p.name for p in out.iterdir()] == ["made.txt"]
    assert [p.name for p in out.parent.iterdir()] == ["run"]


def test_a_failure_before_the_first_checkpoint_leaves_nothing(tmp_path):
    fail(tmp_path / "run", checkpoint=False)
    assert list(tmp_path.iterdir()) == []


def test_the_same_run_goes_on_from_its_checkpoint(tmp_path):
    out = tmp_path / "run"
    fail(out, checkpoint=True)
    assert not out.exists()
    with opened(out) as run:
        assert run.begin(BASIS) is True
        assert (run.checkpoint("fit") / "state").read_text() == "half way"
        assert list(run.result.iterdir()) == []  # what was half written is written anew
        (run.result / "made.txt").write_text("whole")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_other_settings_are_refused_until_forced(tmp_path):
    out = tmp_path / "run"
    fail(out, checkpoint=True)
    other = {"seed": 1, "data": "abc", "unit": "episode"}
    with pytest.raises(ConfigError) as refused, opened(out) as run:
        run.begin(other)
    assert "(seed was 0, is 1; unit was absent, is episode)" in str(refused.value)
    assert "--force" in str(refused.value)
    # The refusal cost nothing: the first run can still go on, even with --force.
    fail(out, checkpoint=True, force=True)
    with opened(out, force=True) as run:
        assert run.has_progress
        assert run.begin(other) is False
        assert not run.has_progress
        (run.result / "made.txt").touch()


def test_force_replaces_only_a_folder_of_the_same_kind(tmp_path):
    out = tmp_path / "run"
    finish(out)
    with pytest.raises(DataError, match="already exists"):
        finish(out)
    (out / "old").touch()
    finish(out, force=True)
    assert [p.name for p in out.iterdir()] == ["made.txt"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").touch()
    with pytest.raises(DataError, match="a folder of other files"):
        finish(tmp_path / "mine", force=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "run"]


def test_a_second_run_at_the_same_time_is_refused(tmp_path):
    out = tmp_path / "run"
    with opened(out) as run:
        run.begin(BASIS)
        with pytest.raises(DataError, match="another run is filling"):
            finish(out)
        (run.result / "made.txt").touch()
    assert out.is_dir()


def test_a_killed_run_does_not_hold_the_lock(tmp_path):
    out = tmp_path / "run"
    code = (
        "import os, pathlib, signal, sys; from puorl.core.run_folder import run_folder\n"
        "with run_folder(pathlib.Path(sys.argv[1]), force=False, marker='made.txt') as run:\n"
        f"    run.begin({BASIS!r})\n"
        "    run.checkpoint('fit').mkdir(parents=True)\n"
        "    (run.checkpoint('fit') / 'state').touch()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(out)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [p.name for p in tmp_path.iterdir()] == [".run.part"]
    assert finish(out) is True
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_the_current_folder_has_a_name_too(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with run_folder(type(tmp_path)("."), force=True, marker="made.txt") as run:
        assert run.work == tmp_path / ".here.part"
        run.begin(BASIS)
        (run.result / "made.txt").touch()
    assert os.listdir(tmp_path / "here") == ["made.txt"]


def test_a_planted_link_is_refused_and_what_it_shows_stays(tmp_path):
    (tmp_path / "precious" / "result").mkdir(parents=True)
    (tmp_path / "precious" / "result" / "letter.txt").write_text("kept")
    (tmp_path / ".run.part").symlink_to(tmp_path / "precious")
    with pytest.raises(DataError, match="found a link; remove it"), opened(tmp_path / "run"):
        pass
    assert (tmp_path / "precious" / "result" / "letter.txt").read_text() == "kept"


@pytest.mark.parametrize("place", [".run.3f.parts", ".run.part/checkpoint", ".run.part/a/result"])
def test_planted_links_that_would_be_filled(tmp_path, place):
    (tmp_path / "precious").mkdir()
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / "precious")
    lock = tmp_path / place.partition("/")[0] / "lock"
    with pytest.raises(DataError, match="found a link; remove it"):
        with exclusive(lock, tmp_path / "run"):
            pytest.fail("the work has begun")
    assert list((tmp_path / "precious").iterdir()) == []


def test_a_link_that_leads_nowhere_is_refused_before_the_work(tmp_path):
    (tmp_path / "run").symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match="a link to .*gone, which does not exist"):
        with opened(tmp_path / "run"):
            pytest.fail("the work has begun")


def test_a_lock_beside_a_folder_is_for_one_thread(tmp_path):
    out = tmp_path / "run"
    with exclusive_beside(out), exclusive_beside(out):  # the command, then the library
        with ThreadPoolExecutor(1) as threads:
            with pytest.raises(DataError, match="another run is filling this folder"):
                threads.submit(exclusive_beside(out).__enter__).result()
    assert list(tmp_path.iterdir()) == []


def test_kept_rows_stay_in_their_folder():
    for name in ("../kept.hdf5", "/etc/passwd", "a/b.npz", "", ".."):
        with pytest.raises(DataError, match="expected a name inside the folder"):
            KeptRows(name, 3, "0")
    assert KeptRows("kept.hdf5", 3, "0").file == "kept.hdf5"


def test_a_full_disk_keeps_what_is_done(tmp_path):
    error = SafetensorError("I/O error: No space left on device (os error 28)")
    with pytest.raises(DataError, match="No space left .* the same command goes on"):
        with announce_resume(lambda: True):
            raise error
    with pytest.raises(SafetensorError), announce_resume(lambda: False):
        raise error
    with pytest.raises(ValueError, match="a bug"), announce_resume(lambda: True):
        raise ValueError("a bug")
