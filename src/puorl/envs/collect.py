"""Collect data: play behaviour policies in a domain and record the rows; keep them in a cache."""

import itertools
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError, PuorlError
from puorl.core.files import read_json, write_json
from puorl.core.formatting import parse_count
from puorl.core.progress import progress_bar
from puorl.core.resources import cache_folder, require_memory
from puorl.data.dataset import Dataset
from puorl.data.formats import load, save
from puorl.data.transitions import Provenance, Transitions
from puorl.envs import behaviour, bodies
from puorl.envs.domains import DomainSpec, parse_domain
from puorl.envs.domains import domain as domain_spec
from puorl.envs.evaluate import normalised_score
from puorl.envs.record import Recorded, record
from puorl.nn.numpy_mlp import SquashedGaussianActor

_log = logging.getLogger(__name__)


class Cache:
    """A folder of datasets named by the hash of their recipe; safe for several processes.

    Files are written under another name and renamed, and a recipe always makes the same bytes on
    one machine, so it does not matter which process comes last.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = cache_folder() if folder is None else Path(folder)

    def path(self, recipe: str) -> Path:
        """Return the file of a recipe's rows; a JSON file of the same name has their hash."""
        return self.folder / f"{recipe}.hdf5"

    def read(self, recipe: str) -> Dataset | None:
        """Return the rows of a recipe, or None if they are missing or damaged (logged)."""
        path = self.path(recipe)
        note = path.with_suffix(".json")
        if not (path.exists() and note.exists()):
            return None
        try:
            expected = read_json(note)["content"]
            dataset = load(path)
            found = dataset.provenance.recipe or {}
            if dataset.fingerprint != expected or found.get("recipe") != recipe:
                raise DataError("its content is not as recorded")
        except (PuorlError, KeyError, TypeError) as error:
            _log.warning("%s: damaged, collected again (%s)", path, error)
            return None
        # Names within the cache's file say nothing of the rows: the same as when just collected.
        return replace(dataset, provenance=replace(dataset.provenance, keys=()))

    def write(self, recipe: str, dataset: Dataset) -> None:
        """Store the rows of a recipe; log a line if that is impossible."""
        path = self.path(recipe)
        try:
            save(dataset, path, force=True)
            write_json(path.with_suffix(".json"), {"content": dataset.fingerprint}, force=True)
        except (OSError, PuorlError) as error:
            _log.warning("%s: not kept for later (%s)", path, error)


def compare(recipe: str, content: str) -> str | None:
    """Return and log a sentence if the recorded content of this recipe is another one."""
    expected = recorded().get(recipe)
    if expected is None or expected == content:
        return None
    note = (
        f"content {content[:12]} differs from the recorded {expected[:12]} of recipe "
        f"{recipe[:12]}: this machine's last bits are others; statistics should agree"
    )
    _log.warning("%s", note)
    return note


@cache
def recorded() -> dict[str, str]:
    """Return the shipped content hashes by recipe (benchmarks/behaviour/draw.py writes them)."""
    return json.loads((files("puorl.envs") / "contents.json").read_text(encoding="utf-8"))


Quality = Literal["random", "medium", "medium-replay", "medium-expert", "expert"]
QUALITIES: tuple[str, ...] = get_args(Quality)

_COLLECTOR = 1
"""Version of the collector: raise it when the same recipe gives other rows."""


@dataclass(frozen=True)
class _Player:
    """A policy that acts, and its name."""

    name: str
    policy: Any
    fingerprint: str | None
    """None for a policy object that has none."""
    home: str | None = None
    """Domain in which it was trained, if known."""


def collect(
    env: str,
    domain: str | DomainSpec = "nominal",
    quality: str = "medium",
    rows: int | str = 1_000_000,
    seed: int = 0,
    *,
    policy: Any = None,
    policy_domain: str | None = None,
    policy_version: int | None = None,
    horizon: int | None = None,
    threads: int | None = None,
    cache: bool | str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Dataset:
    """Play behaviour policies in a domain and record the rows, as D4RL does.

    The same arguments give the same bytes on one machine, whatever the number of threads. Episodes
    are whole and in order; the last one of each policy may be cut to make the number of rows exact,
    and is then marked as a timeout. Joint noise acts on the executed action; the policy's own
    action is recorded.

    Args:
        env: The body: ``hopper``, ``halfcheetah`` or ``walker2d``.
        domain: Its shifts, such as ``body_mass`` or ``gravity=0.5``.
        quality: ``random`` (uniform actions), ``medium``, ``expert``, ``medium-expert`` (half and
            half by rows), or ``medium-replay`` (equal rows from snapshots of a policy in training
            up to the medium level, in place of a replay buffer).
        rows: Number of rows, e.g. ``"1M"``.
        seed: Seed of the random streams; other domains and policies have streams of their own.
        policy: Policy to use instead of those of ``quality``: a policy file, or an object with
            ``act(obs) -> action``.
        policy_domain: Domain in which the policies were trained; ``domain`` itself by default.
            With ``nominal``, the same controller acts in both domains.
        policy_version: Version of the policies of ``quality``; the standard one if None.
        horizon: Steps after which an episode is cut and marked as a timeout; the task's own 1,000
            if None.
        threads: Cores to use; all if None.
        cache: Folder of the cache; ``$PUORL_CACHE`` or the user's cache folder if None, no cache if
            False. A policy object without a ``fingerprint`` is never cached.
        progress: Show a progress bar if there is a terminal.

    Raises:
        ConfigError: An unknown body, domain, quality, policy or version, an impossible number, or
            more rows than fit into memory.
        DataError: The file holds no policy, or the policy's actions do not fit.
    """
    spec = domain if isinstance(domain, DomainSpec) else domain_spec(env, domain)
    if spec.body != parse_domain(env).body:
        raise ConfigError(f"domain: expected one of {env}, got one of {spec.body}")
    players = _players(spec, quality, policy, policy_domain, policy_version)
    num_rows = parse_count(rows, name="rows")
    if num_rows < len(players):
        raise ConfigError(
            f"rows: expected at least one for each policy ({len(players)}), got {rows}"
        )
    # Twice: as they were played, and put in order.
    need = 2 * row_bytes(spec) * num_rows
    require_memory(need, f"rows {num_rows:,}", repair="take fewer rows")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed: expected a whole number, 0 or above, got {seed!r}")
    named = quality if policy is None else None
    recipe = _recipe(spec, named, players, num_rows, int(seed), _checked_horizon(spec, horizon))
    # Without the policy's fingerprint two recipes could look alike and mean different data.
    known = all(player.fingerprint is not None for player in players)
    store = None if cache is False or not known else Cache(None if cache is True else cache)
    if store and (kept := store.read(recipe["recipe"])):
        return kept
    made = _play(spec, players, recipe, threads=threads, progress=progress)
    if known and (difference := compare(recipe["recipe"], made.fingerprint)):
        notes = (*made.provenance.notes, difference)
        made = replace(made, provenance=replace(made.provenance, notes=notes))
    if store:
        store.write(recipe["recipe"], made)
    return made


def row_bytes(spec: DomainSpec) -> int:
    """Return the bytes of a recorded row, in memory and on disk."""
    body = bodies.body(spec.body)
    # States before and after, the action and the reward as float32, two flags, the episode.
    return 4 * (2 * body.obs_dim + body.act_dim + 1) + 2 + 8


def _players(
    spec: DomainSpec,
    quality: str,
    policy: Any,
    policy_domain: str | None,
    version: int | None,
) -> list[_Player]:
    """Return the policies that act, in order; all get the same number of rows."""
    if policy is not None:
        if version is not None:
            raise ConfigError("policy_version: expected none together with policy=, got both")
        if policy_domain is not None:
            raise ConfigError("policy_domain: expected none together with policy=, got both")
        return [_given(spec, policy)]
    quality = quality.replace("_", "-")
    if quality not in QUALITIES:
        raise ConfigError(f"quality: expected one of {', '.join(QUALITIES)}, got {quality!r}")
    home = policy_domain or spec.name
    if quality == "medium-replay":
        if policy_domain not in (None, "nominal"):
            raise ConfigError(
                f"policy_domain: expected nominal for medium-replay, got {policy_domain!r}; "
                "snapshots are kept of nominal policies only"
            )
        return [_shipped(spec, "nominal", level, version) for level in behaviour.ladder(spec.body)]
    levels = ("medium", "expert") if quality == "medium-expert" else (quality,)
    return [_shipped(spec, home, level, version) for level in levels]


def _shipped(spec: DomainSpec, home: str, level: str, version: int | None) -> _Player:
    if level == "random":
        policy = behaviour.behaviour(spec.body, level=level)
        return _Player(level, policy, policy.fingerprint)
    try:
        behaviour.find(spec.body, home, level)
    except ConfigError as error:
        raise ConfigError(
            f"{error}: name the domain whose policies shall act, such as policy_domain='nominal' "
            "(--policy-domain nominal)"
        ) from error
    found = behaviour.find(spec.body, home, level, version=version)
    return _Player(found.name, SquashedGaussianActor.load(found.path), found.fingerprint, home)


def _given(spec: DomainSpec, policy: Any) -> _Player:
    if isinstance(policy, str | os.PathLike):
        policy = SquashedGaussianActor.load(policy)
    if not callable(getattr(policy, "act", None)):
        raise ConfigError(
            f"policy: expected a policy file or an object with act(obs), got {policy!r}"
        )
    body = bodies.body(spec.body)
    expected = (body.obs_dim, body.act_dim)
    sizes = (getattr(policy, "obs_dim", body.obs_dim), getattr(policy, "act_dim", body.act_dim))
    if sizes != expected:
        raise ConfigError(
            f"policy: expected states and actions of sizes {expected} ({body.name}), got {sizes}; "
            "it was made for another body"
        )
    # Not named by its file: the same policy must have the same recipe wherever it lies.
    mark = getattr(policy, "fingerprint", None)
    return _Player(type(policy).__name__ if mark is None else f"policy {mark[:12]}", policy, mark)


def _recipe(
    spec: DomainSpec,
    quality: str | None,
    players: Sequence[_Player],
    num_rows: int,
    seed: int,
    horizon: int | None,
) -> dict[str, Any]:
    """Return all that decides the rows, JSON-ready, with its hash."""
    ends = [num_rows * i // len(players) for i in range(len(players) + 1)]
    settings: dict[str, Any] = {
        "body": spec.body,
        "domain": spec.to_dict(),
        "quality": None if quality is None else quality.replace("_", "-"),
        "policies": [
            {"name": player.name, "fingerprint": player.fingerprint, "rows": end - start}
            for player, (start, end) in zip(players, itertools.pairwise(ends), strict=True)
        ],
        "rows": num_rows,
        "seed": seed,
        "mujoco": version("mujoco"),
        "collector": _COLLECTOR,
    }
    # Only where it is set: recipes made before there was a horizon keep their names.
    if horizon is not None:
        settings["horizon"] = horizon
    return {"recipe": hashing.of_settings(settings), **settings}


def _play(
    spec: DomainSpec,
    players: Sequence[_Player],
    recipe: Mapping[str, Any],
    *,
    threads: int | None,
    progress: bool,
) -> Dataset:
    # With the plain seed, two domains would have the same start states and the same noise.
    shift = {**spec.to_dict(), "name": None}
    parts: list[Recorded] = []
    with progress_bar(spec.text, total=recipe["rows"], show=progress) as advance:
        for player, entry in zip(players, recipe["policies"], strict=True):
            stream = {"seed": recipe["seed"], "domain": shift, "policy": player.fingerprint}
            made = record(
                spec,
                player.policy,
                entry["rows"],
                seed=int(hashing.of_settings(stream)[:16], 16),
                horizon=recipe.get("horizon"),
                threads=threads,
                advance=advance,
            )
            parts.append(made)
    notes = [
        f"the policies learnt in {home} and acted in {spec.name}"
        for home in sorted({player.home for player in players if player.home})
        if home != spec.name
    ]
    notes += [
        f"the last episode of {player.name} was cut after {part.cut} rows and marked as a timeout"
        for player, part in zip(players, parts, strict=True)
        if part.cut is not None
    ]
    act_dim = bodies.body(spec.body).act_dim
    provenance = Provenance(
        source=("puorl collect",),
        format="collected",
        domain=spec.text,
        behaviour=recipe["quality"] or players[0].name,
        recipe=dict(recipe),
        action_range=((-1.0,) * act_dim, (1.0,) * act_dim),
        notes=tuple(notes),
    )
    *fields, episodes, _ = zip(*parts, strict=True)
    firsts = np.cumsum([0, *(int(episode[-1]) + 1 for episode in episodes)])
    fields.append(tuple(map(np.add, episodes, firsts)))
    joined = (np.concatenate(arrays) for arrays in fields)
    rows = Transitions(**dict(zip(Recorded._fields, joined, strict=False)))
    return Dataset(rows, {}, provenance)


def _checked_horizon(spec: DomainSpec, horizon: Any) -> int | None:
    """Return None for the task's own limit, so that equal rows have equal recipes."""
    longest = bodies.body(spec.body).max_steps
    number = longest if horizon is None else parse_count(horizon, name="horizon")
    if not 1 <= number <= longest:
        raise ConfigError(
            f"horizon: expected 1 to {longest:,}, the task's own limit, got {horizon!r}"
        )
    return None if number == longest else number


@dataclass(frozen=True, eq=False)
class ReturnStatistics:
    """Returns and lengths of the episodes of one collected dataset."""

    num_rows: int
    num_episodes: int
    """Cut episodes included."""
    returns: np.ndarray
    """(e,) float64. Undiscounted returns of the whole episodes, in order."""
    lengths: np.ndarray
    """(e,) int64. Their numbers of rows."""
    score: float | None
    """D4RL's normalised score of the mean return; None without whole episodes, for a domain with a
    reward of its own, and with a horizon of its own."""

    @property
    def mean_return(self) -> float:
        """Mean over whole episodes; NaN if there are none."""
        return float(self.returns.mean()) if len(self.returns) else float("nan")

    def __str__(self) -> str:
        text = f"{self.num_rows:,} rows, {self.num_episodes:,} episodes"
        if not len(self.returns):
            return f"{text}, none of them whole"
        text += f", mean return {self.mean_return:,.1f}"
        return text if self.score is None else f"{text}, normalised score {self.score:.1f}"


def return_statistics(dataset: Dataset) -> ReturnStatistics:
    """Return the statistics of data that `collect` made, without the episodes that it cut.

    Raises:
        DataError: The data was not made by `collect`.
    """
    recipe = dataset.provenance.recipe
    if recipe is None or dataset.episode is None or dataset.reward is None:
        raise DataError("statistics: expected data made by collect, got data without a recipe")
    spec = DomainSpec.from_dict(recipe["domain"])
    last = np.flatnonzero(np.diff(dataset.episode, append=-1))
    lengths = np.diff(last, prepend=-1)
    returns = np.bincount(dataset.episode, weights=dataset.reward)
    horizon = recipe.get("horizon")
    # A timeout before the limit marks a cut.
    whole = dataset.terminal[last] | (lengths == (horizon or bodies.body(spec.body).max_steps))
    own_reward = any(shift.kind == "reward" for shift in spec.shifts)
    scored = whole.any() and not own_reward and horizon is None
    score = float(normalised_score(spec.body, returns[whole].mean())) if scored else None
    return ReturnStatistics(len(dataset), len(last), returns[whole], lengths[whole], score)
