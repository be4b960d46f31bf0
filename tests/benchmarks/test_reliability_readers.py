"""A short form of the long trial of all readers with damaged and hostile inputs."""

import pytest
import readers


@pytest.mark.parametrize("reader", readers.READERS)
def test_refused_or_right(reader):
    outcomes, failures = readers.run(reader, seed=100, count=25)
    assert failures == []
    assert outcomes.total() == 25
    assert outcomes["told"] > 0


def test_the_oracle_notices_other_values(monkeypatch):
    monkeypatch.setattr("puorl.core.hashing.check", lambda *_, **__: None)
    outcomes, _ = readers.run("hdf5 of puorl", seed=0, count=60)
    assert outcomes["wrong"] > 0
