"""Does the log alone say whether to imitate the others? Clones, judged truly and by evidence.

    python benchmarks/sharing/evidence.py clones --body hopper --seed 0 --out FOLDER
    python benchmarks/sharing/evidence.py small --body hopper --seed 0 --out FOLDER
    python benchmarks/sharing/evidence.py tuned --body hopper --seed 0 --out FOLDER
    python benchmarks/sharing/evidence.py ope --body hopper --seed 0 --out FOLDER
    python benchmarks/sharing/evidence.py confirm --body hopper --seed 2 --out FOLDER
    python benchmarks/sharing/evidence.py train --body hopper --seed 2 --out FOLDER
    python benchmarks/sharing/evidence.py show --out benchmarks/results/sharing-design

``clones`` imitates our rows alone, the others' alone, and both with the others filling half or nine
tenths of a batch, and lets each clone act on our machine in the simulator. Three steps judge these
clones by rows only: ``small`` in a model f + g of small networks, and by simple numbers; ``tuned``
in the model of `own_model.py`; ``ope`` by off-policy evaluation. ``confirm`` calls
`judge_imitation` of `imitation.py` and then lets its clones act truly. ``train`` trains TD3+BC with
and without sharing. Domain labels are true; machines differ in mass; ours has few rows. Small
networks and few updates: a trial, not a benchmark. A JSON row is appended to FOLDER/evidence.jsonl.
"""

import argparse
import json
import platform
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import own_model
from imitation import judge_imitation

from puorl import __version__, ope
from puorl.bench.prepare import SettingData
from puorl.bench.settings import Setting
from puorl.core.hashing import generator
from puorl.data.split import PUSplit
from puorl.data.training_set import Groups, TrainingSet
from puorl.envs.evaluate import evaluate
from puorl.methods import dynamics, make
from puorl.methods.share import shrinkage
from puorl.nn import mlp
from puorl.rl import learner as learners
from puorl.rl.policy import Policy
from puorl.rl.run import RunSpec, run_in_memory

SHARES = {"both-50": 0.5, "both-90": 0.9}
HORIZONS = (50, 200, 1000)
STEPS = ("clones", "small", "tuned", "ope", "confirm", "train", "show")
_STARTS = 200
_MEMBERS = 3
_FORWARD = 1e-6


@dataclass(frozen=True)
class Rows:
    """The rows of a setting, told apart by the truth."""

    split: PUSplit
    own: np.ndarray
    theirs: np.ndarray

    @classmethod
    def of(cls, setting: Setting) -> "Rows":
        """Collect the rows, or read them from the cache."""
        split = SettingData.load(setting).split
        own = np.sort(make("oracle").prepare(split, seed=0).rows)
        return cls(split, own, np.setdiff1d(np.arange(len(split.pool)), own))

    @cached_property
    def held_out(self) -> np.ndarray:
        """(own,) bool. A fifth of our records."""
        pool = self.split.pool
        assert pool.episode is not None
        return dynamics.hold_out(pool.episode[self.own], len(self.own), 0, "evidence")

    def both(self, share: float, own: np.ndarray) -> TrainingSet:
        """Return our rows ``own`` first, then the others', which fill ``share`` of a batch."""
        rows = np.concatenate([own, self.theirs])
        return TrainingSet(self.split.pool, rows, groups=Groups(len(own), 1.0 - share))

    def clone_sets(self, own: np.ndarray) -> dict[str, TrainingSet]:
        """Return the sets that clones learn from."""
        pool = self.split.pool
        sets = {"ours": TrainingSet(pool, own), "theirs": TrainingSet(pool, self.theirs)}
        return sets | {name: self.both(share, own) for name, share in SHARES.items()}


def train(
    sets: Mapping[str, TrainingSet], learner: str, steps: int, seed: int, **settings: Any
) -> dict[str, Policy]:
    """Train a policy on each set."""
    made = learners.make(learner, num_steps=steps, **settings)
    spec = RunSpec(made, sets, {name: [seed] for name in sets}, steps, steps)
    found = run_in_memory(spec, on_checkpoint=lambda progress, lanes: None).policies
    return {name.removesuffix(f"-seed-{seed}"): policy for name, policy in found.items()}


def act_truly(policies: Mapping[str, Policy], body: str, episodes: int) -> dict[str, Any]:
    """Return mean score, return and length of each policy on our machine."""
    seen = evaluate(list(policies.values()), body, episodes=episodes, seed=1, threads=1)
    assert seen.scores is not None
    return {
        name: {
            "scores": np.round(seen.scores[i], 2).tolist(),
            "return": float(seen.returns[i].mean()),
            "length": float(seen.lengths[i].mean()),
        }
        for i, name in enumerate(policies)
    }


class Model(NamedTuple):
    """Change of the state and reward on our machine: f of the others' rows and g of ours."""

    f: dynamics.Ensemble
    g: dynamics.Ensemble
    factor: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray
    """(d,) Edges of all logged states, with a margin."""
    ends: tuple[np.ndarray, np.ndarray]
    """(d,) Below and above which tasks end; infinite where they never do."""
    rewards: tuple[float, float]

    def step(self, obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        """Return next states (k, n, d), rewards and whether the task goes on, (k, n)."""
        x = (np.concatenate([obs, action], axis=-1) - self.mean) / self.std
        out = np.asarray(_members(self.f.params, jnp.asarray(x, jnp.float32))) * self.f.scale
        if self.factor.any():
            left = np.asarray(_members(self.g.params, jnp.asarray(x, jnp.float32)))
            out = out + self.factor * left * self.g.scale
        moved = obs + out[..., :-1]
        goes_on = ((moved > self.ends[0]) & (moved < self.ends[1])).all(axis=-1)
        return np.clip(moved, self.low, self.high), np.clip(out[..., -1], *self.rewards), goes_on


@jax.jit
def _members(params: Any, x: jax.Array) -> jax.Array:
    return jax.vmap(mlp.apply_mlp)(params, x)


def fit_model(rows: Rows, seed: int, *, num_steps: int, hidden: tuple[int, ...]) -> Any:
    """Learn f from the others' rows and g from what it leaves of ours; return facts too."""
    pool = rows.split.pool
    assert pool.reward is not None
    assert pool.episode is not None
    x = np.concatenate([pool.obs, pool.action], axis=1)
    mean, std = x.mean(axis=0), x.std(axis=0) + 1e-3
    x = ((x - mean) / std).astype(np.float32)
    y = np.concatenate([pool.next_obs - pool.obs, pool.reward[:, None]], axis=1)
    own, theirs = rows.own, rows.theirs
    common: dict[str, Any] = {
        "seed": seed,
        "num_members": _MEMBERS,
        "hidden": hidden,
        "batch_size": 256,
        "learning_rate": 1e-3,
    }
    theirs_out = dynamics.hold_out(pool.episode[theirs], len(theirs), seed, "others")
    f = dynamics.fit(x[theirs], y[theirs], theirs_out, purpose="f", num_steps=num_steps, **common)
    left = y[own] - f.predict(x[own])[0]
    g = dynamics.fit(
        x[own],
        left,
        rows.held_out,
        purpose="g",
        num_steps=num_steps // 4,
        start_at_zero=True,
        **common,
    )
    out = rows.held_out
    predicted = g.predict(x[own])[0]
    factor = shrinkage(left[out], predicted[out])
    obs, after = pool.obs, pool.next_obs[pool.terminal]
    low, high = obs.min(axis=0), obs.max(axis=0)
    ends = (
        np.where((after < low).any(axis=0), low, -np.inf),
        np.where((after > high).any(axis=0), high, np.inf),
    )
    margin = 0.1 * (high - low)
    spread = y[own].var(axis=0) + _FORWARD
    facts = {
        "error_f": float((np.square(left[out]).mean(axis=0) / spread).mean()),
        "error_f_g": float(
            (np.square(left[out] - factor * predicted[out]).mean(axis=0) / spread).mean()
        ),
        "factor": float(factor.mean()),
        "terminals_found": float(
            ((after < ends[0]) | (after > ends[1])).any(axis=1).mean() if len(after) else 1.0
        ),
    }
    rewards = float(pool.reward.min()), float(pool.reward.max())
    return Model(f, g, factor, mean, std, low - margin, high + margin, ends, rewards), facts


def roll_out(model: Model, policy: Policy, start: np.ndarray) -> dict[str, Any]:
    """Return the mean return up to each horizon, and how many steps a task goes on."""
    obs = np.broadcast_to(start, (_MEMBERS, *start.shape)).astype(np.float32)
    alive = np.ones(obs.shape[:2])
    total, steps, found = np.zeros(obs.shape[:2]), np.zeros(obs.shape[:2]), {}
    for step in range(HORIZONS[-1]):
        action = policy.act(obs.reshape(-1, obs.shape[2])).reshape(*obs.shape[:2], -1)
        obs, reward, goes_on = model.step(obs, action)
        obs = obs.astype(np.float32)
        total += alive * reward
        steps += alive
        alive = alive * goes_on
        if step + 1 in HORIZONS:
            found[f"return_{step + 1}"] = float(total.mean())
            found[f"steps_{step + 1}"] = float(steps.mean())
            found[f"worst_{step + 1}"] = float(total.mean(axis=1).min())
    return found


def simple(rows: Rows, policies: Mapping[str, Policy]) -> dict[str, Any]:
    """Return evidence without a model: rewards of rows, and errors in our held-out actions."""
    pool = rows.split.pool
    assert pool.reward is not None
    out = rows.own[rows.held_out]
    action, variance = pool.action[out], pool.action[rows.own].var(axis=0)

    def error(policy: Policy) -> float:
        gap = np.square(policy.act(pool.obs[out]) - action).mean(axis=0)
        return float((gap / variance).mean())

    return {
        "reward_ours": float(pool.reward[rows.own].mean()),
        "reward_theirs": float(pool.reward[rows.theirs].mean()),
        "falls_ours": float(pool.terminal[rows.own].mean()),
        "falls_theirs": float(pool.terminal[rows.theirs].mean()),
        "held_out_error": {name: error(policy) for name, policy in policies.items()},
    }


def judge_small(rows: Rows, policies: Mapping[str, Policy], seed: int) -> dict[str, Any]:
    """Judge in the model f + g of small networks, and by simple numbers."""
    model, facts = fit_model(rows, seed, num_steps=8_000, hidden=(128, 128))
    rng = generator(seed, "evidence", "starts")
    start = rows.split.pool.obs[rng.choice(rows.own, _STARTS, replace=False)]
    plain = model._replace(factor=np.zeros_like(model.factor))
    return {
        "facts": facts,
        "simple": simple(rows, policies),
        "model": {name: roll_out(model, each, start) for name, each in policies.items()},
        "model_f": {name: roll_out(plain, each, start) for name, each in policies.items()},
    }


def judge_tuned(rows: Rows, policies: Mapping[str, Policy], seed: int) -> dict[str, Any]:
    """Judge in the model that learns from the others and is tuned on ours."""
    pool, known = rows.split.pool, rows.own[~rows.held_out]
    model = own_model.fit(pool, known, rows.theirs, own_model.ModelConfig(), seed=seed)
    rng = generator(seed, "evidence", "starts")
    start = pool.obs[rng.choice(rows.own, _STARTS // 2, replace=False)]
    found = {
        name: {
            f"return_{h}": float(own_model.roll_out(model, policy, start, h).mean())
            for h in HORIZONS
        }
        for name, policy in policies.items()
    }
    return {"error": model.error(pool, rows.own[rows.held_out]), "model": found}


def judge_ope(rows: Rows, policies: Mapping[str, Policy], seed: int) -> dict[str, Any]:
    """Judge by off-policy evaluation on our rows."""
    judge = rows.split.pool[rows.own]
    few: dict[str, Any] = {"updates": 4_000, "model_updates": 4_000, "hidden": (128, 128)}
    seen = ope.evaluate(dict(policies), judge, estimators=["blend"], seed=seed, **few)
    return {
        name: {each: value.estimate.value for each, value in values.items()}
        | {"doubtful": values["blend"].is_doubtful}
        for name, values in seen.values.items()
    }


def confirm(rows: Rows, body: str, seed: int, episodes: int) -> dict[str, Any]:
    """Choose by `judge_imitation`, then let its clones act truly."""
    ours = make("oracle").prepare(rows.split, seed=seed)
    found = judge_imitation(rows.split, ours, seed=seed)
    return {
        "imitate": found.imitate,
        "returns": dict(found.returns),
        "error": found.error,
        "true": act_truly(found.policies, body, episodes),
    }


def train_shares(
    rows: Rows, body: str, seed: int, steps: int, hidden: tuple[int, ...], episodes: int
) -> dict[str, Any]:
    """Train TD3+BC on our rows alone, and with sharing; return what policies truly earn."""
    small: dict[str, Any] = {"hidden": (128, 128), "num_steps": 4_000, "num_members": 3}
    sets = {"oracle": make("oracle").prepare(rows.split, seed=seed)}
    for imitate in ("all", "none"):
        kind = make("oracle_share", share=0.9, imitate=imitate, **small)
        sets[f"{imitate}-90"] = kind.prepare(rows.split, seed=seed)
    sets["sharing_all"] = make("sharing_all").prepare(rows.split, seed=seed)
    found = train(sets, "td3_bc", steps, seed, hidden=hidden)
    return act_truly(found, body, episodes)


def show(path: Path) -> None:
    """Print which evidence orders the clones of ours and theirs as their true returns do."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    truth, seen = {}, defaultdict(dict)
    for row in rows:
        key = row["setting"]["name"], row["seed"]
        if row["step"] == "clones":
            truth[key] = {name: each["return"] for name, each in row["measured"].items()}
            print(*key, {n: round(value) for n, value in truth[key].items()}, sep=" | ")
    for row in rows:
        key, found = (row["setting"]["name"], row["seed"]), row["measured"]
        for name, values in _evidence(row["step"], found).items():
            seen[name][key] = values["theirs"] - values["ours"]
        if row["step"] == "confirm":
            means = {name: round(np.mean(each)) for name, each in found["returns"].items()}
            true = {name: round(each["return"]) for name, each in found["true"].items()}
            print("confirm", *key, found["imitate"], means, true, row.get("note", ""), sep=" | ")
        if row["step"] == "train":
            means = {name: round(np.mean(each["scores"]), 1) for name, each in found.items()}
            print("train", *key, means, sep=" | ")
    for name, values in seen.items():
        right = {k: (v > 0) == (truth[k]["theirs"] > truth[k]["ours"]) for k, v in values.items()}
        wrong = [
            f"{key[0].split('/')[0]} {key[1]}" for key, is_right in right.items() if not is_right
        ]
        print(f"{name} | {sum(right.values())} of {len(right)} | {', '.join(wrong)}")


def _evidence(step: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return numbers by clone, the larger the better."""
    if step == "ope":
        return {"blend": {name: each["blend"] for name, each in found.items()}}
    if step not in ("small", "tuned"):
        return {}
    models = [name for name in found if name.startswith("model")]
    made = {
        f"{step} {model}, {h} steps": {
            name: each[f"return_{h}"] for name, each in found[model].items()
        }
        for model in models
        for h in HORIZONS
    }
    if step == "small":
        held = found["simple"]["held_out_error"]
        made["held-out actions"] = {name: -error for name, error in held.items()}
        made["mean reward of rows"] = {
            name: found["simple"][f"reward_{name}"] for name in ("ours", "theirs")
        }
    return made


def setting_of(args: argparse.Namespace) -> Setting:
    """Return the setting: few rows of ours among many."""
    return Setting(
        "body_mass",
        args.body,
        args.quality,
        args.own / args.rows / 10,
        args.rows,
        args.own / args.rows,
        data_seed=args.seed,
        split_seed=args.seed,
        record=50,
    )


def main() -> None:
    """Do one step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--body", default="hopper")
    parser.add_argument("--quality", default="ME/ME")
    parser.add_argument("--own", type=int, default=3_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--hidden", type=int, nargs="+", default=[128, 128])
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.step == "show":
        show(args.out / "evidence.jsonl")
        return
    started, setting = time.perf_counter(), setting_of(args)
    hidden = tuple(args.hidden)
    place = args.out / "policies" / f"{args.body}-{args.quality.replace('/', '-')}-{args.seed}"
    rows = Rows.of(setting)
    if args.step == "clones":
        # Some of our records judge: clones of evidence do not see them.
        sets, sizes = rows.clone_sets(rows.own[~rows.held_out]), {"batch_size": 256}
        found = train(sets, "bc", args.steps, args.seed, hidden=hidden, **sizes)
        place.mkdir(parents=True, exist_ok=True)
        for name, policy in found.items():
            policy.save(place / f"{name}.safetensors", force=True)
        measured = act_truly(found, args.body, args.episodes)
    elif args.step == "confirm":
        measured = confirm(rows, args.body, args.seed, args.episodes)
    elif args.step == "train":
        measured = train_shares(rows, args.body, args.seed, args.steps, hidden, args.episodes)
    else:
        names = ("ours", "theirs", *SHARES)
        policies = {name: Policy.load(place / f"{name}.safetensors") for name in names}
        steps = {"small": judge_small, "tuned": judge_tuned, "ope": judge_ope}
        measured = steps[args.step](rows, policies, args.seed)
    row = {
        "step": args.step,
        "setting": setting.to_dict(),
        "seed": args.seed,
        "config": {"steps": args.steps, "hidden": hidden, "episodes": args.episodes},
        "measured": measured,
        "seconds": round(time.perf_counter() - started, 1),
        "versions": {
            "puorl": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("jax", "numpy", "mujoco")},
        },
    }
    with (args.out / "evidence.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row, indent=1), flush=True)


if __name__ == "__main__":
    main()
