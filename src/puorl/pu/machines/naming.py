"""Several named types: which of them are told apart, and the chance of a unit to be of each.

A partition has one type for the known units of each name, whether or not these differ. Where they
do not, it cuts one type in two somewhere, and all models cut alike. So names are compared first:
if partitions in which two of them are one type are as likely, they are one group, and its units
are as likely of either name.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from puorl.core.hashing import generator
from puorl.pu.machines.evidence import best_evidence
from puorl.pu.machines.findings import visibility
from puorl.pu.machines.mixture import SEEN, fit_types

_CLEAR = 30.0
"""Nats for a difference between names from which no other partitions are looked for."""


class Apart(NamedTuple):
    """Which classes are told apart; ours is the first, names follow."""

    group: np.ndarray
    """(classes,) int64. Those that are not told apart have the same number; 0 is that of ours."""
    shared: np.ndarray
    """(groups + 1, classes + 1). As `Mixture.classes`."""
    nats: tuple[tuple[tuple[int, ...], float], ...]
    """Classes that are not told apart, and the nats for the last difference between them."""

    def label(self, label: np.ndarray) -> np.ndarray:
        """(units,) int64. Groups of known units; -1 for unknown ones."""
        return _labelled(self.group, label)


class Lane(NamedTuple):
    """What a lane sees."""

    z: np.ndarray
    """(units, size). Latents, in the metric of the likelihood."""
    members: tuple[np.ndarray, ...]
    """(units,) int64 each. Its likely partitions; -1 for units that did not shape them."""


def tell_apart(
    views: Sequence[Sequence[Lane]],
    label: np.ndarray,
    driver: np.ndarray,
    seed: int,
) -> Apart:
    """Compare named types by two: those that least differ are joined while that is not seen.

    As of types, two lanes of a view must see a difference, or its only one.

    Args:
        views: The lanes of each view that decides.
        label: (units,) int. Known type of each, 0 for ours; -1 for unknown.
        driver: As in `fit_types`.
        seed: Of starts.
    """
    group, joined = np.arange(int(label.max()) + 1), {}
    while True:
        pairs = combinations(range(int(group.max()) + 1), 2)
        own = _labelled(group, label)
        nats = {pair: _nats_between(views, own, driver, pair, seed) for pair in pairs}
        least = min(nats, key=lambda pair: nats[pair], default=None)
        if least is None or nats[least] >= SEEN:
            break
        group = _join(group, least)
        views = [[_joined(lane, least) for lane in view] for view in views]
        members = tuple(np.flatnonzero(group == least[0]).tolist())
        joined = {one: gain for one, gain in joined.items() if not set(one) < set(members)}
        joined[members] = nats[least]
    return Apart(group, _shared(group, nats), tuple(joined.items()))


def _labelled(group: np.ndarray, label: np.ndarray) -> np.ndarray:
    """(units,) int64. Groups of known units; -1 for unknown ones."""
    return np.where(label >= 0, group[np.maximum(label, 0)], -1)


def _nats_between(
    views: Sequence[Sequence[Lane]],
    label: np.ndarray,
    driver: np.ndarray,
    pair: tuple[int, int],
    seed: int,
) -> float:
    """Nats by which partitions that part two groups are likelier than those that do not.

    Partitions with both types in one are the first to compare with; others are looked for where
    these leave it open.
    """
    found = []
    for view in views:
        apart = np.array([_best(lane, label, driver) for lane in view])
        own = _labelled(_join(np.arange(int(label.max()) + 1), pair), label)
        together = np.array([_best(_joined(lane, pair), own, driver) for lane in view])
        nats = _second(apart - together)
        if SEEN <= nats < _CLEAR:
            rng = generator(seed, "machines", "names")
            searched = [_best(_searched(lane, own, driver, rng), own, driver) for lane in view]
            nats = _second(apart - np.maximum(together, searched))
        found.append(nats)
    return max(found)


def _second(nats: np.ndarray) -> float:
    """The second highest, or the only one."""
    return float(np.sort(nats)[-2:][0])


def _best(lane: Lane, label: np.ndarray, driver: np.ndarray) -> float:
    """Log marginal likelihood of the likeliest partition."""
    found = []
    for member in lane.members:
        of = member >= 0
        who = np.unique(driver[of], return_inverse=True)[1].reshape(-1)
        found.append(best_evidence(lane.z[of], member[of], label[of], who))
    return max(found)


def _joined(lane: Lane, pair: tuple[int, int]) -> Lane:
    """Return partitions with two types in one, and the later ones numbered anew."""
    one, two = pair

    def join(member: np.ndarray) -> np.ndarray:
        made = np.where(member == two, one, member)
        return np.where(made > two, made - 1, made)

    return lane._replace(members=tuple(join(member) for member in lane.members))


def _searched(lane: Lane, label: np.ndarray, driver: np.ndarray, rng: np.random.Generator) -> Lane:
    """Look for partitions that suit other labels."""
    shapes = lane.members[0] >= 0
    found = fit_types(lane.z, label, rng, driver, shapes=shapes)
    return lane._replace(members=tuple(mixture.member for mixture in found))


def _join(group: np.ndarray, pair: tuple[int, int]) -> np.ndarray:
    """Give two groups one number; groups stay numbered in the order of their first classes."""
    joined = np.where(group == pair[1], pair[0], group)
    return np.unique(joined, return_inverse=True)[1].reshape(-1)


def _shared(group: np.ndarray, nats: dict[tuple[int, int], float]) -> np.ndarray:
    """(groups + 1, classes + 1). How each group's probability is shared by its classes.

    Evenly, for known units were chosen and say nothing about how common each is. A little goes to
    other names where the difference from them is just visible. Between ours and names, `seen` says
    as much.
    """
    num = int(group.max()) + 1
    shared = np.zeros((num + 1, len(group) + 1))
    shared[-1, -1] = 1.0
    shared[group, np.arange(len(group))] = 1.0 / np.bincount(group)[group]
    for (one, two), gain in nats.items():
        if one > 0:
            pair, doubt = [one, two], 1.0 - visibility(gain)
            shared[pair] = (1.0 - doubt) * shared[pair] + doubt * shared[pair].mean(axis=0)
    return shared


def even_odds(chance: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """Return the chance to be ours, at most one half where a name is not told from ours.

    So no unit is dropped for want of a difference.
    """
    return np.minimum(chance, 0.5) if is_joined(shared) else chance


def is_joined(shared: np.ndarray) -> bool:
    """Whether ours is not told from another name; False where no other type is named."""
    return bool(shared.size) and bool(shared[0, 0] < 1.0)


def class_chances(
    grouped: np.ndarray, shared: np.ndarray, ours: np.ndarray, seen: float | np.ndarray
) -> np.ndarray:
    """(n, classes + 1) float64. Probability of ours, of each name, and of none of these.

    Args:
        grouped: (n, groups + 1). Of each group and of all others, up to a factor.
        shared: As `Mixture.classes`.
        ours: (n,). Probability to be ours, before what follows from ``seen``.
        seen: As in `decide`. What is not seen leaves even odds, and all other classes are alike.
    """
    others = np.maximum((grouped @ shared)[:, 1:], 1e-300)
    others *= ((1.0 - ours) / others.sum(axis=1))[:, None]
    seen = np.broadcast_to(seen, ours.shape)[:, None]
    made = np.hstack([ours[:, None], others])
    even = np.full(made.shape, 0.5 / others.shape[1])
    even[:, 0] = 0.5
    return seen * made + (1.0 - seen) * even


def with_none(chance: np.ndarray, known: np.ndarray, ours: np.ndarray | None = None) -> np.ndarray:
    """(..., n, k) float64. The same where units may be of no known type; the last is none of these.

    Args:
        chance: (..., n, k). The first is ours.
        known: (n,). How far each unit is trusted to be of a known type.
        ours: (n,). Probability to be ours, where it is decided already.
    """
    made = chance * known[:, None]
    if ours is not None:
        made[..., 0] = ours
    made[..., -1] = np.maximum(1.0 - made[..., :-1].sum(axis=-1), 0.0)
    return made


def with_ours(classes: np.ndarray, ours: np.ndarray) -> np.ndarray:
    """Return the same with other probabilities to be ours; what is left is shared as before."""
    made = np.maximum(classes, 1e-300)
    made[:, 1:] *= ((1.0 - ours) / made[:, 1:].sum(axis=1))[:, None]
    made[:, 0] = ours
    return made


def told(classes: np.ndarray, unnamed: np.ndarray) -> np.ndarray:
    """(n,) int64. The likeliest type of each unit.

    Args:
        classes: Result of `class_chances`.
        unnamed: (n,) int. The type of a unit that is of none of these.
    """
    best = np.argmax(classes, axis=1)
    return np.where(best == classes.shape[1] - 1, unnamed, best)
