"""Count the files of the package that a command runs through: how many must a reader open?

python benchmarks/files_per_path.py                 # filter, train and bench run, on small data
python benchmarks/files_per_path.py --functions 3   # files of which three functions are called
python benchmarks/files_per_path.py --list          # with the names of the files

A file counts when one of its functions (or ``--functions`` of them) is called; importing it is not
enough, nor are calls that only imports make. The benchmark runs the suite `smoke` with one method
(`--method`), after its data was collected, and then again, with nothing left to do.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).resolve().parents[1] / "src"
# Runs the command line with a profile hook; CO_NEWLOCALS (2) is absent in modules and class bodies.
TRACE = """
import json, sys, threading
from pathlib import Path
source, out, words = sys.argv[1], sys.argv[2], sys.argv[3:]
seen, known = {}, set()
def note(frame, event, arg):
    code = frame.f_code
    if event != "call" or code in known or not code.co_filename.startswith(source):
        return
    if not code.co_flags & 2 or code.co_name.startswith("<"):
        return
    while frame := frame.f_back:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(source):
            return  # called by an import
    known.add(code)
    seen[code.co_filename] = seen.get(code.co_filename, 0) + 1
threading.setprofile(note)
sys.setprofile(note)
from puorl.cli.main import main
code = main(words)
sys.setprofile(None)
Path(out).write_text(json.dumps(seen, sort_keys=True))
sys.exit(code)
"""


def write_log(path: Path) -> None:
    """Write 40 runs of five robots as CSV; two robots react otherwise than the rest."""
    rng = np.random.default_rng(0)
    run = np.arange(2_000) // 50
    obs, action = rng.normal(size=2_000), rng.uniform(-1, 1, 2_000)
    after = 0.9 * obs + np.where(run % 5 < 2, 1.0, 0.5) * action
    lines = ["robot,run,obs_0,act_0,next_obs_0,reward"]
    for i in range(2_000):
        robot = f"r{run[i] % 5}"
        lines.append(f"{robot},{run[i]},{obs[i]},{action[i]},{after[i]},{-abs(after[i])}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def files_of(words: str, folder: Path) -> dict[str, int]:
    """Run a command; return every file of which functions were called, and how many."""
    out = folder / "seen.json"
    package = str(SOURCE / "puorl")
    command = [sys.executable, "-c", TRACE, package, str(out), *words.split()]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise SystemExit(f"puorl {words}: exit code {run.returncode}\n{run.stderr}")
    called = json.loads(out.read_text()).items()
    return {str(Path(name).relative_to(package)): number for name, number in called}


def main() -> None:
    """Print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the names of the files")
    parser.add_argument("--functions", type=int, default=1, help="called functions of a file")
    parser.add_argument("--method", default="olp", help="method of the benchmark run")
    chosen = parser.parse_args()
    fields = "--obs obs_0 --action act_0 --next-obs next_obs_0 --episode run"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder / "log.csv")
        bench = f"bench run smoke --only {chosen.method} --seeds 1"
        files_of(f"{bench} --out first", folder)  # collects the data
        commands = {
            "filter": f"filter log.csv {fields} --labelled robot=='r0' --no-report --out kept",
            "train": "train kept --learner td3_bc --steps 20 --out run",
            f"bench run ({chosen.method})": f"{bench} --out second",
            "bench run (nothing left to do)": f"{bench} --out second",
        }
        for title, words in commands.items():
            called = files_of(words, folder)
            files = [name for name, number in called.items() if number >= chosen.functions]
            lines = sum(len((SOURCE / "puorl" / f).read_text().splitlines()) for f in files)
            core = sum(f.startswith("core/") for f in files)
            print(f"{title}: {len(files)} files ({core} of them in core), {lines:,} lines")
            if chosen.list:
                print("\n".join(f"  {f}" for f in files))


if __name__ == "__main__":
    main()
