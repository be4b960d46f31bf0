"""`puorl.compare`: train every method on a user's own rows, and judge all policies alike.

With a simulator the policies act in it. Without one, labelled episodes are held out before any
method sees the data, and off-policy evaluation judges from these alone.
"""

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from puorl.comparison.result import Comparison, Outcome
from puorl.core.errors import ConfigError, DataError, TrainingError
from puorl.core.formatting import check_positive, parse_count
from puorl.core.hashing import checked_seed, generator
from puorl.core.progress import progress_bar
from puorl.data.dataset import Dataset
from puorl.data.parts import Draw, labelled_mask
from puorl.data.split import HiddenTruth, PUSplit
from puorl.data.training_set import TrainingSet
from puorl.envs.evaluate import evaluate as simulate
from puorl.methods.base import METHODS, Method, find
from puorl.methods.pu import PU
from puorl.methods.share import doubts
from puorl.ope.config import OPEConfig
from puorl.ope.offline import DEFAULT
from puorl.ope.offline import evaluate as judge_offline
from puorl.pu.filter import DomainFilter
from puorl.pu.machines.report import MachineReport
from puorl.pu.report import FilterReport
from puorl.pu.units import held_out_unit, parse_unit
from puorl.rl import learner as learners
from puorl.rl import trainer
from puorl.rl.policy import Policy
from puorl.rl.run import (
    RunSpec,
    TrainProgress,
    TrainResult,
    checkpoint_interval,
    run,
    run_in_memory,
)

_FEWEST_EPISODES = 4
"""Labelled episodes without which none can be held out to judge."""


class _Rows(NamedTuple):
    split: PUSplit
    judge: Dataset | None
    """Held-out labelled episodes; None where an environment judges."""


def compare(
    data: Dataset,
    labelled: np.ndarray | str | None = None,
    *,
    methods: Sequence[str] | None = None,
    learner: str = "td3_bc",
    seeds: int = 3,
    steps: int | str = 20_000,
    unit: str = "transition",
    held_out: float = 0.5,
    truth: np.ndarray | str | None = None,
    env: Any = None,
    episodes: int = 20,
    gamma: float = 0.99,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    progress: bool = False,
    judge: Mapping[str, Any] | None = None,
    report: bool = True,
    **settings: Any,
) -> Comparison:
    """Train every method on the same rows with several seeds, and say which is best, or cannot be.

    Args:
        data: Rows with rewards; some are labelled as the target's.
        labelled: (n,) bool or a condition; by default the column of ``load(label=...)``.
        methods: Names in `METHODS`; by default the paper's, Oracle only where ``truth`` is given.
        learner: Learning algorithm, the same for all methods; where actions are discrete, BCQ is
            taken for the default.
        seeds: Policies of each method; at least two for intervals.
        steps: Updates of each policy.
        unit: What the PU filter decides about, as for `DomainFilter`.
        held_out: Fraction of the labelled episodes that judges and trains nobody, without ``env``.
        truth: (n,) bool or a condition: rows that truly are the target's, for Oracle alone.
        env: Domain or gymnasium environment of the target to judge in, instead of the log.
        episodes: Episodes of each policy there.
        gamma: Discount of off-policy evaluation.
        seed: Decides all randomness.
        out: Folder in which the training is kept, and resumed after a kill.
        progress: Show bars.
        judge: Settings of off-policy evaluation, fields of `puorl.ope.OPEConfig`.
        report: Let PU's filter report on its own choice, too; by rows that takes longer than to fit
            it.
        **settings: Fields of the learner's config.

    Raises:
        ConfigError: Unknown methods or settings.
        DataError: No rewards, too few labelled episodes to hold some out, or no truth for Oracle.
        TrainingError: All policies of all methods were given up.
    """
    total = parse_count(steps, name="steps")
    check_positive("seeds", seeds)
    checked_seed(seed + seeds - 1)
    names = _method_names(methods, has_truth=truth is not None)
    learner = form_for(learner, data)
    made = learners.make(learner, num_steps=total, **settings)
    trainer.check_steps(made, steps=total)
    rows = _split(data, labelled, truth, unit, held_out if env is None else 0.0, seed)
    folder = None if out is None else Path(out)
    sets, about = _prepare(names, rows.split, unit, seed, folder, report=report, progress=progress)
    spec = RunSpec(
        made,
        sets,
        {name: range(seed, seed + seeds) for name in sets},
        total,
        checkpoint_interval(made, total),
    )
    at = None if folder is None else folder / "run"
    course = TrainProgress(at, spec)
    with course.bar(show=progress):
        if at is None:
            result = run_in_memory(spec, on_checkpoint=course.on_checkpoint)
        else:
            result = run(at, spec, on_checkpoint=course.on_checkpoint)
    if not result.policies:
        raise TrainingError(
            "compare: every policy of every method was given up; look at the size of the rewards "
            "with `puorl inspect`"
        )
    by_method = _by_method(names, result)
    described = {
        "learner": learner, "steps": total, "seeds": seeds, "unit": unit, "seed": seed,
        "data": data.fingerprint, "split": rows.split.fingerprint,
    }  # fmt: skip
    if rows.judge is None:
        made = _in_environment(by_method, sets, env, episodes, described)
    else:
        made = _from_log(by_method, sets, rows.judge, gamma, judge, progress, described)
    said = tuple(
        f"{METHODS[name].title}: {doubt}"
        for name, chosen in sets.items()
        for doubt in doubts(chosen.metadata)
    )
    return dataclasses.replace(made, filter=about, notes=(*made.notes, *said))


def form_for(learner: str, data: Dataset) -> str:
    """Return the form of a learner for the data's actions, BCQ for TD3+BC if they are discrete."""
    discrete = data.action_codes is not None
    return learners.form_of(
        "bcq" if discrete and learner == "td3_bc" else learner, data.action_codes
    )


def _method_names(methods: Sequence[str] | None, *, has_truth: bool) -> list[str]:
    if methods is None:
        usual = {name: entry for name, entry in METHODS.items() if entry.is_published}
        return [name for name, entry in usual.items() if has_truth or not entry.needs_truth]
    for name in methods:
        find(name)
        if METHODS[name].needs_truth and not has_truth:
            raise ConfigError(
                f"{name}: expected the truth of all rows, got none; give truth=, or leave it out"
            )
    if not methods:
        raise ConfigError(f"methods: expected some among {', '.join(METHODS)}, got none")
    return [name for name in METHODS if name in methods]


def _split(
    data: Dataset,
    labelled: np.ndarray | str | None,
    truth: np.ndarray | str | None,
    unit: str,
    held_out: float,
    seed: int,
) -> _Rows:
    """Hold labelled episodes out, and make a split of the other rows."""
    if data.reward is None:
        raise DataError("compare: expected rows with a reward, got none; name its column")
    mask = labelled_mask(data, labelled)
    kept, judge = np.ones(len(data), bool), None
    if held_out:
        chosen = _judges(data, mask, held_out, seed)
        judge, kept = data[chosen], ~chosen
    parts = held_out_unit("auto", parse_unit(unit))
    split = PUSplit.from_mask(data[kept], mask[kept], unit=parts, seed=seed)
    if truth is not None:
        true = (data.where(truth) if isinstance(truth, str) else np.asarray(truth, bool))[kept]
        if not true[split.labelled].all():
            raise DataError("truth: expected it to hold for all labelled rows, got some where not")
        num = len(split.pool)
        part = np.zeros(num, np.int8)
        origin = Draw(np.where(true, 0, 1).astype(np.int32), np.arange(num), part, 0)
        split = dataclasses.replace(split, truth=HiddenTruth(origin))
    return _Rows(split, judge)


def _judges(data: Dataset, mask: np.ndarray, held_out: float, seed: int) -> np.ndarray:
    """(n,) bool. Rows of the labelled episodes that judge."""
    if not 0.0 < held_out < 1.0:
        raise ConfigError(f"held_out: expected a fraction between 0 and 1, got {held_out}")
    episode = np.zeros(len(data), np.int64) if data.episode is None else data.episode
    whole = np.setdiff1d(episode[mask], episode[~mask])
    if len(whole) < _FEWEST_EPISODES:
        raise DataError(
            f"compare: expected {_FEWEST_EPISODES} or more episodes whose rows are all labelled, "
            f"to hold some out, got {len(whole)}; label more episodes, name their column, or judge "
            "in an environment with env="
        )
    number = min(max(2, round(held_out * len(whole))), len(whole) - 2)
    # The stream keeps the name it was first given: another one would hold out other episodes.
    chosen = generator(seed, "trial", "judges").permutation(whole)[:number]
    return np.isin(episode, chosen)


def _prepare(
    names: Sequence[str],
    split: PUSplit,
    unit: str,
    seed: int,
    folder: Path | None,
    *,
    report: bool,
    progress: bool,
) -> tuple[dict[str, TrainingSet], FilterReport | MachineReport | None]:
    """Let every method prepare its rows; return also what PU's filter says about its choice."""
    sets, about, fitted = {}, None, None
    with progress_bar("methods", total=len(names), unit="methods", show=progress) as advance:
        for name in names:
            kind, store = find(name), None
            if folder is not None and METHODS[name].resumable:
                store = folder / f".{name}"
            if name == PU.name:
                fitted = DomainFilter(unit=unit).fit(split, seed=seed, checkpoint=store)
                sets[name] = PU(filter=fitted).prepare(split, seed=seed)
                if report:
                    about = fitted.report(
                        seed=seed, checkpoint=None if store is None else store / "report"
                    )
            else:
                settings = {field.name for field in dataclasses.fields(kind)}
                given = {"unit": unit} if "unit" in settings else {}
                if fitted is not None and "filter" in settings:
                    given = {"filter": fitted}  # that of PU: one fit serves all
                method: Method = kind.configured(given)
                options: dict[str, Any] = {} if store is None else {"checkpoint": store}
                sets[name] = method.prepare(split, seed=seed, **options)
            advance(1, name)
    return sets, about


def _by_method(names: Sequence[str], result: TrainResult) -> dict[str, dict[str, Policy]]:
    if len(names) == 1:
        return {names[0]: result.policies}
    return {
        name: {lane: p for lane, p in result.policies.items() if lane.startswith(f"{name}-seed-")}
        for name in names
    }


def _outcome(
    name: str, num_rows: int, scores: Sequence[float], num_seeds: int, **found: Any
) -> Outcome:
    return Outcome(
        method=name,
        title=METHODS[name].title,
        num_rows=num_rows,
        scores=tuple(map(float, scores)),
        num_stopped=num_seeds - len(scores),
        needs_truth=METHODS[name].needs_truth,
        **found,
    )


def _in_environment(
    by_method: Mapping[str, Mapping[str, Policy]],
    sets: Mapping[str, TrainingSet],
    env: Any,
    episodes: int,
    described: Mapping[str, Any],
) -> Comparison:
    outcomes, text = [], str(env)
    for name, policies in by_method.items():
        scores: Sequence[float] = ()
        if policies:
            seen = simulate(list(policies.values()), env, episodes=episodes, seed=described["seed"])
            scores, text = seen.mean.tolist(), seen.env
        outcomes.append(_outcome(name, len(sets[name]), scores, described["seeds"]))
    return Comparison(
        tuple(outcomes),
        judged_by=f"{episodes} episodes in {text}",
        unit="return",
        settings=dict(described) | {"env": text, "episodes": episodes},
    )


def _from_log(
    by_method: Mapping[str, Mapping[str, Policy]],
    sets: Mapping[str, TrainingSet],
    judge: Dataset,
    gamma: float,
    settings: Mapping[str, Any] | None,
    progress: bool,
    described: Mapping[str, Any],
) -> Comparison:
    policies = {lane: policy for own in by_method.values() for lane, policy in own.items()}
    if progress:
        config = OPEConfig.of(settings or {})
        sys.stderr.write(
            f"judging {len(policies):,} policies from the log: {config.updates:,} updates for "
            f"each, {config.model_updates:,} for all (--judge updates=... model_updates=...)\n"
        )
    seen = judge_offline(
        policies,
        judge,
        gamma=gamma,
        estimators=[DEFAULT],
        seed=described["seed"],
        progress=progress,
        **(settings or {}),
    )
    outcomes = []
    for name, own in by_method.items():
        values = [seen.values[lane][DEFAULT] for lane in own]
        found: dict[str, Any] = {}
        if values:
            found = {
                "draws": tuple(np.mean([value.draws for value in values], axis=0).tolist()),
                "num_doubtful": sum(value.is_doubtful for value in values),
                "outside": float(np.mean([seen.outside[lane] for lane in own])),
            }
        scores = [value.estimate.value for value in values]
        outcomes.append(_outcome(name, len(sets[name]), scores, described["seeds"], **found))
    return Comparison(
        tuple(outcomes),
        judged_by=f"{DEFAULT} from {seen.num_episodes} held-out labelled episodes",
        unit=f"discounted return ({gamma:g} a step)",
        behaviour=seen.behaviour.estimate,
        notes=seen.notes,
        settings=dict(described) | {"gamma": gamma, "ope": dict(seen.settings)},
    )
