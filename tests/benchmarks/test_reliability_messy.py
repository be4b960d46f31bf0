"""A short form of the trial with messy CSV logs."""

import messy
import numpy as np
import pytest


@pytest.mark.parametrize("seed", range(4))
def test_logs_load_with_the_options_that_messages_name(seed):
    rows = messy.run(5, seed=seed)
    assert [row for row in rows if row["outcome"] != "right"] == []


def test_the_trial_meets_every_option_and_kind_of_mess():
    logs = [messy.make_log(np.random.default_rng([0, number])) for number in range(60)]
    options = {name for log in logs for name in log.answers}
    assert options == {"missing", "time-zone", "time-format", "decimal", "encoding"}
    assert len({mess for log in logs for mess in log.mess}) > 20


def test_the_oracle_notices_other_values(monkeypatch):
    load = messy.puorl.load

    def shifted(path, **options):
        data = load(path, **options)
        return data[1:]  # a transition is lost without a word

    monkeypatch.setattr(messy.puorl, "load", shifted)
    assert {row["outcome"] for row in messy.run(6, seed=0)} == {"wrong"}
