"""Methods on a user's own rows: who judges, what is refused, and what the verdict says."""

import contextlib
import dataclasses
import json

import numpy as np
import pytest
import report_examples
from messages import message

import puorl
from puorl.cli.main import main
from puorl.comparison import run as comparison_run
from puorl.comparison.result import Comparison, Outcome, as_page
from puorl.comparison.run import _split
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import read_json
from puorl.core.stats import Estimate
from puorl.methods import share
from puorl.pu.filter import DomainFilter
from puorl.rl import trainer

SMALL = {"learner": "bc", "steps": 40, "hidden": (8,), "batch_size": 16}
JUDGE = {"updates": 100, "critics": 2, "hidden": (8,), "batch_size": 16, "model_updates": 20}


def two_machines(num_episodes=8, steps=8, seed=0):
    """Episodes of two machines that obey the same action in opposite ways; some of A are known."""
    rng, rows = np.random.default_rng(seed), []
    for episode in range(2 * num_episodes):
        sign = 1.0 if episode < num_episodes else -1.0
        x = rng.uniform(-1, 1)
        for step in range(steps):
            u = float(np.clip(-0.4 * sign * x + 0.3 * rng.normal(), -1, 1))
            following = 0.8 * x + 0.4 * sign * u
            known = episode < num_episodes // 2
            rows.append((x, u, following, 1 - x * x, episode, step == steps - 1, sign > 0, known))
            x = following
    x, u, following, reward, episode, timeout, ours, known = map(np.array, zip(*rows, strict=True))
    return puorl.Dataset.from_arrays(
        obs=x[:, None], action=u[:, None], reward=reward, next_obs=following[:, None],
        episode=episode, timeout=timeout.astype(bool),
        columns={"ours": ours.astype(int), "known": known.astype(int)},
    )  # fmt: skip


def outcome(name, scores, *, draws=(), **changes):
    return Outcome(name, name.upper(), 100, tuple(scores), tuple(draws), **changes)


# ---------------------------------------------------------------------------------- rows


def test_episodes_that_judge_train_nobody():
    data = two_machines()
    split, judge = _split(data, "known == 1", None, "transition", 0.5, seed=0)
    assert judge is not None
    assert len(np.unique(judge.episode)) == 2
    assert (judge.columns["known"] == 1).all()
    assert not set(judge.episode) & set(split.pool.episode)
    assert len(judge) + len(split.pool) == len(data)
    assert (split.pool.columns["known"][split.labelled] == 1).all()
    other = _split(data, "known == 1", None, "transition", 0.5, seed=3).judge
    assert set(other.episode) != set(judge.episode)


def test_in_an_environment_no_row_is_held_out():
    split, judge = _split(two_machines(), "known == 1", None, "transition", 0.0, seed=0)
    assert judge is None
    assert len(split.pool) == len(two_machines())


def test_the_truth_reaches_oracle_alone():
    split = _split(two_machines(), "known == 1", "ours == 1", "transition", 0.5, seed=0).split
    rows = puorl.methods.make("oracle").prepare(split, seed=0).rows
    assert (split.pool.columns["ours"][rows] == 1).all()
    assert len(rows) == int((split.pool.columns["ours"] == 1).sum())
    with pytest.raises(DataError, match="truth: expected it to hold for all labelled rows"):
        _split(two_machines(), "known == 1", "ours == 0", "transition", 0.5, seed=0)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"labelled": "x0 > 2"}, ConfigError, "x0"),
        ({"labelled": np.arange(128) % 7 == 0}, DataError, "4 or more episodes whose rows are all"),
        ({"methods": ["oracle"]}, ConfigError, "oracle: expected the truth"),
        ({"methods": ["best"]}, ConfigError, "method: expected one of"),
        ({"methods": []}, ConfigError, "methods: expected some"),
        ({"seeds": 0}, ConfigError, "seeds: expected 1 or more"),
        ({"held_out": 1.5}, ConfigError, "held_out: expected a fraction"),
    ],
)
def test_what_makes_no_sense_is_refused(options, error, match):
    with pytest.raises(error, match=match):
        puorl.compare(two_machines(), **({"labelled": "known == 1"} | SMALL | options))


# ------------------------------------------------------------------------------- verdict


def test_a_clear_difference_is_told():
    made = Comparison((outcome("pu", [9, 10, 11]), outcome("olp", [1, 2, 1])), "", "return")
    assert made.verdict.startswith("PU is best")
    assert made.rivals == []
    found = made.difference(*made.candidates)
    # Two means of three: variances 1 / 3 and (1 / 3) / 3, and Welch's degrees of freedom, 3.2.
    assert found.half_width == pytest.approx(3.073882 * np.sqrt(1 / 3 + 1 / 9), rel=1e-3)


def test_noise_of_the_judging_episodes_counts_unless_it_is_shared():
    shared = [-5.0, 0.0, 5.0]
    pair = (
        outcome("pu", [10, 10.1, 9.9], draws=[10 + d for d in shared]),
        outcome("olp", [8, 8.1, 7.9], draws=[8 + d for d in shared]),
    )
    assert Comparison(pair, "", "").rivals == []
    crossed = (pair[0], outcome("olp", [8, 8.1, 7.9], draws=[8 - d for d in shared]))
    made = Comparison(crossed, "", "")
    assert [each.method for each in made.rivals] == ["olp"]
    assert made.verdict.startswith("It cannot be told which is best: PU comes first")


def test_the_verdict_says_what_it_rests_on():
    alone = Comparison((outcome("pu", [1.0]), outcome("olp", [0.0])), "", "")
    assert "add seeds" in alone.verdict
    lost = Comparison((outcome("pu", []), outcome("olp", [1, 2])), "", "")
    assert lost.verdict.startswith("OLP is the only method")
    assert Comparison((outcome("pu", []),), "", "").verdict == "No method gave a policy."
    doubtful = outcome("pu", [9, 10, 11], num_doubtful=2)
    made = Comparison((doubtful, outcome("olp", [1, 2, 1])), "", "", behaviour=Estimate(20.0))
    assert "2 of its 3 values must not be trusted" in made.verdict
    assert "not above the log's own return" in made.verdict


def test_oracle_is_never_the_choice():
    best = outcome("oracle", [99, 100, 101], needs_truth=True)
    made = Comparison((outcome("pu", [9, 10, 11]), best), "", "return")
    assert [each.method for each in made.candidates] == ["pu"]
    assert "PU" in made.verdict


def test_the_page_holds_the_table_and_the_verdict():
    pair = (
        outcome("pu", [9, 10, 11], draws=(9.9, 10.0, 10.1), outside=0.25),
        outcome("olp", [1, 2, 1], draws=(1.3, 1.4, 1.3)),
    )
    notes, bar = ("only 4 episodes judge",), Estimate(5.0, 4.0, 6.0)
    made = Comparison(pair, "fqe", "return", behaviour=bar, notes=notes)
    html = as_page(made, command="puorl compare <rows>")
    for text in ("PU is best", "25%", "the log&#x27;s own return", "puorl compare &lt;rows&gt;"):
        assert text in html
    assert "only 4 episodes judge" in html


# ------------------------------------------------------------------------------ whole runs


def test_all_methods_but_the_filter_run_and_repeat_exactly():
    data = two_machines()
    names = ["olp", "sharing_all", "oracle"]
    options = {"methods": names, "truth": "ours == 1", "seeds": 2, "judge": JUDGE, **SMALL}
    first, again = (puorl.compare(data, "known == 1", **options) for _ in range(2))
    assert first.to_dict() == again.to_dict()
    assert [each.method for each in first.outcomes] == names
    assert all(len(each.scores) == 2 for each in first.outcomes)
    assert [each.num_rows for each in first.outcomes] == [16, 112, 48]
    assert first.judged_by == "blend from 2 held-out labelled episodes"
    assert "the log's own return" in str(first)


def test_progress_counts_all_groups_of_lanes(tmp_path, monkeypatch):
    shown = {}

    @contextlib.contextmanager
    def bar(name, *, total, **_):
        made = []
        yield lambda steps, note="": made.append(steps)
        shown[name] = sum(made), total

    monkeypatch.setattr("puorl.rl.run.progress_bar", bar)
    monkeypatch.setitem(trainer._MOST_LANES, "cpu", 2)
    options = SMALL | {"methods": ["olp", "sharing_all"], "seeds": 3, "judge": JUDGE}
    puorl.compare(two_machines(), "known == 1", out=tmp_path, **options)
    assert shown == {"training": (120, 120)}  # six lanes, two at a time


def test_policies_can_be_judged_in_an_environment():
    class Line:
        """A task of three steps whose reward is the action."""

        action_space = type("Space", (), {"dtype": np.float32, "low": None})()

        def reset(self, seed=None):
            self.step_number = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.step_number += 1
            return np.zeros(1, np.float32), float(action[0]), self.step_number == 3, False, {}

    seen = puorl.compare(
        two_machines(), "known == 1", methods=["olp"], seeds=2, env=Line(), episodes=2, **SMALL
    )
    assert seen.unit == "return"
    assert seen.behaviour is None
    assert len(seen.outcomes[0].scores) == 2
    assert seen.outcomes[0].num_rows == 32


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_the_command_writes_table_page_and_policies(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    puorl.save(two_machines(), "log.npz")
    words = [
        "compare", "log.npz", "--labelled", "known == 1", "--methods", "olp,sharing_all",
        "--learner", "bc", "--seeds", "2", "--steps", "40", "--set", "hidden=8", "batch_size=16",
        "--judge", "updates=100", "critics=2", "hidden=8", "batch_size=16", "model_updates=20",
        "--out", "cmp",
    ]  # fmt: skip
    assert main(words) == 0
    text, told = capsys.readouterr()
    assert "judging 4 policies from the log: 100 updates for each, 20 for all (--judge" in told
    assert "Sharing-All" in text
    assert "wrote cmp/report.html" in text
    content = read_json(tmp_path / "cmp" / "compare.json")
    assert [each["method"] for each in content["outcomes"]] == ["olp", "sharing_all"]
    assert content["verdict"] in text
    assert (tmp_path / "cmp" / "run" / "policies" / "olp-seed-1.safetensors").is_file()
    assert "puorl compare" in (tmp_path / "cmp" / "report.html").read_text(encoding="utf-8")
    assert main(words) == 2  # nothing is overwritten
    assert "cmp: already exists" in message(capsys.readouterr().err)
    with monkeypatch.context() as patch:
        patch.setattr("puorl.comparison.run.compare", interrupted)
        assert main([*words[:-1], "other"]) == 130
    said = "puorl: interrupted; nothing is stored yet: the same command begins anew\n"
    assert capsys.readouterr().err == said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cmp", "log.npz"]
    assert main([*words[:-1], "other", "--methods", "all"]) == 2
    assert "--methods: expected names among olp" in message(capsys.readouterr().err)


def test_codes_are_compared_with_bcq_in_the_place_of_td3_bc():
    data = two_machines()
    codes = np.array(["down", "up"])[(data.action[:, 0] > 0).astype(int)]
    coded = puorl.Dataset.from_arrays(
        obs=data.obs, action=codes, reward=data.reward, next_obs=data.next_obs,
        episode=data.episode, timeout=data.timeout, columns=data.columns,
    )  # fmt: skip
    small = {"steps": 20, "seeds": 2, "hidden": (8,), "batch_size": 16}
    found = puorl.compare(coded, "known == 1", methods=["olp", "sharing_all"], judge=JUDGE, **small)
    assert found.settings["learner"] == "discrete_bcq"
    assert all(np.isfinite(each.scores).all() for each in found.outcomes)


# -------------------------------------------------------------------------------- filter


def test_what_the_filter_says_of_itself_is_in_table_page_and_verdict():
    pair = (outcome("pu", [9, 10, 11]), outcome("olp", [1, 2, 1]))
    sure = Comparison(pair, "fqe", "return", filter=report_examples.clear())
    assert sure.rows()[0][-1] == "clear"
    assert sure.rows()[1][-1] == ""
    assert sure.header[-1] == "its filter says"
    assert 'class="banner good"' in as_page(sure, command="").split("The filter of PU")[0]
    assert "own filter" not in sure.verdict
    lost = dataclasses.replace(sure, filter=report_examples.cannot_tell())
    assert f"PU's own filter says: cannot tell. {lost.filter.advice}" in lost.verdict
    html = as_page(lost, command="")
    assert 'class="banner good"' not in html
    assert "The filter of PU" in html
    assert "cannot tell" in str(lost)
    content = json.loads(json.dumps(lost.to_dict()))
    assert content["filter"]["verdict"] == "cannot_tell"
    assert Comparison(pair, "", "").to_dict()["filter"] is None


class QuickFilter(DomainFilter):
    """Keeps all rows, and has a report at hand."""

    def fit(self, data, labelled=None, **options):
        self.split = data
        return self

    def filter(self, split=None):
        return puorl.TrainingSet.whole(self.split.pool)

    def metadata(self, split):
        return {}

    def report(self, split=None, **options):
        return report_examples.cannot_tell()


def test_compare_asks_its_own_filter(monkeypatch):
    monkeypatch.setattr(comparison_run, "DomainFilter", QuickFilter)
    options = {"methods": ["olp", "pu"], "seeds": 2, "judge": JUDGE, **SMALL}
    found = puorl.compare(two_machines(), "known == 1", **options)
    assert found.filter.verdict == "cannot_tell"
    assert [each.num_rows for each in found.outcomes] == [16, 112]
    assert "PU's own filter says: cannot tell" in str(found)
    assert puorl.compare(two_machines(), "known == 1", report=False, **options).filter is None


def test_one_fit_of_the_filter_serves_all_and_doubts_about_sharing_are_told(monkeypatch):
    class HalfKept(QuickFilter):
        """Keeps the labelled rows and half of the others, and counts its fits."""

        mode, fits = "hard", 0

        def fit(self, data, labelled=None, **options):
            HalfKept.fits += 1
            return super().fit(data, labelled, **options)

        def filter(self, split=None):
            rows = np.sort(np.append(self.split.labelled, self.split.unlabelled[::2]))
            return puorl.TrainingSet(self.split.pool, rows)

    monkeypatch.setattr(comparison_run, "DomainFilter", HalfKept)

    small = {"hidden": (4,), "num_members": 2, "num_steps": 2, "tolerance": 1e3}
    made = classmethod(lambda cls, given: cls(**given, **small))
    monkeypatch.setattr(share.PUShare, "configured", made)
    monkeypatch.setattr(share, "_HARDLY", 2.0)
    options = {"methods": ["pu", "pu_share"], "seeds": 2, "judge": JUDGE, "report": False}
    found = puorl.compare(two_machines(), "known == 1", **options, **SMALL)
    assert HalfKept.fits == 1
    assert [each.num_rows for each in found.outcomes] == [64, 112]
    [trusted] = [note for note in found.notes if "rows are trusted" in note]
    assert trusted.startswith("PU + sharing: ")
    assert trusted in as_page(found, command="").replace("&#x27;", "'")
    seen = dataclasses.replace(found, behaviour=None)  # judged in an environment
    assert trusted in as_page(seen, command="").replace("&#x27;", "'")


def test_what_varies_most_is_named():
    judged = [-9.0, 0.0, 9.0]
    pair = (
        outcome("pu", [10, 10.1, 9.9], draws=[10 + d for d in judged]),
        outcome("olp", [8, 8.1, 7.9], draws=[8 - d for d in judged]),
    )
    assert "More labelled episodes to judge from" in Comparison(pair, "", "").verdict
    noisy = (outcome("pu", [0, 10, 20]), outcome("olp", [5, 8, 12]))
    assert "more seeds may tell" in Comparison(noisy, "", "").verdict


def test_intervals_of_differences_hold_the_truth_as_often_as_they_say():
    """Unequal spread of policies and of judging episodes, no true difference."""
    rng, hits, number = np.random.default_rng(0), 0, 2_000
    for _ in range(number):
        one, other = rng.normal(0, 1, 3), rng.normal(0, 4, 3)
        error = rng.normal(0, 1)
        lanes = rng.normal(0, 1, 10)
        pair = (
            outcome("pu", one + error, draws=lanes + one.mean() + error),
            outcome("olp", other, draws=np.full(10, other.mean())),
        )
        made = Comparison(pair, "", "")
        hits += made.difference(*pair).low <= 0 <= made.difference(*pair).high
    assert 0.93 < hits / number < 0.99
