"""How to make it all again: the commands that the folders stand for, versions and hashes."""

import dataclasses
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from puorl import __version__
from puorl.cli.filter import Filter
from puorl.core.errors import ConfigError
from puorl.html import page
from puorl.html.page import Markup, escape
from puorl.report.run_folders import Filtering, Material, Training

_LANE = re.compile(r"seed-(\d+)")
_NAMED = {"paths", "labelled", "out", "force", "data"}
"""Arguments of a filter that are written first, or do not change what it makes."""


def reproduce_section(material: Material, command: str) -> Markup:
    """Commands, versions and hashes of all that was named."""
    commands = [filter_command(each) for each in material.filterings]
    commands += [train_command(each, material.filterings) for each in material.trainings]
    for each in (seen for seen in material.evaluations if seen.command == "evaluate"):
        paths = dict.fromkeys(scored.group or scored.policy for scored in each.policies)
        words = ["--env", each.env, "--episodes", str(each.episodes), "--seed", str(each.seed)]
        commands.append(shlex.join(["puorl", "evaluate", *paths, *words, "--out", each.path]))
    commands += [
        shlex.join(["puorl", "bench", "run", "SUITE", "--out", each.path])
        for each in material.benchmarks
    ]
    commands.append(command)
    # Lines that are to be copied are not broken; a box that scrolls must be reachable by keyboard.
    told = Markup(
        '<pre style="white-space:pre;overflow-x:auto;margin-bottom:.8rem" tabindex="0" '
        f'role="region" aria-label="Commands">\n{escape(chr(10).join(commands))}</pre>'
    )
    return page.section(
        "How to reproduce this",
        page.paragraph("The same commands, versions and rows give the same numbers."),
        told,
        *map(page.paragraph, _gaps(material)),
        page.table("Versions", ("What", "Value"), _versions(material)),
        page.folded("All settings as JSON", json.dumps(_settings(material), indent=2)),
    )


def filter_command(filtering: Filtering) -> str:
    """The command that made a folder, from the arguments that it recorded."""
    asked = filtering.settings.arguments
    words = ["puorl", "filter", *filtering.settings.paths, "--labelled"]
    words.append(str(asked.get("labelled", "")))
    defaults = {each.name: each.default for each in dataclasses.fields(Filter)}
    for name, value in asked.items():
        if name not in _NAMED and value != defaults.get(name):
            words += [_option(name)] if value is True else [_option(name), str(value)]
    fields = asked.get("data", {})
    words += _given(fields) if isinstance(fields, Mapping) else []
    return shlex.join([*words, "--out", str(asked.get("out", filtering.path))])


def train_command(training: Training, filterings: Sequence[Filtering]) -> str:
    """The command that would train the same policies; DATA where it is not known from what."""
    plan, asked = training.plan, training.asked
    source = source_of(training, filterings)
    paths = asked.paths or ("DATA",) if source is None else (source.path,)
    words = ["puorl", "train", *paths, "--learner", plan.learner]
    seeds = [int(match[1]) for name in training.lanes if (match := _LANE.fullmatch(name))]
    words += ["--seeds", str(len(training.lanes))]
    words += ["--seed", str(min(seeds))] if seeds and min(seeds) else []
    words += ["--steps", str(plan.steps)]
    changed = _changed(plan.learner, plan.config)
    if changed:
        words += ["--set", *(f"{name}={_text(value)}" for name, value in changed.items())]
    words += _given(asked.fields) if source is None else []
    if asked.env is not None:
        told = {"env": asked.env} | {n: getattr(asked, n) for n in ("eval_every", "eval_episodes")}
        words += _given({name: value for name, value in told.items() if value is not None})
    return shlex.join([*words, "--out", training.path])


def _given(options: Mapping[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (_option(name), str(value))]


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def source_of(training: Training, filterings: Sequence[Filtering]) -> Filtering | None:
    """The filter whose kept rows a run learnt from, known by their fingerprint."""
    same = (each for each in filterings if each.settings.kept.fingerprint == training.plan.data)
    return next(same, None)


def _changed(learner: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that are not the learner's own; all of them where it is not known here."""
    from puorl.rl.learner import presets  # loads jax

    try:
        usual = dataclasses.asdict(presets(learner)["default"])
    except ConfigError:
        return dict(config)
    return {n: value for n, value in config.items() if _text(value) != _text(usual.get(n))}


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _gaps(material: Material) -> list[str]:
    """What the folders do not say, and a reader needs."""
    said = []
    for each in material.trainings:
        if not each.asked.paths and source_of(each, material.filterings) is None:
            said.append(
                f"{each.path}/: DATA stands for rows with the fingerprint {each.plan.data}; the "
                "folder does not say by which paths they were read, and no filter named here kept "
                "them."
            )
    if any(not each.asked.paths for each in material.trainings):
        said.append(
            "Whether policies were evaluated while they were trained is not recorded everywhere; "
            "it does not change them."
        )
    if material.benchmarks:
        said.append("Which suite a benchmark was is not recorded; puorl bench list names them.")
    return said


def _versions(material: Material) -> list[tuple[str, str]]:
    found = [(f"puorl filter: {each.path}", each.settings.versions) for each in material.filterings]
    found += [(f"puorl train: {each.path}", each.record.versions) for each in material.trainings]
    rows = [(name, ", ".join(f"{k} {v}" for k, v in versions.items())) for name, versions in found]
    rows = [(name, text or "not recorded") for name, text in rows]
    for each in material.benchmarks:
        seen = [row.get("versions") or {} for row in each.report.results.rows]
        texts = dict.fromkeys(f"{k} {v}" for versions in seen for k, v in versions.items())
        rows.append((f"puorl bench run: {each.path}", ", ".join(texts) or "not recorded"))
    return [*rows, ("this page", f"puorl {__version__}")]


def _settings(material: Material) -> dict[str, Any]:
    filters = {each.path: dataclasses.asdict(each.settings) for each in material.filterings}
    runs = {
        each.path: {
            "plan": dataclasses.asdict(each.plan),
            "record": dataclasses.asdict(each.record),
        }
        for each in material.trainings
    }
    return {name: part for name, part in (("filter", filters), ("train", runs)) if part}
