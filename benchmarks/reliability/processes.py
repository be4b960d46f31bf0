"""Kill, interrupt, starve and double the commands of puorl: the result must be that of one run.

Every command is run once undisturbed; the hashes of the files that it wrote are what all others
must end with. Then, as often as asked for:

- ``kill``: SIGKILL after a random time, and the same command again, until one ends by itself
  (from the sixth time on it is left alone);
- ``interrupt``: SIGINT; the process must leave with 130 and one line, then the command goes on;
- ``full disk``: no file may grow beyond a random size (RLIMIT_FSIZE, which the system reports as
  any failed write); the process must leave with one line, then the command goes on;
- ``full tmpfs``: the same on a file system of a random size that really is full (mounted, so this
  one needs root; it is made larger before the command goes on);
- ``two``: two processes of the same command at once; one or both end well, none mixes files.

    python benchmarks/reliability/processes.py --kills 200 --interrupts 20 --full 40 --twos 10

The same call goes on where it stopped: trials with this seed in the results are not repeated.
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from own_files import RESULTS as FILES_RESULTS
from own_files import rows

import puorl

RESULTS = FILES_RESULTS.with_name("reliability-processes.jsonl")
PROGRAM = """
import sys
from puorl.cli import main as program

def small(words):
    # Imported here, as the commands themselves import: an interrupt is then a line.
    import puorl.cli.bench as bench
    from puorl.bench.settings import Setting
    from puorl.bench.suites import Budget, LearnerChoice, MethodChoice, Part, Suite
    from puorl.core.run_folder import Checkpoint
    from puorl.pu.learners import NetworkConfig
    from puorl.pu.config import PRESETS, FilterConfig
    from puorl.rl import run as runs

    network = NetworkConfig(hidden=(16, 16), batch_size=64)
    PRESETS["default"] = FilterConfig(
        learner="pvu", network=network, residuals=None, num_warm_up=12, num_main=0
    )
    Checkpoint.__init__.__kwdefaults__["seconds"] = 0.0
    runs.CHECKPOINT_INTERVAL = 12
    learner = LearnerChoice("bc", settings={"hidden": (4,), "batch_size": 8})
    methods = tuple(MethodChoice(name) for name in ("olp", "oracle"))
    part = Part(Setting("body_mass", "hopper", "ME/ME", 0.05, rows=600), learner, methods)
    budget = Budget(steps=12, episodes=2, points=2, curve_episodes=1, checkpoints_per_eval=3)
    bench.find_suite = lambda name: Suite("tiny", "", (part,), budget)
    return dispatch(words)

dispatch, program._dispatch = program._dispatch, small
sys.exit(program.main())
"""
"""The command line with settings of seconds, and a checkpoint after every epoch."""
COMMANDS = {
    "filter": "filter rows.npz --labelled checked.csv --out made",
    "train": "train rows.npz --learner td3_bc --steps 120 --seeds 2 --set hidden=8 batch_size=16 "
    "--out made",
    "bench": "bench run tiny --seeds 2 --workers 1 --out made",
    "collect": "collect --env hopper --quality random --rows 3000 --seed 0 --out made.hdf5",
    "score": "score filter rows.npz --out made.csv",
}
_VOLATILE = {"time", "seconds", "hardware", "versions", "group", "file_hash"}
_SECONDS = 600
_MOST_KILLS = 5


class Case:
    """One command in a folder of its own."""

    def __init__(self, name: str, cache: Path) -> None:
        """Choose the command."""
        self.name, self._cache = name, cache

    def start(
        self, folder: Path, *, limit: int | None = None, words: str = ""
    ) -> subprocess.Popen[str]:
        """Start the command (or other ``words``); no file may grow beyond ``limit`` bytes."""

        def starve() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored in a shell's background job
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        env = {**os.environ, "PUORL_CACHE": str(folder / "cache"), "PYTHONUNBUFFERED": "1",
               # On a full disk Python itself leaves cut .pyc files, on which later imports fail.
               "PYTHONDONTWRITEBYTECODE": "1",
               "JAX_COMPILATION_CACHE_DIR": str(self._cache),
               "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}  # fmt: skip
        command = [sys.executable, "-c", PROGRAM, *(words or COMMANDS[self.name]).split()]
        return subprocess.Popen(
            command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=starve,
        )  # fmt: skip

    def finish(self, folder: Path) -> tuple[int, str]:
        """Run the command to its end; return its exit code and what it wrote to stderr."""
        process = self.start(folder)
        _, error = process.communicate(timeout=_SECONDS)
        return self.code(process, error), error

    def code(self, process: subprocess.Popen[str], error: str) -> int:
        """Return the exit code; 0 if the command found that it had finished before."""
        return 0 if "already exists" in error else process.returncode

    def hashes(self, folder: Path) -> dict[str, str]:
        """Hash what counts of the result: all files but times; of a benchmark its rows."""
        if self.name == "bench":
            return {row["run"]: _hash_row(row) for row in _lines(folder / "made" / "runs.jsonl")}
        made = [p for p in folder.glob("made*/**/*") if p.is_file()] + list(folder.glob("made.*"))
        made = [p for p in made if p.name not in ("record.json", "settings.json", "lock")]
        return {str(p.relative_to(folder)): _hash(p.read_bytes()) for p in sorted(made)}


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _hash_row(row: dict[str, Any]) -> str:
    kept = {name: value for name, value in row.items() if name not in _VOLATILE}
    return _hash(json.dumps(kept, sort_keys=True).encode())


def prepare(folder: Path, fitted: Path | None = None) -> None:
    """Write the inputs of all commands, with a copy of a fitted filter."""
    folder.mkdir(exist_ok=True)
    puorl.save(rows(1200), folder / "rows.npz")
    listed = "\n".join(str(number) for number in range(0, 1200, 6))
    (folder / "checked.csv").write_text(f"row\n{listed}\n")
    if fitted is not None:
        shutil.copytree(fitted, folder / "filter")


def fit(case: Case, folder: Path) -> Path:
    """Fit the filter that ``score`` judges with; return its folder."""
    prepare(folder)
    process = case.start(folder, words=COMMANDS["filter"])
    _, error = process.communicate(timeout=_SECONDS)
    if process.returncode:
        raise RuntimeError(f"the filter of score failed: {error[-500:]}")
    return folder / "made"


def is_clean(error: str) -> bool:
    """Whether stderr has no traceback and at most one line of an error."""
    return "Traceback" not in error and error.count("puorl: error:") <= 1


# ------------------------------------------------------------------------------ disturbances


def kill(case: Case, folder: Path, rng: random.Random, seconds: float) -> dict[str, Any]:
    """Kill the command again and again; return counts."""
    kills = 0
    while True:
        process = case.start(folder)
        wait = rng.uniform(0.2, 1.1) * seconds if kills < _MOST_KILLS else _SECONDS
        try:
            _, error = process.communicate(timeout=wait)
            code = case.code(process, error)
            return {"kills": kills, "code": code, "clean": is_clean(error),
                    "error": error[-300:] if code else ""}  # fmt: skip
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1


def interrupt(case: Case, folder: Path, rng: random.Random, seconds: float) -> dict[str, Any]:
    """Interrupt the command once, then finish it."""
    process = case.start(folder)
    try:
        _, error = process.communicate(timeout=rng.uniform(0.3, 0.9) * seconds)
        left = "ended before"
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=_SECONDS)
        left = str(process.returncode)
    code, last = case.finish(folder)
    return {"left_with": left, "code": code, "clean": is_clean(error) and is_clean(last),
            "error": error[-300:] if "Traceback" in error else ""}  # fmt: skip


def full_disk(case: Case, folder: Path, rng: random.Random, seconds: float) -> dict[str, Any]:
    """Run with a limit on the size of files, then without."""
    del seconds
    limit = int(2 ** rng.uniform(5, 16))
    process = case.start(folder, limit=limit)
    _, error = process.communicate(timeout=_SECONDS)
    first = process.returncode
    code, last = case.finish(folder)
    return {"limit": limit, "left_with": str(first), "code": code,
            "clean": is_clean(error) and is_clean(last) and first in (0, 2),
            "error": error[-300:]}  # fmt: skip


def full_tmpfs(case: Case, folder: Path, rng: random.Random, seconds: float) -> dict[str, Any]:
    """Run where little room is left, then make room."""
    del seconds
    pages = sum(-(-p.stat().st_size // 4096) for p in folder.rglob("*") if p.is_file())
    size = 4096 * (pages + round(2 ** rng.uniform(0, 6)))
    with _mounted(folder, size):
        process = case.start(folder)
        _, error = process.communicate(timeout=_SECONDS)
        first = process.returncode
        _mount("-o", "remount,size=64m", str(folder))
        code, last = case.finish(folder)
        hashes = case.hashes(folder)
    return {"size": size, "left_with": str(first), "code": code, "hashes": hashes,
            "clean": is_clean(error) and is_clean(last) and first in (0, 2),
            "error": error[-300:]}  # fmt: skip


@contextlib.contextmanager
def _mounted(folder: Path, size: int) -> Iterator[None]:
    """Move a folder's content to a small file system in its place."""
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        shutil.rmtree(aside)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def two(case: Case, folder: Path, rng: random.Random, seconds: float) -> dict[str, Any]:
    """Start the command twice; a refused one must say so."""
    first = case.start(folder)
    time.sleep(rng.uniform(0, 0.5) * seconds)
    second = case.start(folder)
    errors = [each.communicate(timeout=_SECONDS)[1] for each in (first, second)]
    codes = sorted([first.returncode, second.returncode])
    return {"codes": codes, "code": codes[0], "clean": all(map(is_clean, errors)),
            "error": " ".join(error[-200:] for error in errors) if codes[0] else ""}  # fmt: skip


DISTURBANCES: dict[str, Callable[..., dict[str, Any]]] = {
    "kill": kill, "interrupt": interrupt, "full disk": full_disk, "two": two,
    "full tmpfs": full_tmpfs,
}  # fmt: skip


def disturb(
    name: str,
    disturbance: str,
    times: int,
    seed: int,
    *,
    cache: Path | None = None,
    before: list[dict[str, Any]] | None = None,
) -> Iterator[dict[str, Any]]:
    """Disturb a command ``times`` times (for ``kill``: until so many kills); yield the trials.

    Trials that were made ``before`` count, and are not made again.
    """
    number, done = 0, 0
    for trial in before or []:
        number, done = number + 1, done + trial.get("kills", 1)
    if done >= times:
        return
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        case = Case(name, cache or root / "compiled")
        fitted = fit(case, root / "fitted") if name == "score" else None
        prepare(root / "whole", fitted)
        code, error = case.finish(root / "whole")  # compiles, so that the next one is as the rest
        if code:
            raise RuntimeError(f"{name}: the undisturbed command failed: {error[-500:]}")
        expected = case.hashes(root / "whole")
        shutil.rmtree(root / "whole")
        prepare(root / "whole", fitted)
        began = time.monotonic()
        case.finish(root / "whole")
        seconds = time.monotonic() - began
        repeats = case.hashes(root / "whole") == expected
        while done < times:
            rng = random.Random(f"{seed} {name} {disturbance} {number}")
            folder = root / f"trial-{number}"
            prepare(folder, fitted)
            found = DISTURBANCES[disturbance](case, folder, rng, seconds)
            same = (found.pop("hashes", None) or case.hashes(folder)) == expected
            number, done = number + 1, done + found.get("kills", 1)
            shutil.rmtree(folder)
            if disturbance == "kill" and not found["kills"]:
                seconds *= 0.8  # it came too late
            yield {"command": name, "disturbance": disturbance, **found, "same": same,
                   "repeats": repeats}  # fmt: skip


def is_good(trial: dict[str, Any]) -> bool:
    """Whether a trial ended as it must."""
    return trial["same"] and trial["clean"] and trial["code"] == 0 and (
        trial.get("left_with", "130") in ("130", "0", "2", "ended before")
    )  # fmt: skip


def main() -> None:
    """Disturb all commands; print and append every trial."""
    parser = argparse.ArgumentParser()
    options = {"kills": 200, "interrupts": 20, "full": 40, "twos": 10, "tmpfs": 0}
    for option, default in options.items():
        parser.add_argument(f"--{option}", type=int, default=default, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS), choices=list(COMMANDS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--compiled", type=Path, help="folder of compiled programs, to be reused")
    given = parser.parse_args()
    config = {"seed": given.seed, "python": platform.python_version(), "puorl": puorl.__version__}
    numbers = dict(zip(DISTURBANCES, (getattr(given, name) for name in options), strict=True))
    earlier = [row for row in _lines(given.out) if row["seed"] == given.seed]
    bad = 0
    with tempfile.TemporaryDirectory() as place:
        cache = given.compiled or Path(place)
        for disturbance, name in itertools.product(DISTURBANCES, given.commands):
            times = -(-numbers[disturbance] // len(given.commands))
            before = [row for row in earlier if (row["command"], row["disturbance"]) ==
                      (name, disturbance)]  # fmt: skip
            for trial in disturb(name, disturbance, times, given.seed, cache=cache, before=before):
                bad += not is_good(trial)
                print("good" if is_good(trial) else "BAD", trial, flush=True)
                with open(given.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps({**trial, "good": is_good(trial), **config}) + "\n")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
