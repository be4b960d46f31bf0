"""`judge_imitation`: whether our machine should imitate the others, from the log alone.

Sharing with imitation gains where the others' behaviour works on our machine better than what can
be learnt from our few rows, and costs where it does not. So two policies are cloned, one from our
rows and one from the others', and both act in a model of our machine (`own_model.py`)
from states of ours. Clones, unlike trained policies, do not exploit the model's errors. The others
are imitated where every member of the model says that their clone earns more. In eight fresh logs
of small scale this erred once and missed two gains (benchmarks/notes/sharing.md): a hint, no proof.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import own_model
from own_model import ModelConfig

from puorl.core.errors import DataError
from puorl.core.formatting import check_positive
from puorl.core.hashing import generator
from puorl.data.split import PUSplit
from puorl.data.training_set import TrainingSet
from puorl.methods import dynamics
from puorl.rl import learner as learners
from puorl.rl.policy import Policy
from puorl.rl.run import RunSpec, run_in_memory

_FEWEST = 100
"""Rows of ours and of the others that clones and a model are learnt from at least."""


@dataclass(frozen=True)
class ImitationChoice:
    """Whom to imitate, and what it rests on."""

    imitate: Literal["all", "none"]
    """The setting of ``pu_share``."""
    returns: Mapping[str, tuple[float, ...]]
    """Mean return of the clones ``ours`` and ``theirs`` in each member of the model."""
    error: float
    """Squared error of the model in held-out rows of ours, relative to the variance of changes."""
    policies: Mapping[str, Policy] = dataclasses.field(repr=False, default_factory=dict)
    """The clones."""

    @property
    def differences(self) -> tuple[float, ...]:
        """Return of the others' clone minus that of ours, in each member of the model."""
        pairs = zip(self.returns["theirs"], self.returns["ours"], strict=True)
        return tuple(theirs - ours for theirs, ours in pairs)

    @property
    def verdict(self) -> str:
        """Say what was chosen and why."""
        ours, theirs = (np.mean(self.returns[name]) for name in ("ours", "theirs"))
        seen = f"{theirs:.4g} against {ours:.4g} of a clone of our rows"
        if self.imitate == "all":
            return f"Imitate the others: in the model their clone earns {seen}, in every member."
        return f"Do not imitate the others: in the model their clone earns {seen}."


def judge_imitation(
    split: PUSplit,
    ours: TrainingSet,
    *,
    clone_steps: int = 8_000,
    clone_hidden: tuple[int, ...] = (128, 128),
    num_starts: int = 100,
    horizon: int = 1_000,
    seed: int = 0,
    **model: Any,
) -> ImitationChoice:
    """Choose the setting ``imitate`` of the method ``pu_share``: ``all`` or ``none``.

    A fifth of our records is held out from clones and model, and tells the model's error.

    Args:
        split: All rows, with rewards.
        ours: The rows that are ours, such as the training set of PU.
        clone_steps: Updates of each clone.
        clone_hidden: Widths of its hidden layers.
        num_starts: States of ours from which clones act, drawn at random.
        horizon: Steps that they act at most.
        seed: Decides all randomness.
        **model: Fields of `ModelConfig`.

    Raises:
        DataError: No rewards, or hardly any rows of ours or of others.
    """
    for name, number in (("num_starts", num_starts), ("horizon", horizon)):
        check_positive(name, number)
    pool = split.pool
    if pool.reward is None:
        raise DataError("imitation: expected rows with a reward, got none; name its column")
    known = pool.rows.next_known
    is_theirs = known.copy()
    is_theirs[ours.rows] = False
    is_theirs[split.labelled] = False
    theirs, own = np.flatnonzero(is_theirs), np.sort(ours.rows[known[ours.rows]])
    if min(len(theirs), len(own)) < _FEWEST:
        raise DataError(
            f"imitation: expected {_FEWEST} or more rows of ours and of others, got {len(own)} and "
            f"{len(theirs)}"
        )
    episode = None if pool.episode is None else pool.episode[own]
    held_out = dynamics.hold_out(episode, len(own), seed, "imitation")
    kept = own[~held_out]
    sets = {"ours": TrainingSet(pool, kept), "theirs": TrainingSet(pool, theirs)}
    made = learners.make("bc", num_steps=clone_steps, hidden=clone_hidden)
    spec = RunSpec(made, sets, {name: [seed] for name in sets}, clone_steps, clone_steps)
    found = run_in_memory(spec, on_checkpoint=lambda progress, lanes: None).policies
    policies = {name: found[f"{name}-seed-{seed}"] for name in sets}
    fitted = own_model.fit(pool, kept, theirs, ModelConfig(**model), seed=seed)
    drawn = generator(seed, "comparison", "starts").choice(own, min(num_starts, len(own)), False)
    start = pool.obs[np.sort(drawn)]
    returns = {
        name: own_model.roll_out(fitted, policy, start, horizon).mean(axis=1)
        for name, policy in policies.items()
    }
    return decide(returns, fitted.error(pool, own[held_out]), policies)


def decide(
    returns: Mapping[str, np.ndarray], error: float, policies: Mapping[str, Policy] | None = None
) -> ImitationChoice:
    """Choose from the returns of both clones in each member of a model."""
    clear = bool((returns["theirs"] > returns["ours"]).all())
    listed = {name: tuple(map(float, each)) for name, each in returns.items()}
    return ImitationChoice("all" if clear else "none", listed, error, dict(policies or {}))
