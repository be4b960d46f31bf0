"""`puorl collect`: record rows in a simulated domain."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from puorl.cli import options as opt
from puorl.core.resources import require_disk
from puorl.data.formats import check_target, save
from puorl.envs.collect import Quality, collect, return_statistics, row_bytes
from puorl.envs.domains import domain


@dataclass(frozen=True)
class Collect(opt.Command):
    """Record rows: a behaviour policy acts in a domain of a simulated body.

    The same settings and seed give the same bytes, whatever the number of
    threads. Collected rows are cached ($PUORL_CACHE, or puorl in the user's cache
    folder).

    Examples:
      puorl collect --env hopper --rows 1M --out medium.hdf5
      puorl collect --env hopper --domain body_mass --out mass.hdf5
      puorl collect --env walker2d --quality medium-expert --out me.parquet
      puorl collect --env hopper --domain gravity=0.5 --seed 1 --out light.npz
    """

    env: Annotated[str, tyro.conf.arg(metavar="BODY")]
    """Body: hopper, halfcheetah or walker2d."""
    out: Path
    """File to write; its suffix chooses the format (without one, a Minari folder)."""
    domain: Annotated[str, tyro.conf.arg(metavar="DOMAIN")] = "nominal"
    """What is shifted: nominal, body_mass, joint_noise, reward, or shifts such as gravity=0.5."""
    quality: Quality = "medium"
    """How good the policies are; medium-expert is half and half."""
    rows: opt.Count = 1_000_000
    """How many rows."""
    seed: opt.Int = 0
    """Seed of all random streams."""
    policy: Annotated[Path | None, opt.unset("FILE")] = None
    """Policy file to use instead of those of the quality."""
    policy_domain: Annotated[str | None, opt.unset("DOMAIN")] = None
    """Use the policies trained in this domain; by default those of the domain itself."""
    policy_version: opt.OptionalInt = None
    """Version of the policies of the quality; by default the body's standard one."""
    horizon: opt.OptionalInt = None
    """Steps after which a run is cut, marked as a timeout; by default the task's own 1,000."""
    threads: opt.OptionalInt = None
    """Cores to use; all by default."""
    no_cache: opt.Flag = False
    """Neither read nor fill the cache."""
    force: opt.Flag = False
    """Replace the file if it exists."""

    def run(self) -> None:
        """Collect, write, and print what was made in one line."""
        check_target(self.out, force=self.force)
        need = row_bytes(domain(self.env, self.domain)) * self.rows
        require_disk(need, self.out, f"--rows {self.rows:,}", repair="take fewer --rows")
        dataset = collect(
            self.env,
            self.domain,
            self.quality,
            self.rows,
            self.seed,
            policy=self.policy,
            policy_domain=self.policy_domain,
            policy_version=self.policy_version,
            horizon=self.horizon,
            threads=self.threads,
            cache=False if self.no_cache else None,
            progress=True,
        )
        save(dataset, self.out, force=self.force)
        made = return_statistics(dataset)
        content = {
            "file": str(self.out),
            "num_rows": made.num_rows,
            "num_episodes": made.num_episodes,
            "mean_return": made.mean_return if math.isfinite(made.mean_return) else None,
            "score": made.score,
            "fingerprint": dataset.fingerprint,
        }
        self.answer(content, f"{self.out}: {made}")
