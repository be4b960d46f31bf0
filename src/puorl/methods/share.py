"""PU + sharing: the others' rows join, moved into our dynamics, trusted as far as these are known.

The training set begins as that of PU: rows that are ours, labelled or kept by a filter. Rows of
others hold behaviour, goals and physics that is partly the same. ``share`` says how much of every
batch is theirs; with 0 the training set is PU's. Four steps decide how their rows are used:

1. **Difference.** A network f predicts the change of the state and the reward, (ds, r), of the
   others' rows. An ensemble g predicts what is left of ours, y - f(s, a), from no difference on:
   it learns from kept rows and keeps the weights that explain labelled rows best. Each output of g
   is then shrunk by the factor c in [0, 1] with which it explains labelled rows best. Kept rows
   were chosen by their outcome and would confirm any choice; chance that is not in the labelled
   rows is not applied.
2. **Move.** A row of theirs gets the next state s' + c g(s, a) and the reward r + c g(s, a). What
   f does not know of the physics is in s' already; only the difference is learnt. Where machines
   do not differ, or too few rows are ours to tell, rows stay as they are.
3. **Trust.** Members of g disagree where we have no rows. Their deviation, scaled up to the error
   in labelled rows and relative to the spread of our own changes, is an uncertainty u; a row's
   weight is 1 / (1 + (u / tolerance)^2), and rows below 0.1 are left out: support ends there.
4. **Imitate.** By default only the critic learns from their rows: imitating all of them at a share
   of 0.9 cost Hopper about 20 points (benchmarks/notes/sharing.md). With ``better``, values of
   both kinds of rows are fitted (expectiles, as in IQL), and the policy learns from a row of
   theirs where its action is better than the value of the state.

All of it is rows, rewards and weights, so that every learner that takes these can be used. In IQL
the value network learns with the policy's weights: rows for the critic alone hardly move it.
"""

import dataclasses
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.formatting import check_choice, check_positive
from puorl.core.hashing import generator
from puorl.data.split import PUSplit
from puorl.data.training_set import Groups, TrainingSet
from puorl.methods import dynamics
from puorl.methods.base import Method
from puorl.methods.baselines import Oracle
from puorl.methods.pu import Filtering
from puorl.methods.values import values_of_rows

Imitate = Literal["better", "all", "none"]

_LEAST_TRUST = 0.1
_CRITIC_ONLY = 1e-3
"""Weight in the policy's losses of rows that only the critic learns from."""
_FEWEST = 20
"""Fewest rows of the target and of other domains from which a difference is learnt."""
_LEAST_SPREAD = 0.01
"""Variance of an output, relative to its mean square, below which it counts as constant."""
_LARGEST_RATIO = 10.0
_EPSILON = 1e-3
_HARDLY, _UNLIKE = 0.1, 0.8
"""Of trust and of what is explained: below it, hardly any. Of a difference: machines are unlike."""
_MEASURED_ROWS = 3_000
"""Rows of ours with which sharing was measured to pay (docs/methods/sharing.md)."""


_last_fit: dict[str, tuple[str, Any]] = {}
"""What was fitted last, by its kind, with the key of all that decided it: amounts and variants of
one split share it."""


@dataclass(frozen=True)
class Share(Method):
    """Our rows in the first group, others' rows in the second; subclasses say which are ours."""

    share: float = 0.5
    """Fraction of a batch that is others' rows; 0 is PU."""
    move: bool = True
    """Move others' rows into our dynamics; else their difference lowers the trust in them."""
    imitate: Imitate = "none"
    """Whose actions the policy learns from: others' ``better`` ones, ``all`` or ``none``."""
    tolerance: float = 0.3
    """Uncertainty, relative to the spread of our changes, at which the weight is one half."""
    eta: float = 0.0
    """Without ``move``: factor of the log-ratio of dynamics that is taken off the reward."""
    most_others: int = 200_000
    """Others' rows that are used at most, drawn at random: memory and time grow with them."""
    num_members: int = 5
    hidden: tuple[int, ...] = (256, 256)
    num_steps: int = 10_000
    """Updates of each of the networks f, g and of the values."""
    batch_size: int = 512
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        for name in ("num_members", "num_steps", "batch_size", "most_others"):
            check_positive(name, getattr(self, name))
        check_choice("imitate", self.imitate, get_args(Imitate))
        if not (0.0 <= self.share < 1.0 and self.tolerance > 0.0 and self.eta >= 0.0):
            raise ConfigError(
                "expected share from 0 to below 1, tolerance above 0 and eta 0 or above, got "
                f"{self.share}, {self.tolerance} and {self.eta}"
            )

    @abstractmethod
    def ours(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None
    ) -> TrainingSet:
        """Return our rows, labelled ones included, with what was found as metadata."""

    def prepare(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None = None
    ) -> TrainingSet:
        """Make the training set.

        Args:
            split: Labelled and unlabelled rows, with rewards.
            seed: Seed of the filter, unless one is given, and of all networks.
            checkpoint: Folder for the progress of the filter.

        Raises:
            DataError: No rewards.
        """
        if split.pool.reward is None:
            raise DataError(f"{self.name}: expected rows with a reward, got none; name its column")
        ours = self.ours(split, seed=seed, checkpoint=checkpoint)
        metadata = {
            "method": self.name,
            "num_rows": len(ours),
            **ours.metadata,
            "share": self.share,
            "num_ours": len(ours),
        }
        ours = dataclasses.replace(ours, metadata=metadata)
        known = split.pool.rows.next_known
        is_theirs = np.zeros(len(split.pool), bool)
        is_theirs[split.unlabelled] = True
        is_theirs[ours.rows] = False
        theirs = np.flatnonzero(is_theirs & known)
        if len(theirs) > self.most_others:
            drawn = generator(seed, "methods", "others").choice(
                len(theirs), self.most_others, replace=False
            )
            theirs = theirs[np.sort(drawn)]
        enough = min(len(theirs), int(known[ours.rows].sum())) >= _FEWEST
        if self.share == 0.0 or not enough:
            return ours
        own = ours.rows[known[ours.rows]]
        decides = {
            "split": split.fingerprint,
            "rows": hashing.of_arrays({"ours": ours.rows, "theirs": theirs}),
            "networks": [self.num_members, self.hidden, self.num_steps, self.batch_size],
            "learning_rate": self.learning_rate,
            "seed": seed,
        }
        found = _fit_once("difference", decides, lambda: self._difference(split, own, theirs, seed))
        moved = found.moved(self)
        joins = moved.trust >= _LEAST_TRUST
        facts = {"trusted_fraction": float(joins.mean()), **found.facts}
        if not joins.any():
            return dataclasses.replace(ours, metadata=metadata | facts)
        decides |= {"move": self.move, "eta": self.eta, "tolerance": self.tolerance}
        return self._join(split, ours, theirs[joins], moved.rows(joins), facts, decides)

    def _difference(
        self, split: PUSplit, ours: np.ndarray, theirs: np.ndarray, seed: int
    ) -> "Difference":
        """Learn how the domains differ."""
        pool = split.pool
        both = np.concatenate([ours, theirs])
        x = np.concatenate([pool.obs[both], pool.action[both]], axis=1).astype(np.float64)
        x = ((x - x.mean(axis=0)) / (x.std(axis=0) + _EPSILON)).astype(np.float32)
        assert pool.reward is not None
        change = np.concatenate(
            [pool.next_obs[both] - pool.obs[both], pool.reward[both, None]], axis=1
        )
        num = len(ours)
        held = [
            dynamics.hold_out(None if pool.episode is None else pool.episode[r], len(r), seed, who)
            for r, who in ((ours, "ours"), (theirs, "others"))
        ]
        is_labelled = np.isin(ours, split.labelled)
        if is_labelled.any() and is_labelled.sum() <= num // 2:
            # A filter chose the others by their outcome; labelled rows alone judge without bias.
            held[0] = is_labelled
        common: dict[str, Any] = {
            "seed": seed,
            "hidden": self.hidden,
            "num_steps": self.num_steps,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
        }
        f = dynamics.fit(
            x[num:], change[num:], held[1], purpose="others' dynamics", num_members=1, **common
        )
        left = change - f.predict(x)[0]
        g = dynamics.fit(
            x[:num],
            left[:num],
            held[0],
            purpose="our difference",
            num_members=self.num_members,
            start_at_zero=True,
            **common,
        )
        mean, deviation = g.predict(x)
        factor = shrinkage(left[:num][held[0]], mean[:num][held[0]])
        difference = factor * mean
        error = np.square(left[:num][held[0]] - difference[:num][held[0]]).mean(axis=0)
        # An output that hardly varies, such as a constant reward, must not outweigh the others.
        size = np.square(change[:num], dtype=np.float64).mean(axis=0)
        spread = np.maximum(change[:num].var(axis=0), _LEAST_SPREAD * size) + _EPSILON**2
        doubt = uncertainty(deviation[num:], deviation[:num][held[0]], error, spread)
        now = np.square(left[num:] - difference[num:]) - np.square(left[num:])
        log_ratio = 0.5 * (now / np.maximum(error, _EPSILON**2)).sum(axis=1)
        relative = (np.square(difference[num:]) / spread).mean(axis=1)
        before = np.square(left[:num][held[0]]).mean(axis=0).clip(1e-12)
        return Difference(
            size=difference[num:].astype(np.float32),
            relative=relative,
            doubt=doubt,
            log_ratio=np.clip(log_ratio, -_LARGEST_RATIO, _LARGEST_RATIO),
            facts={
                "difference": float(np.sqrt(relative.mean())),
                "shrinkage": float(factor.mean()),
                "explained": float(1.0 - (error / before).mean()),
            },
        )

    def _join(
        self,
        split: PUSplit,
        ours: TrainingSet,
        theirs: np.ndarray,
        moved: "Moved",
        facts: dict[str, Any],
        decides: dict[str, Any],
    ) -> TrainingSet:
        pool, num = split.pool, len(ours)
        assert pool.reward is not None
        rows = np.concatenate([ours.rows, theirs])
        next_obs, reward = pool.next_obs[rows], pool.reward[rows]
        next_obs[num:] += moved.change[:, :-1].astype(next_obs.dtype)
        reward[num:] += moved.change[:, -1].astype(reward.dtype)
        learns = np.full(len(theirs), self.imitate == "all")
        if self.imitate == "better":

            def fit() -> tuple[np.ndarray, np.ndarray]:
                return values_of_rows(
                    pool.rows[rows],
                    reward,
                    next_obs,
                    num_first=num,
                    seed=decides["seed"],
                    hidden=self.hidden,
                    num_steps=self.num_steps,
                    batch_size=self.batch_size,
                )

            q, v = _fit_once("values", decides, fit)
            learns = q[num:] > v[num:]
        in_policy = np.where(learns, 1.0, _CRITIC_ONLY)
        weight = np.append(np.ones(num), moved.trust * in_policy)
        return TrainingSet(
            pool,
            rows,
            returns=split.returns,
            weight=weight.astype(np.float32),
            reward=reward,
            critic_weight=np.append(np.ones(num), 1.0 / in_policy).astype(np.float32),
            next_obs=next_obs if self.move else None,
            groups=Groups(num_first=num, first_share=1.0 - self.share),
            metadata={
                **ours.metadata,
                **facts,
                "num_rows": len(rows),
                "num_theirs": len(theirs),
                "mean_trust": float(moved.trust.mean()),
                "imitated_fraction": float(learns.mean()),
            },
        )


@dataclass(frozen=True)
class PUShare(Filtering, Share):
    """Our rows are those of PU."""

    name: ClassVar[str] = "pu_share"

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.mode == "soft":
            raise ConfigError(f"{self.name}: expected mode hard or top_alpha, got 'soft'")

    def ours(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None
    ) -> TrainingSet:
        """Return the rows that a filter keeps, and the labelled ones."""
        fitted = self.fitted(split, seed=seed, checkpoint=checkpoint)
        if fitted.mode == "soft":
            raise ConfigError(f"{self.name}: expected a filter of mode hard or top_alpha, got soft")
        return dataclasses.replace(fitted.filter(split), metadata=self.found(fitted, split))


@dataclass(frozen=True)
class OracleShare(Share):
    """Our rows are those of Oracle: what sharing gets where every row is labelled."""

    name: ClassVar[str] = "oracle_share"

    def ours(
        self, split: PUSplit, *, seed: int, checkpoint: str | os.PathLike[str] | None
    ) -> TrainingSet:
        """Return all true target rows."""
        del checkpoint
        found = Oracle().prepare(split, seed=seed)
        metadata = {"seed": int(seed), "alpha": found.metadata["alpha"]}
        return dataclasses.replace(found, metadata=metadata)


def doubts(metadata: Mapping[str, Any]) -> list[str]:
    """Say what speaks against sharing, from the metadata of a training set; empty without sharing.

    >>> doubts({"share": 0.5, "num_ours": 2_000, "trusted_fraction": 0.02, "difference": 0.4,
    ...         "explained": 0.9})
    ["2 % of the others' rows are trusted: this is hardly more than PU"]
    """
    if not metadata.get("share"):
        return []
    if "trusted_fraction" not in metadata:
        return ["too few rows with a next state to learn how the machines differ: this is PU"]
    found = []
    if metadata["trusted_fraction"] < _HARDLY:
        part = f"{100 * metadata['trusted_fraction']:.0f} %"
        found.append(f"{part} of the others' rows are trusted: this is hardly more than PU")
    if metadata["explained"] < _HARDLY:
        found.append(
            f"{100 * max(0.0, metadata['explained']):.0f} % of how the machines differ was learnt: "
            "others' rows are used nearly as they are"
        )
    if metadata["difference"] > _UNLIKE:
        found.append(
            f"the machines hardly resemble each other: they differ by {metadata['difference']:.2g} "
            "of the spread of our own changes"
        )
    if metadata["num_ours"] > 10 * _MEASURED_ROWS:
        found.append(
            f"{metadata['num_ours']:,} rows count as ours; sharing was measured to pay with "
            f"{_MEASURED_ROWS:,}, and with many it can only cost"
        )
    return found


def _fit_once(kind: str, decides: dict[str, Any], fit: Callable[[], Any]) -> Any:
    """Return the last result of this kind if the same decided it, else a new one."""
    key = hashing.of_settings(decides)
    if _last_fit.get(kind, ("",))[0] != key:
        _last_fit.pop(kind, None)  # first, so that only one is in memory
        _last_fit[kind] = key, fit()
    return _last_fit[kind][1]


class Difference(NamedTuple):
    """How other rows would have ended in the target domain."""

    size: np.ndarray
    """(n, d + 1) float32. To be added to the next state and to the reward."""
    relative: np.ndarray
    """(n,) float64. Mean square of it, relative to the spread of our own changes."""
    doubt: np.ndarray
    """(n,) float64. See `uncertainty`."""
    log_ratio: np.ndarray
    """(n,) float64. Log of others' density of the change over ours."""
    facts: dict[str, float]
    """For the metadata of a training set."""

    def moved(self, method: Share) -> "Moved":
        """Apply the settings of a method."""
        doubt, change = self.doubt, self.size
        if not method.move:
            doubt, change = doubt + self.relative, np.zeros_like(change)
            change[:, -1] = -method.eta * self.log_ratio
        return Moved(change, 1.0 / (1.0 + doubt / method.tolerance**2))


class Moved(NamedTuple):
    """Rows of other domains, corrected to the target domain."""

    change: np.ndarray
    """(n, d + 1) float32. Added to the next state and to the reward."""
    trust: np.ndarray
    """(n,) float64 in (0, 1]."""

    def rows(self, chosen: np.ndarray) -> "Moved":
        """Select rows by a mask."""
        return Moved(self.change[chosen], self.trust[chosen])


def shrinkage(left: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """(j,) float64 in [0, 1]. Factor with which each output explains held-out rows best."""
    size = np.square(predicted, dtype=np.float64).sum(axis=0)
    along = (left.astype(np.float64) * predicted).sum(axis=0)
    return np.clip(np.divide(along, size, out=np.zeros_like(size), where=size > 0), 0.0, 1.0)


def uncertainty(
    deviation: np.ndarray, held_out: np.ndarray, error: np.ndarray, spread: np.ndarray
) -> np.ndarray:
    """(n,) float64. Mean squared uncertainty of a difference, relative to the spread of changes.

    Args:
        deviation: (n, j) float. Of the ensemble's members.
        held_out: (h, j) float. The same in held-out rows.
        error: (j,) float64. Mean squared error there; deviations are scaled up to it, never down.
        spread: (j,) float64. Variance of our own changes.
    """
    usual = np.square(held_out, dtype=np.float64).mean(axis=0)
    scale = np.maximum(1.0, np.divide(error, usual, out=np.ones_like(error), where=usual > 0))
    return (np.square(deviation, dtype=np.float64) * scale / spread).mean(axis=1)
