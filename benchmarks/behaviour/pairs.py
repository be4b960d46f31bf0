"""Choose pairs of a medium and an expert that agree at the start; the rule is in README.md.

    python benchmarks/behaviour/pairs.py --work FOLDER --out FOLDER

Reads what train.py and screen.py left in ``--work``. Writes the policies, their rows for the table
of returns, everything that was measured on the way (``pairs.json``) and the policies of all pairs
that came to the last stage (``finalists.tar``) into ``--out``.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import multiprocessing
import tarfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from checkpoint import Snapshot, list_snapshots
from choose import TARGETS, Agent, Measured, load_actor, measure, summary
from clones import Expert, Size, clone_returns
from starts import NUM_STEPS, all_pairs, disagreement, disagreement_by_step

from puorl.core.files import read_json, write_json
from puorl.core.hashing import generator

VERSION = 2
NEAR, SCREENED_NEAR = 0.10, {"medium": 0.25, "expert": 0.10}
LARGEST = 0.40
KEPT = 0.95
MORE_NEAR = 0.40
NUM_MEDIUMS, NUM_EXPERTS_EACH, NUM_CLONED = 16, 2, 3
EPISODES = 100


@dataclass(frozen=True)
class Settings:
    """Where things are and how much is spent; the rule fixes the numbers, trials are smaller."""

    work: Path
    out: Path
    workers: int
    cache: Path
    episodes: int
    clone: Size
    near: float
    """Added to the tolerances of levels; 0 but in trials."""
    mediums: int
    """Mediums that play the 100 episodes."""
    more: int
    """Further episodes of screening where the first are within `MORE_NEAR` of the medium level."""


class Screened(NamedTuple):
    """A snapshot of a lane and its first episodes."""

    agent: Agent
    mean: float
    """Of the first episodes."""
    longer: float
    """Of all episodes, where more were played; else the same."""
    starts: np.ndarray


class Pair(NamedTuple):
    """A medium and an expert, and their start disagreement."""

    medium: Agent
    expert: Agent
    on_medium: float
    on_expert: float

    @property
    def larger(self) -> float:
        """The number that counts."""
        return max(self.on_medium, self.on_expert)


def main() -> None:
    """Choose for every domain of the run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("scratch/behaviour"))
    parser.add_argument("--out", type=Path, default=Path("scratch/behaviour/out"))
    parser.add_argument("--cache", type=Path, default=Path("scratch/data"), help="datasets")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--clone-rows", type=int, default=Size().rows)
    parser.add_argument("--clone-updates", type=int, default=Size().updates)
    parser.add_argument("--near", type=float, default=0.0, help="for trials: looser levels")
    parser.add_argument("--mediums", type=int, default=NUM_MEDIUMS)
    parser.add_argument("--more-episodes", type=int, default=0, help="of screening, near mediums")
    given = parser.parse_args()
    choose(
        Settings(
            given.work,
            given.out,
            given.workers,
            given.cache,
            given.episodes,
            Size(given.clone_rows, given.clone_updates, given.episodes),
            given.near,
            given.mediums,
            given.more_episodes,
        )
    )


def choose(settings: Settings) -> None:
    """All stages for all domains, stage by stage; what is known is written after each."""
    begin = time.perf_counter()
    lanes = read_json(settings.work / "run.json")["lanes"]
    body = lanes[0]["body"]
    domains = list(dict.fromkeys(lane["domain"] for lane in lanes))
    snapshots = list_snapshots(settings.work)
    report: dict[str, Any] = {"settings": _rule(settings), "domains": {}}

    def note(text: str) -> None:
        print(f"{time.perf_counter() - begin:6.1f} s  {text}", flush=True)
        write_json(settings.out / "pairs.json", report, force=True)

    settings.out.mkdir(parents=True, exist_ok=True)
    _write_curves(settings, lanes, snapshots)
    found = screened(settings.work, lanes, snapshots)
    if settings.more:
        found, report["screened_again"] = _screened_again(body, found, settings)
        note(f"{len(report['screened_again'])} screened again")
    nearest: dict[str, list[tuple[Agent, list[Agent]]]] = {}
    for name in domains:
        own = [each for each in found if each.agent.domain == name]
        nearest[name], about = _nearest(body, own, settings)
        report["domains"][name] = about
        note(f"{name}: {about}")

    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(settings.workers, spawn) as pool:
        played = _play(pool, body, [m for d in domains for m, _ in nearest[d]], settings)
        level = {agent: _is_near(body, "medium", played[agent], settings) for agent in played}
        note(f"{len(played)} mediums played, {sum(level.values())} at their level")
        wanted = [e for d in domains for m, experts in nearest[d] if level[m] for e in experts]
        played |= _play(pool, body, list(dict.fromkeys(wanted)), settings)
        level |= {e: _is_near(body, "expert", played[e], settings) for e in wanted}
        note(f"{len(set(wanted))} experts played, {sum(level[e] for e in set(wanted))} at level")

    orders = {}
    for name in domains:
        left = [(m, e) for m, experts in nearest[name] if level[m] for e in experts if level[e]]
        orders[name] = _ordered(body, left, played)
        report["domains"][name]["mediums"] = [
            _about(body, m, played[m]) | {"at_level": level[m]} for m, _ in nearest[name]
        ]
        report["domains"][name]["pairs"] = [_pair_row(body, p, played) for p in orders[name]]
        best = f"{orders[name][0].larger:.3f}" if orders[name] else "none"
        note(f"{name}: {len(left)} pairs left, least disagreement {best}")
    _archive(body, orders, played, settings)

    experts = [e for name in domains for e in _first_experts(orders[name])]
    kept = _kept(body, experts, played, settings) if experts else {}
    for agent, about in kept.items():
        report["domains"][agent.domain].setdefault("clones", []).append(
            _about(body, agent, played[agent]) | about
        )
    note(f"{len(experts)} experts cloned")

    table = {}
    for name in domains:
        passing = [p for p in orders[name] if kept.get(p.expert, {}).get("kept", 0.0) >= KEPT]
        pair = passing[0] if passing else (orders[name] or [None])[0]
        if pair is None:
            report["domains"][name]["admitted"] = False
            continue
        admitted = bool(passing) and pair.larger <= LARGEST
        report["domains"][name]["admitted"] = admitted
        report["domains"][name]["taken"] = _pair_row(body, pair, played) | kept.get(pair.expert, {})
        for word, agent in (("medium", pair.medium), ("expert", pair.expert)):
            row = _save(body, word, agent, played[agent], pair, settings)
            table[f"{body}-{name}-{word}-v{VERSION}"] = row | {"admitted": admitted}
        note(f"{name}: admitted {admitted}, {report['domains'][name]['taken']}")
    write_json(settings.out / "table.json", table, force=True)
    note("done")


def screened(work: Path, lanes: list[dict], snapshots: Sequence[Snapshot]) -> list[Screened]:
    """Everything that screen.py has measured."""
    found = []
    for snapshot in snapshots:
        path = work / "screened" / f"{snapshot.num_steps:09d}.npz"
        if not path.exists():
            continue
        with np.load(path, allow_pickle=False) as arrays:
            returns, starts = arrays["returns"], arrays["starts"]
        for i, lane in enumerate(lanes):
            agent = Agent(i, lane["domain"], lane["seed"], snapshot.num_steps, snapshot.path)
            mean = float(returns[i].mean())
            found.append(Screened(agent, mean, mean, starts[i]))
    return found


def _screened_again(
    body: str, found: Sequence[Screened], settings: Settings
) -> tuple[list[Screened], list[dict[str, Any]]]:
    """Play more episodes of those near the medium level; also what came of each, for the report."""
    target = TARGETS[body]["medium"]
    near = [each for each in found if abs(each.mean - target) <= MORE_NEAR * target]
    seed = int(generator(0, "screen again", body).integers(2**31))
    jobs = [(body, each.agent, settings.more, seed) for each in near]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(settings.workers, spawn) as pool:
        played = list(pool.map(_measure_one, jobs))
    longer = {}
    rows = []
    for each, further in zip(near, played, strict=True):
        first, more = len(each.starts), len(further.returns)
        total = first * each.mean + more * float(further.returns.mean())
        longer[each.agent] = total / (first + more)
        rows.append(
            {"seed": each.agent.seed, "steps": each.agent.num_steps, "first": each.mean}
            | {"all": longer[each.agent], "episodes": first + more}
        )
    return [each._replace(longer=longer.get(each.agent, each.longer)) for each in found], rows


def _nearest(
    body: str, own: Sequence[Screened], settings: Settings
) -> tuple[list[tuple[Agent, list[Agent]]], dict[str, Any]]:
    """The mediums that disagree least with an expert, in that order, with their nearest experts."""
    candidates = {
        word: [
            each
            for each in own
            if abs((each.longer if word == "medium" else each.mean) - TARGETS[body][word])
            <= (SCREENED_NEAR[word] + settings.near) * TARGETS[body][word]
        ]
        for word in ("medium", "expert")
    }
    mediums, experts = candidates["medium"], candidates["expert"]
    about: dict[str, Any] = {"screened": len(own), "mediums_screened": len(mediums)}
    about["experts_screened"] = len(experts)
    if not mediums or not experts:
        return [], about
    distance = all_pairs(
        [load_actor(body, each.agent) for each in mediums],
        [load_actor(body, each.agent) for each in experts],
        np.stack([each.starts for each in mediums]),
        np.stack([each.starts for each in experts]),
    )
    # In loose trials a snapshot may be both.
    same = [[m.agent == e.agent for e in experts] for m in mediums]
    distance = np.where(same, np.inf, distance)
    least = distance.min(axis=1)
    about["least_screened"] = float(least.min())
    about["share_below_limit"] = float((distance <= LARGEST).mean())
    about["median_of_pairs"] = float(np.median(distance))
    found = []
    for i in np.argsort(least, kind="stable")[: settings.mediums]:
        order = np.argsort(distance[i], kind="stable")[:NUM_EXPERTS_EACH]
        found.append((mediums[i].agent, [experts[j].agent for j in order]))
    return found, about


def _measure_one(job: tuple[str, Agent, int, int]) -> Measured:
    body, agent, episodes, seed = job
    actor = load_actor(body, agent)
    return measure(
        body,
        [(agent.domain, actor)],
        episodes=episodes,
        seed=seed,
        threads=1,
        start_steps=NUM_STEPS,
    )[0]


def _play(
    pool: ProcessPoolExecutor, body: str, agents: Sequence[Agent], settings: Settings
) -> dict[Agent, Measured]:
    # A seed that no screening had: else the luck that brought a policy here would count again.
    seed = int(generator(0, "pairs", body).integers(2**31))
    jobs = [(body, agent, settings.episodes, seed) for agent in agents]
    return dict(zip(agents, pool.map(_measure_one, jobs), strict=True))


def _is_near(body: str, word: str, measured: Measured, settings: Settings) -> bool:
    target = TARGETS[body][word]
    return abs(float(measured.returns.mean()) - target) <= (NEAR + settings.near) * target


def _ordered(
    body: str, left: Sequence[tuple[Agent, Agent]], played: dict[Agent, Measured]
) -> list[Pair]:
    pairs = []
    for medium, expert in left:
        actors = load_actor(body, medium), load_actor(body, expert)
        states = played[medium].starts, played[expert].starts
        pairs.append(Pair(medium, expert, *disagreement(*actors, *states)))

    def key(pair: Pair) -> tuple[float, ...]:
        spread = float(played[pair.expert].returns.std())
        steps = pair.expert.num_steps, pair.medium.num_steps
        return (round(pair.larger, 3), spread, *steps)

    return sorted(pairs, key=key)


def _first_experts(order: Sequence[Pair]) -> list[Agent]:
    return list(dict.fromkeys(pair.expert for pair in order))[:NUM_CLONED]


def _kept(
    body: str, experts: Sequence[Agent], played: dict[Agent, Measured], settings: Settings
) -> dict[Agent, dict[str, float]]:
    jobs = [Expert(body, agent.domain, load_actor(body, agent)) for agent in experts]
    found = clone_returns(jobs, settings.clone, settings.cache, settings.workers)
    return {
        agent: {
            "clone": float(returns.mean()),
            "clone_std": float(returns.std()),
            "kept": float(returns.mean() / played[agent].returns.mean()),
        }
        for agent, returns in zip(experts, found, strict=True)
    }


def _about(body: str, agent: Agent, measured: Measured) -> dict[str, Any]:
    row = {"body": body, "domain": agent.domain, "seed": agent.seed, "steps": agent.num_steps}
    return row | summary(measured)


def _pair_row(body: str, pair: Pair, played: dict[Agent, Measured]) -> dict[str, Any]:
    actors = load_actor(body, pair.medium), load_actor(body, pair.expert)
    return {
        "medium": _about(body, pair.medium, played[pair.medium]),
        "expert": _about(body, pair.expert, played[pair.expert]),
        "on_medium_states": pair.on_medium,
        "on_expert_states": pair.on_expert,
        "first_step": float(disagreement_by_step(*actors, played[pair.expert].starts)[0]),
    }


def _save(
    body: str, word: str, agent: Agent, measured: Measured, pair: Pair, settings: Settings
) -> dict[str, Any]:
    actor = load_actor(body, agent)
    row = {"body": body, "domain": agent.domain, "level": word, "target": TARGETS[body][word]}
    row |= summary(measured)
    row |= {"steps": agent.num_steps, "seed": agent.seed, "version": VERSION}
    row |= {"start_disagreement": pair.larger, "fingerprint": actor.fingerprint}
    path = settings.out / "chosen" / f"{body}-{agent.domain}-{word}-v{VERSION}.safetensors"
    actor.save(path, row, force=True)
    return row


def _archive(
    body: str,
    orders: dict[str, list[Pair]],
    played: dict[Agent, Measured],
    settings: Settings,
) -> None:
    """Keep the policies of all pairs that were left, so that another choice needs no training."""
    agents = [a for order in orders.values() for p in order for a in (p.medium, p.expert)]
    with tarfile.open(settings.out / "finalists.tar", "w") as archive:
        for agent in dict.fromkeys(agents):
            name = f"{body}-{agent.domain}-{agent.seed}-{agent.num_steps:09d}.safetensors"
            path = settings.out / "finalists" / name
            row = _about(body, agent, played[agent])
            load_actor(body, agent).save(path, row, force=True)
            archive.add(path, name)


def _write_curves(settings: Settings, lanes: list[dict], snapshots: Sequence[Snapshot]) -> None:
    """Mean returns of every agent: in training, and of the screening's episodes."""
    points = []
    for snapshot in snapshots:
        path = settings.work / "screened" / f"{snapshot.num_steps:09d}.npz"
        own = None
        if path.exists():
            with np.load(path, allow_pickle=False) as arrays:
                own = [round(float(mean), 1) for mean in arrays["returns"].mean(axis=1)]
        returns = [None if r is None else round(r, 1) for r in snapshot.returns]
        points.append({"num_steps": snapshot.num_steps, "returns": returns, "screened": own})
    write_json(settings.out / "curves.json", {"lanes": lanes, "points": points}, force=True)


def _rule(settings: Settings) -> dict[str, Any]:
    return {
        "near": NEAR + settings.near,
        "screened_near": SCREENED_NEAR,
        "largest_disagreement": LARGEST,
        "clone_keeps": KEPT,
        "mediums": settings.mediums,
        "more_episodes": settings.more,
        "more_near": MORE_NEAR,
        "experts_each": NUM_EXPERTS_EACH,
        "cloned": NUM_CLONED,
        "episodes": settings.episodes,
        "clone": settings.clone._asdict(),
    }


if __name__ == "__main__":
    main()
