"""Make two domains, hide one in the other, and look at what a method would see.

python examples/hide_a_domain.py [ROWS]
"""

import sys

import numpy as np

import puorl


def main(rows: int) -> None:
    """Collect, split, and print what is known and what is hidden."""
    target = puorl.collect("hopper", quality="medium", rows=rows, seed=0)
    heavy = puorl.collect("hopper", domain="body_mass", quality="medium", rows=rows, seed=0)
    split = puorl.make_split(target, heavy, rows=rows, seed=0)
    print(split)
    truth = split.reveal("benchmark")  # only because we made the data ourselves
    fraction = np.mean(truth[split.unlabelled] == 0)
    print(f"{fraction:.4f} of the unlabelled rows are the target's; later stages do not see which")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
