"""`puorl split`: hide target rows among others, and label a few, for a benchmark."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from puorl.cli import options as opt
from puorl.core.files import check_free
from puorl.data.draw import make_split
from puorl.data.parts import PARTS
from puorl.data.split import Parts, PUSplit, Unit
from puorl.data.split_files import SETTINGS_FILE


@dataclass(frozen=True)
class Split(opt.Command):
    """Draw a benchmark split: hide target rows among others, and label a few.

    Commands that read the folder need the same options for columns.

    Examples:
      puorl split target.hdf5 --others other.hdf5 --out split0
      puorl split a.npz --others b.npz c.npz --rows 200k --seed 1 --out split1
      puorl split a.csv --others b.csv --obs 'temp_*' --action valve --out split2
    """

    target: tyro.conf.Positional[Path]
    """File, glob or folder with rows of the target domain."""
    others: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="PATH...")]
    """One path for each other domain."""
    out: Path
    """Folder to write: index files, hashes and settings."""
    seed: opt.Int = 0
    """Seed; target rows and labels do not depend on the others."""
    rows: opt.Count = 1_000_000
    """Size of the pool."""
    target_fraction: opt.Float = 0.3
    """Fraction of the pool that is the target's."""
    labelled_fraction: opt.Float = 0.01
    """Fraction of the pool that is labelled."""
    unit: Annotated[Unit, tyro.conf.arg()] = "transition"
    """Draw and label single rows, or whole episodes."""
    proportions: Annotated[tuple[float, ...] | None, opt.unset("FLOAT...")] = None
    """Proportions of the other domains among the rest; equal by default."""
    parts: Annotated[Parts, tyro.conf.arg()] = "mixed"
    """Cut train, validation and test after mixing, or every domain by itself (version 0.1)."""
    force: opt.Flag = False
    """Replace the folder if it exists."""
    data: opt.DataOptions = opt.DataOptions()

    def run(self) -> None:
        """Read, draw, write, and print what was made."""
        check_free(self.out, force=self.force, marker=SETTINGS_FILE)
        made = make_split(
            self.data.load([str(self.target)]),
            [self.data.load([str(path)]) for path in self.others],
            rows=self.rows,
            target_fraction=self.target_fraction,
            labelled_fraction=self.labelled_fraction,
            unit=self.unit,
            seed=self.seed,
            proportions=self.proportions,
            parts=self.parts,
        )
        # So that other commands find the rows: from here, or wherever they and the folder move to.
        paths = [str(path) for path in (self.target, *self.others)]
        origin = {"paths": paths, "made_in": str(Path.cwd())}
        dataclasses.replace(made, config={**made.config, **origin}).save(self.out, force=self.force)
        content = {
            "folder": str(self.out),
            "num_labelled": len(made.labelled),
            "num_unlabelled": len(made.unlabelled),
            "unit": made.unit,
            "fingerprint": made.fingerprint,
        }
        self.answer(content, f"{self.out}: {_describe(made)}")


def _describe(split: PUSplit) -> str:
    """Count the rows of each kind and part, in one line."""
    text = f"{len(split.labelled):,} labelled and {len(split.unlabelled):,} unlabelled rows"
    if split.unit == "transition":
        sizes = "/".join(f"{len(split.part(name)[1]):,}" for name in PARTS)
        return f"{text}; unlabelled {'/'.join(PARTS)} {sizes}"
    folds = int(split.labelled_part.max()) + 1
    return f"{text} in whole episodes; {folds} folds"
