"""Measure snapshots and choose the ones to ship: by return, in their own domain, after rounding."""

import functools
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
from fleet import share_threads
from safetensors.numpy import load_file

from puorl.core.files import read_json, write_json
from puorl.core.hashing import generator
from puorl.envs import bodies
from puorl.envs.domains import domain
from puorl.envs.simulator import Simulator
from puorl.nn.numpy_mlp import SquashedGaussianActor

# Mean returns of D4RL's behaviour policies; "random" is that of uniform actions.
TARGETS = {
    "halfcheetah": {"random": -280.0, "medium": 4770.0, "expert": 10650.0},
    "hopper": {"random": 18.0, "medium": 1420.0, "expert": 3500.0},
    "walker2d": {"random": 2.0, "medium": 2850.0, "expert": 4900.0},
}
NUM_RUNGS = 6
NUM_FINALISTS = 2
# Of two policies that are equally near, the earlier one is more like a policy in training ...
_LATENESS = 0.1
# ... and the steadier one more like an expert.
_UNSTEADINESS = 0.25


@dataclass(frozen=True)
class Choice:
    """Settings of the choosing."""

    work: Path
    out: Path
    num_candidates: int = 8
    coarse_episodes: int = 20
    episodes: int = 100
    threads: int = 1


class Slot(NamedTuple):
    """A policy that is wanted."""

    domain: str
    level: str
    target: float


class Agent(NamedTuple):
    """One lane at one snapshot."""

    lane: int
    domain: str
    seed: int
    num_steps: int
    path: Path


class Measured(NamedTuple):
    """Returns and lengths of a policy's episodes, (episodes,), and the states they began with."""

    returns: np.ndarray
    length: np.ndarray
    starts: np.ndarray = np.zeros((0, 0, 0), np.float32)
    """(episodes, steps, d) float32. States of the first steps; NaN behind an episode's end."""


def select(choice: Choice) -> None:
    """Choose for every body of the run; writes policies.tar, candidates and returns.json."""
    run = read_json(choice.work / "run.json")
    names = list(dict.fromkeys(lane["body"] for lane in run["lanes"]))
    threads = share_threads(names, choice.threads)
    choice.out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(names), mp_context=context) as pool:
        tables = list(pool.map(select_body, names, [choice] * len(names), threads))
    policies = {name: row for table in tables for name, row in table.items()}
    write_json(choice.out / "returns.json", {"training": run, "policies": policies}, force=True)
    with tarfile.open(choice.out / "policies.tar", "w") as archive:
        for name in policies:
            archive.add(choice.work / "chosen" / f"{name}.safetensors", f"{name}.safetensors")
    curve = [{"num_steps": s.num_steps, "returns": s.returns} for s in list_snapshots(choice.work)]
    write_json(choice.out / "curves.json", {"lanes": run["lanes"], "points": curve}, force=True)


def select_body(body: str, choice: Choice, threads: int) -> dict[str, dict[str, Any]]:
    """Choose the policies of one body and write them; returns their rows of the table."""
    begin = time.perf_counter()
    lanes = read_json(choice.work / "run.json")["lanes"]
    snapshots = list_snapshots(choice.work)
    slots = wanted(body, [lane["domain"] for lane in lanes if lane["body"] == body])
    candidates = {
        slot: _candidates(body, slot, lanes, snapshots, choice.num_candidates) for slot in slots
    }
    coarse = _measure_all(body, candidates, choice.coarse_episodes, threads, stage="coarse")
    last = snapshots[-1].num_steps
    finalists = {
        slot: sorted(agents, key=lambda a: cost(body, slot, a, coarse[a], last))[:NUM_FINALISTS]
        for slot, agents in candidates.items()
    }
    print(f"{body}: {len(coarse)} measured after {time.perf_counter() - begin:.0f} s", flush=True)
    final = _measure_all(body, finalists, choice.episodes, threads, stage="final")
    table = {}
    taken: set[Agent] = set()
    for slot in slots:
        order = sorted(finalists[slot], key=lambda a: cost(body, slot, a, final[a], last))
        # Two levels with the same weights would be one policy under two names.
        agent = next((a for a in order if a not in taken), order[0])
        taken.add(agent)
        row = _ship(body, slot, agent, final[agent], choice)
        table[f"{body}-{slot.domain}-{slot.level}"] = row
        print(
            f"{body:12} {slot.domain:12} {slot.level:10} target {slot.target:7.0f}  mean "
            f"{row['mean']:7.0f}  std {row['std']:6.0f}  length {row['length']:5.0f}  "
            f"steps {agent.num_steps:,}",
            flush=True,
        )
    _archive_candidates(body, coarse, choice)
    print(f"{body}: chosen after {time.perf_counter() - begin:.0f} s", flush=True)
    return table


def wanted(body: str, domains: Sequence[str]) -> list[Slot]:
    """Medium and expert of every domain; for nominal also a ladder from random to medium."""
    target = TARGETS[body]
    slots = [
        Slot(name, level, target[level])
        for name in dict.fromkeys(domains)
        for level in ("medium", "expert")
    ]
    if "nominal" in domains:
        rungs = np.linspace(target["random"], target["medium"], NUM_RUNGS)
        slots += [Slot("nominal", f"ladder-{k}", float(rung)) for k, rung in enumerate(rungs)]
    return slots


def cost(body: str, slot: Slot, agent: Agent, measured: Measured, last: int) -> float:
    """How ill a measured agent fits a slot; 0 is best."""
    spread = float(measured.returns.std()) if slot.level == "expert" else 0.0
    unsteady = _UNSTEADINESS * spread / TARGETS[body]["expert"]
    return distance(body, slot, agent, float(measured.returns.mean()), last) + unsteady


def distance(body: str, slot: Slot, agent: Agent, mean: float, last: int) -> float:
    """How far an agent of that mean return is from a slot; ``last``: steps of the whole run."""
    if slot.level == "expert":
        return abs(mean - slot.target) / TARGETS[body]["expert"]
    error = abs(mean - slot.target) / TARGETS[body]["medium"]
    return error + _LATENESS * agent.num_steps / max(last, 1)


def _candidates(
    body: str, slot: Slot, lanes: Sequence[dict], snapshots: Sequence[Snapshot], num: int
) -> list[Agent]:
    """The ``num`` agents whose return in training was nearest to the slot."""
    last = snapshots[-1].num_steps
    found = []
    for i, lane in enumerate(lanes):
        if (lane["body"], lane["domain"]) != (body, slot.domain):
            continue
        mean = TARGETS[body]["random"]
        for k, snapshot in enumerate(snapshots):
            # Episodes of the interval before the snapshot and of the one after it; where none
            # ended, the last that are known.
            around = [s.returns[i] for s in snapshots[k : k + 2]]
            known = [value for value in around if value is not None]
            mean = float(np.mean(known)) if known else mean
            agent = Agent(i, lane["domain"], lane["seed"], snapshot.num_steps, snapshot.path)
            found.append((distance(body, slot, agent, mean, last), agent))
    return [agent for _, agent in sorted(found)[:num]]


def load_actor(body: str, agent: Agent) -> SquashedGaussianActor:
    """The actor of a snapshot, without padding; its weights are rounded as they will be shipped."""
    arrays = _read(agent.path)
    layers = [
        (arrays[f"w{i}"][agent.lane], arrays[f"b{i}"][agent.lane]) for i in range(len(arrays) // 2)
    ]
    robot = bodies.body(body)
    return cut(layers, robot.obs_dim, robot.act_dim)


def cut(layers: list[tuple], obs_dim: int, act_dim: int) -> SquashedGaussianActor:
    """The policy of a body with shorter vectors, which was trained padded with zeros."""
    layers = list(layers)
    layers[0] = (layers[0][0][:obs_dim], layers[0][1])
    w, b = layers[-1]
    columns = np.r_[0:act_dim, b.size // 2 : b.size // 2 + act_dim]
    layers[-1] = (w[:, columns], b[columns])
    return SquashedGaussianActor(tuple(layers))


# A snapshot holds the actors of all lanes, so it is asked for many times.
@functools.lru_cache(maxsize=300)
def _read(path: Path) -> dict[str, np.ndarray]:
    return load_file(path)


def measure(
    body: str,
    policies: Sequence[tuple[str, SquashedGaussianActor]],
    *,
    episodes: int,
    seed: int,
    threads: int,
    start_steps: int = 0,
) -> list[Measured]:
    """First ``episodes`` episodes of each (domain, stochastic policy), all in one batch.

    The states of the first ``start_steps`` steps are kept.
    """
    owner = np.repeat(np.arange(len(policies)), episodes)
    specs = [domain(body, name) for name, _ in policies]
    # Every policy meets the same start states.
    streams = np.tile(np.arange(episodes), len(policies))
    simulator = Simulator(
        [specs[i] for i in owner], seed=seed, threads=threads, streams=list(streams)
    )
    rng = generator(seed, "measure", body)
    returns, length = np.zeros(len(owner)), np.zeros(len(owner), np.int64)
    place = np.arange(len(owner))
    running = np.ones(len(owner), bool)
    starts = np.full((len(owner), start_steps, simulator.obs_dim), np.nan, np.float32)
    time_step = 0
    with simulator:
        while running.any():
            if time_step < start_steps:
                starts[place[running], time_step] = simulator.obs[running]
            time_step += 1
            if running.mean() < 0.8:
                simulator.keep(running)
                place, running = place[running], np.ones(int(running.sum()), bool)
            noise = rng.standard_normal((len(place), simulator.act_dim), dtype=np.float32)
            bounds = np.searchsorted(owner[place], np.arange(len(policies) + 1))
            action = np.empty_like(noise)
            for i in range(len(policies)):
                rows = slice(bounds[i], bounds[i + 1])
                action[rows] = policies[i][1].act_with_noise(simulator.obs[rows], noise[rows])
            step = simulator.step(action)
            returns[place[running]] += step.reward[running]
            length[place[running]] += 1
            running &= ~(step.terminal | step.timeout)
    shape = (len(policies), episodes)
    columns = [array.reshape(*shape, *array.shape[1:]) for array in (returns, length, starts)]
    return [Measured(*row) for row in zip(*columns, strict=True)]


def _measure_all(
    body: str, wanted_by: dict[Slot, list[Agent]], episodes: int, threads: int, *, stage: str
) -> dict[Agent, Measured]:
    agents = list(dict.fromkeys(agent for found in wanted_by.values() for agent in found))
    actors = [(agent.domain, load_actor(body, agent)) for agent in agents]
    # Another seed in the second stage: else the luck that made a finalist would be measured again.
    seed = int(generator(0, "measure", stage).integers(2**31))
    found = measure(body, actors, episodes=episodes, seed=seed, threads=threads)
    return dict(zip(agents, found, strict=True))


def summary(measured: Measured) -> dict[str, float | int]:
    """The numbers of a policy that the table of returns holds."""
    returns = measured.returns
    return {
        "episodes": len(returns),
        "mean": float(returns.mean()),
        "std": float(returns.std()),
        "min": float(returns.min()),
        "max": float(returns.max()),
        "length": float(measured.length.mean()),
    }


def _ship(
    body: str, slot: Slot, agent: Agent, measured: Measured, choice: Choice
) -> dict[str, Any]:
    actor = load_actor(body, agent)
    row = {"body": body, "domain": slot.domain, "level": slot.level, "target": slot.target}
    row |= summary(measured)
    row |= {"steps": agent.num_steps, "seed": agent.seed, "fingerprint": actor.fingerprint}
    path = choice.work / "chosen" / f"{body}-{slot.domain}-{slot.level}.safetensors"
    actor.save(path, row, force=True)
    return row


def _archive_candidates(body: str, coarse: dict[Agent, Measured], choice: Choice) -> None:
    """Keep what was measured, so that another choice needs no training."""
    with tarfile.open(choice.out / f"candidates-{body}.tar", "w") as archive:
        for agent, measured in coarse.items():
            name = f"{body}-{agent.domain}-{agent.seed}-{agent.num_steps:09d}.safetensors"
            path = choice.work / "candidates" / name
            row = {"body": body, "domain": agent.domain, "seed": agent.seed}
            load_actor(body, agent).save(
                path, row | {"steps": agent.num_steps} | summary(measured), force=True
            )
            archive.add(path, name)
