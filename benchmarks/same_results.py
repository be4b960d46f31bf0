"""Record what a source tree computes, to compare two trees: split, fits, trainings, benchmark.

PYTHONPATH=TREE/src python benchmarks/same_results.py record FILE
python benchmarks/same_results.py compare BEFORE AFTER

Arrays and policies are compared as hashes of their bytes, on one machine.
"""

import hashlib
import inspect
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def hash_of(array: np.ndarray) -> str:
    """Hash the dtype, the shape and the bytes."""
    array = np.ascontiguousarray(array)
    return hashlib.sha256(f"{array.dtype.str}{array.shape}".encode() + array.tobytes()).hexdigest()


def rows(seed: int, gain: float, num_rows: int = 3_000) -> Any:
    """Simulate episodes of a linear system."""
    import puorl

    rng, columns = np.random.default_rng(seed), np.array([[1, 0, 0.5], [0, 1, -0.5]])
    obs, after = (np.zeros((num_rows, 3), np.float32) for _ in range(2))
    action = rng.uniform(-1, 1, (num_rows, 2)).astype(np.float32)
    for i in range(num_rows):
        obs[i] = rng.normal(size=3) if i % 100 == 0 else after[i - 1]
        after[i] = 0.9 * obs[i] + gain * action[i] @ columns + 0.05 * rng.normal(size=3)
    ends = np.arange(num_rows) % 100 == 99
    return puorl.Dataset.from_arrays(
        obs=obs,
        action=action,
        next_obs=after,
        reward=-np.abs(after).sum(axis=1),
        timeout=ends,
        episode=np.arange(num_rows) // 100,
    )


def record() -> dict[str, Any]:
    """Compute everything with the tree on the path."""
    import puorl

    ours, others = rows(0, 1.0), rows(1, 0.5)
    before = "labelled_share" in inspect.signature(puorl.make_split).parameters
    word = "share" if before else "fraction"
    sizes: dict[str, Any] = {f"target_{word}": 0.3, f"labelled_{word}": 0.05}
    if "parts" in inspect.signature(puorl.make_split).parameters:
        sizes["parts"] = "stratified"
    out: dict[str, Any] = {}
    for unit in ("transition", "episode"):
        split = puorl.make_split(ours, [others], rows=4_000, unit=unit, seed=3, **sizes)
        arrays = (split.labelled, split.unlabelled, split.pool.obs)
        out[f"split by {unit}"] = [hash_of(each) for each in arrays]
        flt = puorl.DomainFilter(unit=unit).fit(split, seed=1)
        interval = [round(end, 9) for end in flt.alpha_.interval or ()]
        scores = getattr(flt, "predict_proba", flt.score)(split)
        found = [hash_of(scores), hash_of(flt.predict(split))]
        out[f"fit by {unit}"] = [*found, repr(flt.alpha_.value), interval]
        kept = flt.filter(split)
        report = flt.report().to_dict()
        numbers = report.get("quality", report)  # a report on machines has them at the top
        quality = {name: numbers[name]["value"] for name in ("recall", "precision")}
        out[f"report by {unit}"] = {"verdict": report["verdict"], **quality}
        if unit == "episode":
            continue
        probe = np.random.default_rng(2).normal(size=(50, 3)).astype(np.float32)
        for name in ("td3_bc", "iql", "cql", "rebrac", "td7", "bc"):
            data = kept if name in ("td3_bc", "iql") else ours
            policy = puorl.train(name, data, steps=60, batch_size=64, seed=5)
            out[f"train {name}"] = hash_of(np.stack([policy.act(each) for each in probe]))
        if not hasattr(ours, "action_codes"):
            continue
        coded = puorl.Dataset.from_arrays(
            obs=ours.obs,
            action=(ours.action[:, 0] > 0).astype(int),
            next_obs=ours.next_obs,
            reward=ours.reward,
            discrete_actions=True,
        )
        for name in ("bc", "iql", "cql", "bcq"):
            policy = puorl.train(name, coded, steps=60, batch_size=64, seed=5)
            out[f"train {name} on codes"] = hash_of(policy.probabilities(probe))
    with tempfile.TemporaryDirectory() as folder:
        words = ["bench", "run", "smoke", "--seeds", "2", "--out", f"{folder}/results"]
        subprocess.run([sys.executable, "-m", "puorl", *words], check=True, capture_output=True)
        lines = Path(folder, "results", "runs.jsonl").read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
    names = ("method", "seed", "returns", "scores")
    out["bench run smoke"] = sorted(
        ([row["setting"]["name"], *(row[name] for name in names)] for row in found), key=str
    )
    return out


def main() -> None:
    """Record or compare, as the first word says."""
    if sys.argv[1] == "record":
        Path(sys.argv[2]).write_text(json.dumps(record(), indent=1) + "\n", encoding="utf-8")
        return
    before, after = (json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[2:4])
    for name, value in before.items():
        print(f"{name}: {'equal' if value == after.get(name) else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
