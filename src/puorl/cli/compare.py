"""`puorl compare`: train all methods on your own rows, and judge them alike."""

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from puorl.cli import options as opt
from puorl.core import hashing
from puorl.core.errors import ConfigError, require
from puorl.core.files import check_free, write_json
from puorl.core.formatting import check_positive
from puorl.core.hashing import checked_seed
from puorl.core.run_folder import announce_resume, run_folder
from puorl.data.labels import LabelledRows, read_labels
from puorl.methods.base import METHODS
from puorl.ope.config import OPEConfig
from puorl.pu.units import needed_columns, parse_unit
from puorl.rl.learner import NAMES
from puorl.rl.settings import parse_fields, parse_settings

RESULT, PAGE = "compare.json", "report.html"


@dataclass(frozen=True)
class Compare(opt.Command):
    """Train all methods on your own rows with several seeds, and say which is best.

    Methods: OLP (only labelled rows), Sharing-All (all rows), DARA, IGDF, PU (the
    filter), and Oracle where --truth is given. Without --env, half of the
    labelled episodes are held out before any method sees the data, and off-policy
    evaluation judges from them alone; with --env the policies act there. The page
    holds the report of PU's filter, too, as puorl filter makes it.

    Writes a folder: compare.json, report.html and run/ with the policies. After an
    interruption the same command resumes the training, and judges again, also
    with other settings of --judge.

    Examples:
      puorl compare all.csv --labelled "pump == 'P-01'" --unit column:pump --out cmp
      puorl compare all.csv --labelled 'checked == 1' --methods olp,pu --out cmp
      puorl compare mixed.hdf5 --labelled 'ours == 1' --env hopper --out cmp
    """

    paths: opt.Paths
    """Files, globs, or folders of Parquet or Minari."""
    labelled: Annotated[str, tyro.conf.arg(metavar="EXPR|FILE")]
    """Rows known to be the target's, as for puorl filter."""
    out: Path
    """Folder to write."""
    methods: opt.Names = None
    """Among olp, sharing_all, dara, igdf, pu, oracle, with commas; by default all."""
    learner: Annotated[str, opt.choice(*NAMES)] = "td3_bc"
    """Learning algorithm of all methods; bcq takes the place of td3_bc if actions are codes."""
    seeds: opt.Int = 3
    """Policies of each method."""
    steps: opt.Count = 20_000
    """Updates of each policy; the judging makes its own (--judge), which may take longer."""
    seed: opt.Int = 0
    """Seed of everything."""
    unit: Annotated[str, tyro.conf.arg(metavar="UNIT")] = "transition"
    """What the filter decides about: transition, window:50, episode, or column:NAME."""
    truth: opt.Condition = None
    """Rows that truly are the target's; for Oracle alone."""
    env: opt.Env = None
    """Simulated domain to judge in, such as hopper; else the log judges."""
    episodes: opt.Count = 20
    """Episodes of each policy there."""
    held_out: opt.Float = 0.5
    """Fraction of the labelled episodes that judges, without --env."""
    gamma: opt.Float = 0.99
    """Discount of a step, where the log judges."""
    settings: opt.Settings = ()
    """Settings of the learner that are to differ, e.g. gamma=0.98 hidden=64,64."""
    judge: Annotated[tuple[str, ...], opt.unset("NAME=VALUE...")] = ()
    """Settings of the judging that are to differ. It fits networks to each policy, by default with
    20,000 updates; faster: updates=5000 model_updates=5000 hidden=64,64."""
    no_report: opt.Flag = False
    """Skip the report of PU's filter on its own choice."""
    force: opt.Flag = False
    """Replace the folder if it exists, trained anew; drop an unfinished run with other settings."""
    data: opt.DataOptions = opt.DataOptions()

    def run(self) -> None:
        """Read, train, judge, write, print."""
        check_positive("--steps", self.steps)
        check_positive("--seeds", self.seeds)
        checked_seed(self.seed)
        judging = parse_fields("--judge", OPEConfig, self.judge)
        if self.env is not None:
            require("mujoco", extra="sim", purpose="--env")
        check_free(self.out, force=self.force, marker=RESULT)  # before the work
        names = self.data.arguments()
        names["needed"] = needed_columns(parse_unit(self.unit))
        known = read_labels(self.paths, self.labelled, **names)
        if known.sampling == "two" and self.env is None:
            raise ConfigError(
                "--labelled: expected a condition or a list where the log judges, got a file of "
                "rows; join both files, or judge in --env"
            )
        self.compute_synchronously()
        from puorl.comparison.result import as_page
        from puorl.comparison.run import compare, form_for

        form = form_for(self.learner, known.pool)
        words = opt.setting_words(self.settings)
        settings = parse_settings(form, words)
        with (
            run_folder(self.out, force=self.force, marker=RESULT) as folder,
            announce_resume(lambda: folder.has_progress),
        ):
            folder.begin(self._basis(known, form, words))
            work = folder.checkpoint("compare")
            result = compare(
                known.pool,
                known.mask,
                methods=None if self.methods is None else _listed(self.methods),
                learner=self.learner,
                seeds=self.seeds,
                steps=self.steps,
                unit=self.unit,
                held_out=self.held_out,
                truth=self.truth,
                env=self.env,
                episodes=self.episodes,
                gamma=self.gamma,
                seed=self.seed,
                out=work,
                progress=True,
                judge=judging,
                report=not self.no_report,
                **settings,
            )
            html = as_page(result, command=shlex.join(["puorl", *sys.argv[1:]]))
            write_json(folder.result / RESULT, result.to_dict())
            opt.write_page(folder.result / PAGE, html, force=False)
            # A copy: a kill before the end must not lose what was trained.
            shutil.copytree(work / "run", folder.result / "run")
        lines = *opt.note_lines(result.notes), str(result)
        self.answer(result.to_dict(), *lines, f"wrote {self.out / PAGE}; open it in a browser")

    def _basis(self, known: LabelledRows, form: str, words: list[str]) -> dict[str, str | int]:
        """Name what decides the training; how it is judged may change when it is resumed."""
        return {
            "data": known.pool.fingerprint,
            "labels": hashing.of_arrays({"mask": known.mask}),
            "methods": str(self.methods),
            "learner": form,
            "settings": " ".join(words),
            "seeds": self.seeds,
            "seed": self.seed,
            "steps": self.steps,
            "unit": self.unit,
            "held_out": str(self.held_out if self.env is None else 0.0),
            "truth": str(self.truth),
        }


def _listed(names: str) -> list[str]:
    found = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in found if name not in METHODS]:
        raise ConfigError(
            f"--methods: expected names among {', '.join(METHODS)}, got {unknown[0]!r}"
        )
    return found
