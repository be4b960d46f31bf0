"""Put pairs that pairs.py admitted into the package, beside the older versions.

    python benchmarks/behaviour/ship.py --chosen FOLDER [--run FOLDER/run.json]

Adds their files and their rows of returns.json; nothing that is there is replaced.
"""

import argparse
import shutil
from pathlib import Path

from pairs import VERSION

from puorl.core.files import read_json, write_json

POLICIES = Path(__file__).parents[2] / "src/puorl/envs/policies"


def main() -> None:
    """Copy what was admitted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--chosen", type=Path, required=True, help="what pairs.py wrote")
    parser.add_argument("--run", type=Path, required=True, help="run.json of the training")
    given = parser.parse_args()
    returns = read_json(POLICIES / "returns.json")
    for name, row in read_json(given.chosen / "table.json").items():
        admitted = row.pop("admitted")
        print(f"{name}: {'added' if admitted else 'not admitted'}")
        if admitted:
            assert name not in returns["policies"], f"{name} is in the package"
            shutil.copyfile(
                given.chosen / "chosen" / f"{name}.safetensors", POLICIES / f"{name}.safetensors"
            )
            returns["policies"][name] = row
    run = read_json(given.run)
    domains = dict.fromkeys(lane["domain"] for lane in run["lanes"])
    returns["-".join((f"training-v{VERSION}", *domains))] = run
    write_json(POLICIES / "returns.json", returns, force=True)


if __name__ == "__main__":
    main()
