"""`puorl collect`: record rows in a simulated domain."""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from puorl.cli.options import Count, Flag
from puorl.core.resources import require_disk
from puorl.data.dataset import Dataset
from puorl.data.formats import check_target, save
from puorl.envs.collect import Quality, collect, return_statistics, row_bytes
from puorl.envs.domains import domain


@dataclass(frozen=True)
class Collect:
    """Record rows: a behaviour policy acts in a domain of a simulated body.

    The same settings and seed give the same bytes, whatever the number of threads. What was made
    once is kept in the cache ($PUORL_CACHE, or puorl in the user's cache folder).

    Examples:
      puorl collect --env hopper --rows 1M --out medium.hdf5
      puorl collect --env hopper --domain body_mass --out mass.hdf5
      puorl collect --env walker2d --quality medium-expert --out me.parquet
      puorl collect --env hopper --domain gravity=0.5 --seed 1 --out light.npz
    """

    env: Annotated[str, tyro.conf.arg(metavar="BODY")]
    """Body: hopper, halfcheetah or walker2d."""
    out: Path
    """File to write; its suffix chooses the format (.hdf5, .npz, .parquet; none: Minari folder)."""
    domain: Annotated[str, tyro.conf.arg(metavar="DOMAIN")] = "nominal"
    """What is shifted: nominal, body_mass, joint_noise, reward, or shifts such as gravity=0.5."""
    quality: Quality = "medium"
    """How good the policies are; medium-expert is half and half."""
    rows: Count = 1_000_000
    """How many rows."""
    seed: int = 0
    """Seed of all random streams."""
    policy: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Policy file to use instead of those of the quality."""
    policy_domain: Annotated[str | None, tyro.conf.arg(metavar="DOMAIN", help_behavior_hint="")] = (
        None
    )
    """Use the policies that learnt in this domain; by default those of the domain itself."""
    horizon: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Steps after which a run is cut, marked as a timeout; by default the task's own 1,000."""
    threads: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Cores to use; all by default."""
    no_cache: Flag = False
    """Neither read nor fill the cache."""
    force: Flag = False
    """Replace the file if it exists."""
    json: Flag = False
    """Print one JSON object on stdout and nothing else."""

    def run(self) -> None:
        """Collect, write, and say in one line what was made."""
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
            horizon=self.horizon,
            threads=self.threads,
            cache=False if self.no_cache else None,
            progress=True,
        )
        save(dataset, self.out, force=self.force)
        if self.json:
            sys.stdout.write(json.dumps(self._told(dataset), indent=2, allow_nan=False) + "\n")
            return
        Console().print(
            f"{self.out}: {return_statistics(dataset)}", highlight=False, soft_wrap=True
        )

    def _told(self, dataset: Dataset) -> dict[str, Any]:
        seen = return_statistics(dataset)
        return {
            "file": str(self.out),
            "num_rows": seen.num_rows,
            "num_episodes": seen.num_episodes,
            "mean_return": seen.mean_return if math.isfinite(seen.mean_return) else None,
            "score": seen.score,
            "fingerprint": dataset.fingerprint,
        }
