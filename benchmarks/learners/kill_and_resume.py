"""Is a killed and resumed run the same as an unbroken one? Real kills, on whatever device is there.

    python benchmarks/learners/kill_and_resume.py [--learner td3_bc] [--kills 2] [--out FILE]

Trains in processes of their own: one unbroken, one that is killed (SIGKILL) when it has come some
way and is then started anew until it ends. Compares policies and metrics byte for byte. With
``--without-program`` the compiled program is thrown away before every resume, which on a GPU must
be told as "not bitwise".
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "filter"))
from recorded import RESULTS, Recorded


def main() -> None:
    """Run both, compare, and append a row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--learner", default="td3_bc")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--without-program", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "kill-and-resume.jsonl")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        train(args)
        return
    with tempfile.TemporaryDirectory() as held:
        whole, broken = Path(held) / "whole", Path(held) / "broken"
        subprocess.run(command(args, whole), check=True)
        killed = interrupted(args, broken)
        same = {
            name: contents(whole, name) == contents(broken, name)
            for name in ("policies/*", "metrics.jsonl")
        }
        record = json.loads((broken / "record.json").read_text())
    config = {
        "learner": args.learner,
        "steps": args.steps,
        "seeds": args.seeds,
        "kills": args.kills,
        "without_program": args.without_program,
    }
    measured = {
        "killed_at": killed,
        "bytes_equal": same,
        "resumed": record["resumed"],
        "versions": record["versions"],
    }
    Recorded(args.out).add(config, measured)
    print(json.dumps(measured))


def command(args: argparse.Namespace, folder: Path) -> list[str]:
    """The words of a process that trains in a folder."""
    words = ["--learner", args.learner, "--steps", str(args.steps), "--seeds", str(args.seeds)]
    return [sys.executable, __file__, *words, "--folder", str(folder)]


def train(args: argparse.Namespace) -> None:
    """What the processes do."""
    import puorl
    from puorl.data.training_files import as_training_set
    from puorl.rl.learner import make
    from puorl.rl.run import RunSpec, run

    data = puorl.collect("hopper", quality="medium", rows=20_000, seed=0, threads=1)
    learner = make(args.learner, num_steps=args.steps)
    spec = RunSpec(
        learner, {"data": as_training_set(data)}, {"data": range(args.seeds)}, args.steps, 1_000
    )
    run(args.folder, spec)


def interrupted(args: argparse.Namespace, folder: Path) -> list[int]:
    """Start, kill when the next share of the way is done, and so on to the end."""
    killed: list[int] = []
    for number in range(args.kills):
        goal = args.steps * (number + 1) // (args.kills + 1)
        running = subprocess.Popen(command(args, folder))
        while running.poll() is None and reached(folder) < goal:
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        running.wait()
        killed.append(reached(folder))
        if args.without_program:
            shutil.rmtree(folder / "compiled", ignore_errors=True)
    subprocess.run(command(args, folder), check=True)
    return killed


def reached(folder: Path) -> int:
    """Updates behind the last checkpoint."""
    stored = sorted((folder / "checkpoints" / "group-0").glob("step-*.safetensors"))
    return int(stored[-1].stem.removeprefix("step-")) if stored else 0


def contents(folder: Path, pattern: str) -> dict[str, Any]:
    """Every file's bytes, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob(pattern))}


if __name__ == "__main__":
    main()
