import json
import logging

import puorl
from puorl.envs import collect


def test_every_published_dataset_is_recorded():
    assert len(collect.recorded()) == 45


def test_only_another_content_of_a_known_recipe_is_reported(caplog):
    recipe, content = next(iter(collect.recorded().items()))
    with caplog.at_level(logging.WARNING):
        assert collect.compare(recipe, content) is None
        assert collect.compare("unknown", "x") is None
        assert not caplog.records
        note = collect.compare(recipe, "0" * 32)
    assert note is not None
    assert note.startswith("content 000000000000 differs")
    assert caplog.messages == [note]


def test_collected_data_carries_the_note(monkeypatch, caplog):
    settings = {"env": "hopper", "quality": "random", "rows": 200, "seed": 0, "cache": False}
    plain = puorl.collect(**settings)
    recipe = plain.provenance.recipe["recipe"]
    monkeypatch.setattr(collect, "recorded", lambda: {recipe: "f" * 32})
    told = puorl.collect(**settings)
    assert told.fingerprint == plain.fingerprint
    assert any("differs from the recorded ffffffffffff" in note for note in told.provenance.notes)
    assert json.dumps(told.provenance.to_dict())
