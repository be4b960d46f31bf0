"""Make data: a body, a domain, a quality and a number of rows become a dataset."""

import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Literal, get_args

import numpy as np

from puorl.core import fingerprint
from puorl.core.counts import parse_count
from puorl.core.errors import ConfigError
from puorl.core.progress import progress_bar
from puorl.core.room import require_memory
from puorl.data.dataset import Dataset
from puorl.data.provenance import Provenance
from puorl.data.transitions import Transitions
from puorl.envs import behaviour, bodies, contents
from puorl.envs.cache import Cache
from puorl.envs.domains import DomainSpec, parse_domain
from puorl.envs.domains import domain as domain_spec
from puorl.envs.record import Recorded, record

Quality = Literal["random", "medium", "medium-replay", "medium-expert", "expert"]
QUALITIES: tuple[str, ...] = get_args(Quality)

_COLLECTOR = 1
"""To be raised whenever the same recipe would give other rows."""


@dataclass(frozen=True)
class _Player:
    """A policy and the name it goes by."""

    name: str
    policy: Any
    fingerprint: str | None
    """None for a stranger that has none."""
    home: str | None = None
    """Domain in which it learnt, where that is known."""


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
    """Play behaviour policies in a domain and record what happens, as D4RL does.

    The same arguments give the same bytes on one machine, whatever the number of threads. Episodes
    are whole and in order; the last one of each policy may be cut to make the number of rows exact,
    and is then marked as a timeout. Joint noise acts on the executed action: the recorded one is
    what the policy meant.

    Args:
        env: The body: ``hopper``, ``halfcheetah`` or ``walker2d``.
        domain: What is shifted, such as ``body_mass`` or ``gravity=0.5``.
        quality: ``random`` (uniform actions), ``medium``, ``expert``, ``medium-expert`` (half and
            half by rows), or ``medium-replay`` (equal rows from snapshots taken while a policy
            learnt, up to the medium level; a stand-in for a replay buffer).
        rows: How many; ``"1M"`` is understood.
        seed: Names the random streams; other domains and policies have streams of their own.
        policy: Use this one instead of those that ``quality`` names: a policy file, or an object
            with ``act(obs) -> action``.
        policy_domain: Use the policies that learnt in this domain; by default those of ``domain``
            itself. With ``nominal``, the same controller acts in both domains.
        policy_version: Use this version of the policies that ``quality`` names, for data as it was
            made before there were newer ones; the newest if None.
        horizon: Steps after which a run is cut and marked as a timeout; None for the task's own
            1,000. Many short runs hold more first steps than a few long ones.
        threads: Cores to use; all if None.
        cache: Folder of data made before; ``$PUORL_CACHE`` or the user's cache folder if None, none
            at all if False. A policy object without a ``fingerprint`` is never cached.
        progress: Show a progress bar where there is a terminal.

    Raises:
        ConfigError: An unknown body, domain, quality, policy or version, an impossible number, or
            more rows than fit into memory.
        DataError: The policy file is none, or the policy's actions do not fit.
    """
    spec = domain if isinstance(domain, DomainSpec) else domain_spec(env, domain)
    if spec.body != parse_domain(env).body:
        raise ConfigError(f"domain: expected one of {env}, got one of {spec.body}")
    players = _players(spec, quality, policy, policy_domain, policy_version)
    num_rows = _checked_rows(rows, len(players))
    # Twice: as they were played, and put in order.
    repair = "take fewer rows="
    require_memory(2 * row_bytes(spec) * num_rows, f"rows {num_rows:,}", repair=repair)
    seed = _checked_seed(seed)
    horizon = _checked_horizon(horizon, bodies.body(spec.body).max_steps)
    named = quality if policy is None else None
    recipe = _recipe(spec, named, players, num_rows, seed, horizon)
    # Without the policy's fingerprint two recipes could look alike and mean different data.
    known = all(player.fingerprint is not None for player in players)
    store = None if cache is False or not known else Cache(None if cache is True else cache)
    made = store.read(recipe["recipe"]) if store else None
    if made is not None:
        return made
    made = _play(spec, players, recipe, threads=threads, progress=progress)
    difference = contents.compare(recipe["recipe"], made.fingerprint) if known else None
    if difference:
        notes = (*made.provenance.notes, difference)
        made = replace(made, provenance=replace(made.provenance, notes=notes))
    if store:
        store.write(recipe["recipe"], made)
    return made


def row_bytes(spec: DomainSpec) -> int:
    """What a recorded row takes, in memory and on disk."""
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
    """Who acts, in order; all get the same number of rows."""
    if policy is not None:
        if version is not None:
            raise ConfigError("policy_version: expected none beside policy=, which says who acts")
        if policy_domain is not None:
            raise ConfigError("policy_domain: expected none beside policy=, which says who acts")
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
    return _Player(found.name, behaviour.from_file(found.path), found.fingerprint, home)


def _given(spec: DomainSpec, policy: Any) -> _Player:
    if isinstance(policy, str | os.PathLike):
        policy = behaviour.from_file(policy)
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
    """All that decides the rows, in JSON's terms; its hash is the data's name."""
    shares = _shares(num_rows, len(players))
    settings: dict[str, Any] = {
        "body": spec.body,
        "domain": spec.to_dict(),
        "quality": None if quality is None else quality.replace("_", "-"),
        "policies": [
            {"name": player.name, "fingerprint": player.fingerprint, "rows": share}
            for player, share in zip(players, shares, strict=True)
        ],
        "rows": num_rows,
        "seed": seed,
        "mujoco": version("mujoco"),
        "collector": _COLLECTOR,
    }
    # Only where it is set: recipes made before there was a horizon keep their names.
    if horizon is not None:
        settings["horizon"] = horizon
    return {"recipe": fingerprint.of_settings(settings), **settings}


def _play(
    spec: DomainSpec,
    players: Sequence[_Player],
    recipe: Mapping[str, Any],
    *,
    threads: int | None,
    progress: bool,
) -> Dataset:
    parts: list[Recorded] = []
    with progress_bar(spec.text, total=recipe["rows"], show=progress) as advance:
        for player, entry in zip(players, recipe["policies"], strict=True):
            parts.append(
                record(
                    spec,
                    player.policy,
                    entry["rows"],
                    seed=_stream(spec, player, recipe["seed"]),
                    horizon=recipe.get("horizon"),
                    threads=threads,
                    advance=advance,
                )
            )
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
    provenance = Provenance(
        source=("puorl collect",),
        format="collected",
        domain=spec.text,
        behaviour=recipe["quality"] or players[0].name,
        recipe=dict(recipe),
        action_range=_action_range(spec),
        notes=tuple(notes),
    )
    return Dataset(_joined(parts), {}, provenance)


def _action_range(spec: DomainSpec) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Every motor of every body takes -1 to 1."""
    act_dim = bodies.body(spec.body).act_dim
    return (-1.0,) * act_dim, (1.0,) * act_dim


def _joined(parts: Sequence[Recorded]) -> Transitions:
    firsts = np.cumsum([0, *(int(part.episode[-1]) + 1 for part in parts[:-1])])
    names = [name for name in Recorded._fields if name not in ("episode", "cut")]
    fields = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    episode = [part.episode + first for part, first in zip(parts, firsts, strict=True)]
    return Transitions(**fields, episode=np.concatenate(episode))


def _stream(spec: DomainSpec, player: _Player, seed: int) -> int:
    """Seed of one policy in one domain.

    Were it the plain seed, two domains would begin with the same start states and the same noise.
    """
    shift = {**spec.to_dict(), "name": None}
    settings = {"seed": seed, "domain": shift, "policy": player.fingerprint}
    return int(fingerprint.of_settings(settings)[:16], 16)


def _shares(num_rows: int, num_parts: int) -> list[int]:
    return [num_rows * (i + 1) // num_parts - num_rows * i // num_parts for i in range(num_parts)]


def _checked_seed(seed: Any) -> int:
    """As a plain integer: the recipe is JSON, which knows no others."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise ConfigError(f"seed: expected a whole number, 0 or above, got {seed!r}")
    return number


def _checked_horizon(horizon: Any, longest: int) -> int | None:
    """None for the task's own limit, however it was asked for: equal rows have equal recipes."""
    if horizon is None:
        return None
    number = parse_count(horizon, name="horizon")
    if not 1 <= number <= longest:
        raise ConfigError(
            f"horizon: expected 1 to {longest:,}, the task's own limit, got {horizon!r}"
        )
    return None if number == longest else number


def _checked_rows(rows: int | str, num_players: int) -> int:
    num_rows = parse_count(rows, name="rows")
    if num_rows < num_players:
        raise ConfigError(
            f"rows: expected at least one for each policy ({num_players}), got {rows}"
        )
    return num_rows
