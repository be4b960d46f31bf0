"""Train, measure and choose the behaviour policies that puorl ships; see README.md beside this.

python benchmarks/behaviour/train.py time     # how long an iteration takes here
python benchmarks/behaviour/train.py train    # snapshots and a checkpoint into --work
python benchmarks/behaviour/train.py select   # policies and their returns into --out
"""

import os

# Before NumPy is imported: its own threads would fight with those of the simulator.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import sac
from checkpoint import load_state, save_snapshot, save_state
from choose import Choice, select
from fleet import Fleet, LaneSpec, action_mask, lane_specs, padded_dims
from sac_training import Episodes
from sac_training import train as train_sac

from puorl.core.errors import ConfigError
from puorl.core.files import write_json
from puorl.core.hashing import generator

BODIES = ("halfcheetah", "hopper", "walker2d")
DOMAINS = ("nominal", "body_mass", "joint_noise")


@dataclass(frozen=True)
class Run:
    """A training run; the numbers of steps are per agent."""

    work: Path
    bodies: tuple[str, ...] = BODIES
    domains: tuple[str, ...] = DOMAINS
    num_seeds: int = 2
    seed: int = 0
    num_steps: int = 1_000_000
    snapshot_every: int = 8_000
    segment_every: int = 40_000
    """Training can stop and go on at these steps only: there all environments start anew."""
    minutes: float = 1e9
    resume: bool = False
    threads: int = 1
    config: sac.SACConfig = sac.SACConfig()

    def __post_init__(self) -> None:
        steps = (self.num_steps, self.segment_every, self.snapshot_every, self.config.num_envs)
        if any(long % short for long, short in zip(steps[:-1], steps[1:], strict=True)):
            raise ConfigError(
                "steps: expected num_steps, segment_every, snapshot_every and num_envs to divide "
                f"one another in this order, got {steps}"
            )

    @property
    def lanes(self) -> tuple[LaneSpec, ...]:
        """All agents of the run."""
        return lane_specs(self.bodies, self.domains, self.num_seeds, self.seed)

    def describe(self) -> dict:
        """What a resumed run must agree in, as JSON."""
        return {
            "lanes": [dataclasses.asdict(lane) for lane in self.lanes],
            "num_envs": self.config.num_envs,
            "snapshot_every": self.snapshot_every,
            "segment_every": self.segment_every,
            "seed": self.seed,
            "config": dataclasses.asdict(self.config) | {"hidden": list(self.config.hidden)},
        }


def train(run: Run) -> sac.State:
    """Train until ``num_steps`` or until the minutes are over; leaves a checkpoint at the end."""
    begin = time.perf_counter()
    lanes = run.lanes
    state = sac.init(
        run.config,
        [lane.seed for lane in lanes],
        obs_dim=padded_dims(lanes)[0],
        action_mask=action_mask(lanes),
    )
    if run.resume:
        state, saved = load_state(run.work / "state.safetensors", state)
        if saved != run.describe():
            raise ConfigError(f"resume: expected the settings of the run, {saved}")
    else:
        # Refuses a folder with a run in it: its snapshots would be taken for those of this one.
        write_json(run.work / "run.json", run.describe())
        save_snapshot(run.work, 0, state, [None] * len(lanes))
    while (done := int(state.replay.num_inserts) * run.config.num_envs) < run.num_steps:
        state = _segment(run, state, done // run.segment_every, begin)
        if time.perf_counter() - begin > 60 * run.minutes:
            break
    save_state(run.work / "state.safetensors", state, run.describe())
    print(f"checkpoint after {time.perf_counter() - begin:.0f} s", flush=True)
    return state


def _segment(run: Run, state: sac.State, segment: int, begin: float) -> sac.State:
    started = time.perf_counter()
    # A stream of its own, so that a resumed run draws what an unbroken one would.
    seed = int(generator(run.seed, "segment", segment).integers(2**31))
    num_envs = run.config.num_envs
    fleet = Fleet(run.lanes, num_envs=num_envs, seed=seed, threads=run.threads)
    num_iterations = run.segment_every // num_envs
    num_steps = segment * run.segment_every
    ended: list[Episodes] = []
    metrics = {}
    try:
        for point in train_sac(
            state,
            fleet,
            run.config,
            num_iterations=num_iterations,
            point_every=run.snapshot_every // num_envs,
        ):
            num_steps += run.snapshot_every
            state, metrics = point.state, point.metrics
            ended.append(point.episodes)
            means = lane_means(point.episodes, len(run.lanes))
            save_snapshot(run.work, num_steps, state, means)
    finally:
        fleet.close()
    now = time.perf_counter()
    print(
        f"steps {num_steps:,}  {now - begin:.0f} s  "
        f"{1e3 * (now - started) / num_iterations:.2f} ms/iteration",
        flush=True,
    )
    _print_lanes(run.lanes, Episodes(*map(np.concatenate, zip(*ended, strict=True))), metrics)
    return state


def lane_means(episodes: Episodes, num_lanes: int) -> list[float | None]:
    """Mean return per lane; None where no episode ended."""
    means = []
    for lane in range(num_lanes):
        returns = episodes.returns[episodes.lane == lane]
        means.append(float(returns.mean()) if len(returns) else None)
    return means


def _print_lanes(lanes: Sequence[LaneSpec], episodes: Episodes, metrics: dict) -> None:
    means = lane_means(episodes, len(lanes))
    for body in dict.fromkeys(lane.body for lane in lanes):
        words = [
            f"{lane.domain} {'-' if mean is None else round(mean)}"
            + (f" (a {metrics['alpha'][i]:.2f})" if metrics else "")
            for i, (lane, mean) in enumerate(zip(lanes, means, strict=True))
            if lane.body == body
        ]
        print(f"  {body:12} " + "  ".join(words), flush=True)


def time_iterations(run: Run, unrolls: Sequence[int], num_iterations: int) -> None:
    """Print what an iteration costs: simulator alone, and with learning, compile time apart."""
    lanes, num_envs = run.lanes, run.config.num_envs
    fleet = Fleet(lanes, num_envs=num_envs, seed=0, threads=run.threads)
    obs_dim, act_dim = padded_dims(lanes)
    rng = generator(0, "time")
    action = rng.uniform(-1, 1, (len(lanes) * num_envs, act_dim)).astype(np.float32)
    begin = time.perf_counter()
    for _ in range(num_iterations):
        fleet.step(action)
    each = (time.perf_counter() - begin) / num_iterations
    print(f"{len(lanes)} lanes, {jax.devices()}: simulator {1e3 * each:.2f} ms", flush=True)
    for unroll in unrolls:
        config = dataclasses.replace(run.config, warm_up_steps=num_envs, unroll=unroll)
        seeds = [lane.seed for lane in lanes]
        state = sac.init(config, seeds, obs_dim=obs_dim, action_mask=action_mask(lanes))
        marks = [time.perf_counter()]
        for point in train_sac(
            state, fleet, config, num_iterations=2 * num_iterations, point_every=num_iterations
        ):
            jax.block_until_ready(point.state)
            marks.append(time.perf_counter())
        first, second = np.diff(marks)
        print(
            f"unroll {unroll}: {1e3 * second / num_iterations:.2f} ms/iteration, "
            f"compile {first - second:.1f} s",
            flush=True,
        )
    fleet.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train and choose the behaviour policies.")
    parser.add_argument("phase", choices=("time", "train", "select"))
    parser.add_argument("--work", type=Path, default=Path("scratch/behaviour"))
    parser.add_argument("--bodies", nargs="+", default=BODIES, choices=BODIES)
    parser.add_argument("--domains", nargs="+", default=DOMAINS)
    parser.add_argument("--num-seeds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1_000_000, help="per agent")
    parser.add_argument("--snapshot-every", type=int, default=8_000)
    parser.add_argument("--segment-every", type=int, default=40_000)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop at the next segment")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--num-envs", type=int, default=8, help="per agent")
    parser.add_argument("--updates-per-step", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--warm-up", type=int, default=5_000)
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--unroll", type=int, nargs="+", default=[1])
    parser.add_argument("--iterations", type=int, default=500, help="of the phase time")
    parser.add_argument("--out", type=Path, default=Path("scratch/behaviour/out"))
    parser.add_argument("--candidates", type=int, default=8, help="snapshots measured per level")
    parser.add_argument("--coarse-episodes", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=100)
    return parser


def _run_of(given: argparse.Namespace) -> Run:
    config = sac.SACConfig(
        batch_size=given.batch_size,
        num_envs=given.num_envs,
        updates_per_step=given.updates_per_step,
        warm_up_steps=given.warm_up,
        capacity=given.capacity,
        unroll=given.unroll[0],
    )
    return Run(
        work=given.work,
        bodies=tuple(given.bodies),
        domains=tuple(given.domains),
        num_seeds=given.num_seeds,
        seed=given.seed,
        num_steps=given.steps,
        snapshot_every=given.snapshot_every,
        segment_every=given.segment_every,
        minutes=given.minutes,
        resume=given.resume,
        threads=given.threads,
        config=config,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and do one phase."""
    given = _parser().parse_args(arguments)
    if given.phase == "select":
        choice = Choice(
            work=given.work,
            out=given.out,
            num_candidates=given.candidates,
            coarse_episodes=given.coarse_episodes,
            episodes=given.episodes,
            threads=given.threads,
        )
        select(choice)
        return
    # A second command then starts without compiling.
    jax.config.update("jax_compilation_cache_dir", str((given.work / "compiled").resolve()))
    if given.phase == "time":
        time_iterations(_run_of(given), given.unroll, given.iterations)
    else:
        train(_run_of(given))


if __name__ == "__main__":
    main()
