import threading

import pytest

from puorl.rl.run import background_task


def test_one_thing_is_done_after_the_other_and_all_at_the_end():
    done, go = [], threading.Event()

    def first():
        assert go.wait(60)
        done.append("first")

    with background_task() as task:
        task.start(first)
        assert done == []
        go.set()
        task.start(lambda: done.append("second"))
        assert done[0] == "first"
    assert done == ["first", "second"]


def test_an_error_is_raised_where_the_next_thing_begins_or_at_the_end():
    def fail():
        raise ValueError("no room")

    with background_task() as task:
        task.start(fail)
        with pytest.raises(ValueError, match="no room"):
            task.start(lambda: None)
    with pytest.raises(ValueError, match="no room"), background_task() as task:
        task.start(fail)


def test_what_was_begun_is_done_even_after_an_error():
    done, go = [], threading.Event()

    def slowly():
        assert go.wait(60)
        done.append("kept")

    def training():
        with background_task() as task:
            task.start(slowly)
            go.set()
            raise KeyError("training")

    with pytest.raises(KeyError):
        training()
    assert done == ["kept"]


def test_of_two_errors_the_earlier_one_is_told():
    def fail():
        raise OSError("disk full")

    def training():
        with background_task() as task:
            task.start(fail)
            raise ValueError("training")

    with pytest.raises(OSError, match="disk full"):
        training()
