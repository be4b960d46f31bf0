"""What the partitions of all views say of units, and the decision that they make together."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from puorl.core.hashing import generator
from puorl.core.stats import Estimate
from puorl.pu.machines.dynamics import UnitLatents, View
from puorl.pu.machines.findings import UnitTable
from puorl.pu.machines.mixture import FALSELY_OUTSIDE, SURE, Mixture, weights
from puorl.pu.machines.naming import class_chances, even_odds, is_joined, told, with_none, with_ours
from puorl.pu.machines.newcomers import Ordinary
from puorl.pu.machines.views import ViewModel, clearest, extra_covariance
from puorl.pu.units import Units

_NUM_DRAWS, _LEAST_DRAWS = 2_000, 200
_MISJUDGED = 0.01
"""Fraction of sure decisions that are wrong, as a deviation: 57 of the 5,333 with a probability
below .05 or above .95, in the judged rows of ``benchmarks/results/fleets-intervals.jsonl``."""
_MOST_DRAWN = 20_000_000
"""Units that are drawn for intervals, in all draws: with many, the draws are fewer."""


class LaneChances(NamedTuple):
    """What the partitions of one view say of all units."""

    view: View
    chance: np.ndarray
    """(partitions, n) float64. Probability to be ours."""
    weight: np.ndarray
    """(partitions,) float64. Weight of each opinion."""
    prior: float
    """Fraction of units that are ours."""
    grouped: np.ndarray = np.zeros((0, 0, 0))
    """(partitions, n, groups + 1) float64. Probability of each group of known units, and of all
    others; empty where no other type is named."""
    shared: np.ndarray = np.zeros((0, 0))
    """As `Mixture.classes`."""


def judge_lanes(
    views: Sequence[ViewModel],
    latents: Sequence[Sequence[UnitLatents]],
    median_rows: float,
    driver: np.ndarray | None = None,
    *,
    fitted: bool = False,
) -> list[LaneChances]:
    """Return what every view says that sees types; what the best one says, if none does.

    Args:
        views: The models.
        latents: z of the units, for each view and lane.
        median_rows: Rows of a unit at which no further uncertainty is added.
        driver: (n,) int. Who drives each unit; None where that is not known, or one drives all.
        fitted: Whether these are the units of the fit.
    """
    gain = [max(mixture.gain for mixture in view.mixtures) for view in views]
    made = []
    for number, view in enumerate(views):
        if gain[number] < max(gain) and gain[number] < SURE:
            continue
        chance, prior, grouped = [], [], []
        for mixture in view.mixtures:
            own = latents[number][mixture.lane]
            who = np.zeros(len(own.z), int) if driver is None else driver
            extra = extra_covariance(view, mixture.lane, own, median_rows)
            z = view.embed(mixture.lane, own.z) - mixture.shift[who]
            chance.append(mixture.ours_probability(z, extra, fitted=fitted))
            prior.append(mixture.shares[list(mixture.ours)].sum())
            if mixture.classes.size:
                grouped.append(mixture.group_probability(z, extra, fitted=fitted))
        weight = weights(view.mixtures)
        prior = float(weight @ np.array(prior))
        each = LaneChances(view.view, np.stack(chance), weight, prior)
        if grouped:
            each = each._replace(grouped=np.stack(grouped), shared=view.mixtures[0].classes)
        made.append(each)
    return made


def decide(
    views: Sequence[ViewModel],
    latents: Sequence[Sequence[UnitLatents]],
    lanes: Sequence[LaneChances],
    found: Units,
    label: np.ndarray,
    driver: np.ndarray | None = None,
    *,
    seen: float | np.ndarray,
    ordinary: Ordinary | None = None,
) -> UnitTable:
    """Combine all opinions to a decision about every unit: ours is ours in every view that counts.

    Args:
        views: The models.
        latents: z of the units, for each view and lane.
        lanes: Result of `judge_lanes`.
        found: Names and sizes of the units.
        label: (n,) int. 0 for units that are known to be ours, above 0 for those known to be of
            another type, -1 for unknown ones.
        driver: As in `judge_lanes`.
        seen: Chance that types are seen, for all units or each. What is not seen leaves even odds.
        ordinary: How odd units look; None for the units of the fit, whose types are known.
    """
    shared = lanes[0].shared
    raw = even_odds(in_all(lanes, [each.weight @ each.chance for each in lanes]), shared)
    said = chance_of_ours(lanes, seen, ordinary)
    prior = even_odds(in_all(lanes, [np.array(each.prior) for each in lanes]), shared)
    prior = 0.5 + seen * (prior - 0.5)
    probability = np.where(label < 0, said, label == 0)
    keep = probability >= 0.5
    agreement = _agreement(lanes, keep, ordinary)
    number = next(i for i, view in enumerate(views) if view is clearest(views)[0])
    view, mixture = clearest(views)
    k = mixture.lane
    own = latents[number][k]
    who = np.zeros(len(own.z), int) if driver is None else driver
    z = view.embed(k, own.z) - mixture.shift[who]
    spread = extra_covariance(view, k, own, float(np.median(own.num_rows)))
    if ordinary is None:
        outside = mixture.is_outside(z, spread) & ~keep
    else:
        outside = ordinary.is_outside
    if not shared.size:
        other = 1 + np.argmax(mixture.log_density(z)[:, 1:], axis=1)
        cluster, classes = np.where(outside, -1, np.where(keep, 0, other)), np.zeros((len(z), 0))
    else:
        if ordinary is None:
            fitted = Ordinary(mixture.ordinary(z, spread), FALSELY_OUTSIDE)
            known = np.where(keep, 1.0, fitted.trust)
        else:
            known = ordinary.trust
        classes, votes = _judge_classes(lanes, known, label, raw, said, seen)
        cluster = told(classes, np.where(outside, -1, mixture.nearest_unnamed(z)))
        agreement = np.minimum(agreement, votes)
    position, scale = project(mixture, z)
    clipped = np.clip(said, 1e-12, 1.0 - 1e-12)
    return UnitTable(
        name=found.name,
        num_rows=found.num_rows,
        labelled=label == 0,
        probability=probability,
        evidence=np.log(clipped / (1.0 - clipped)) - np.log(prior / (1.0 - prior)),
        misfit=np.square(z - mixture.mean[0]).sum(axis=1) / 2.0,
        keep=keep,
        cluster=np.where(label >= 0, label, cluster),
        agreement=agreement,
        position=position,
        spread=np.sqrt(view.inflation[k] / np.maximum(own.num_rows, 1)) * scale,
        classes=classes,
    )


def _judge_classes(
    lanes: Sequence[LaneChances],
    known: np.ndarray,
    label: np.ndarray,
    raw: np.ndarray,
    said: np.ndarray,
    seen: float | np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the chance of each class, and the weight of the lanes for the likeliest one.

    That is 1 for ours, since how far lanes agree on it is known, and for units that are known.

    Args:
        lanes: As in `decide`.
        known: (n,). How far each unit is trusted to be of a known type.
        label: As in `decide`.
        raw: (n,). Probability to be ours that all lanes give.
        said: (n,). The same after what is not seen, and what is not trusted.
        seen: As in `decide`.
    """
    shared = lanes[0].shared
    pairs = [(each.weight, each.grouped) for each in lanes]
    grouped = in_all(lanes, [np.tensordot(weight, each, 1) for weight, each in pairs])
    classes = with_none(class_chances(grouped, shared, raw, seen), known, said)
    classes[label >= 0] = np.eye(classes.shape[1])[label[label >= 0]]
    chosen = [np.tensordot(weight, with_none(each, known) >= 0.5, 1) for weight, each in pairs]
    votes = in_all(lanes, chosen) @ shared
    best = np.argmax(classes, axis=1)
    settled = (best == 0) | (label >= 0)
    return classes, np.where(settled, 1.0, votes[np.arange(len(votes)), best])


def decide_again(
    table: UnitTable,
    lanes: Sequence[LaneChances],
    nats: np.ndarray,
    prior: float,
    seen: float,
    trusted: np.ndarray | None = None,
) -> tuple[UnitTable, list[LaneChances]]:
    """Return decisions and opinions with other evidence for some units.

    Args:
        table: Decisions.
        lanes: The opinions that they follow from.
        nats: (n,) float. By how much ours is likelier; NaN for units that stay as they are.
        prior: Log odds to be ours, of any unit.
        seen: As in `decide`.
        trusted: (n,) float. As in `quality`.
    """
    asked = np.isfinite(nats)
    chance = np.where(asked, 1.0 / (1.0 + np.exp(-np.nan_to_num(nats) - prior)), 0.5)
    again = [each._replace(chance=np.where(asked, chance, each.chance)) for each in lanes]
    said = even_odds(chance, lanes[0].shared)
    said = (0.5 + seen * (said - 0.5)) * (1.0 if trusted is None else trusted)
    keep = np.where(asked, said >= 0.5, table.keep)
    # What is no longer ours is of the type that lies nearest on the map.
    others = np.unique(table.cluster[table.cluster > 0])
    cluster = np.where(keep, 0, table.cluster)
    if len(others):
        place = np.stack([table.position[table.cluster == k].mean(axis=0) for k in others])
        away = np.square(table.position[:, None] - place).sum(axis=2)
        cluster = np.where(~keep & (cluster == 0), others[np.argmin(away, axis=1)], cluster)
    classes = table.classes
    if lanes[0].shared.size:
        classes = np.where(asked[:, None], with_ours(classes, said), classes)
        unnamed = np.where(cluster < classes.shape[1] - 1, -1, cluster)
        cluster = told(classes, unnamed)
    changed = {
        "probability": said,
        "evidence": nats,
        "keep": keep,
        "cluster": cluster,
        "agreement": np.ones(len(nats)),  # of all models, which are not asked
    }
    columns = {k: np.where(asked, v, getattr(table, k)) for k, v in changed.items()}
    return UnitTable(**table._asdict() | columns | {"classes": classes}), again


def chance_of_ours(
    lanes: Sequence[LaneChances], seen: float | np.ndarray, ordinary: Ordinary | None
) -> np.ndarray:
    """(n,) float64. Chance to be ours by all opinions, as far as types are seen; as in `decide`."""
    said = even_odds(in_all(lanes, [e.weight @ e.chance for e in lanes]), lanes[0].shared)
    said = 0.5 + seen * (said - 0.5)
    return said if ordinary is None else said * ordinary.trust


def is_undecided(seen: float, lanes: Sequence[LaneChances]) -> bool:
    """Return whether nobody is dropped but units outside all types.

    So it is where types are hardly seen, and where a name is not told from ours: the probability of
    ours is near one half there, and less trust in a unit would take it below.
    """
    return seen < 0.5 or is_joined(lanes[0].shared)


def _agreement(
    lanes: Sequence[LaneChances], keep: np.ndarray, ordinary: Ordinary | None
) -> np.ndarray:
    """(n,) float64. Weight of the lanes that decide alike, each with how odd a unit looks.

    So no lane calls a unit ours that is unlike all others.
    """
    odd = 1.0 if ordinary is None else ordinary.trust
    kept = [each.chance * odd >= 0.5 for each in lanes]
    pairs = list(zip(lanes, kept, strict=True))
    agree = in_all(lanes, [each.weight @ (own | ~keep) for each, own in pairs])
    return agree * np.where(keep, 1.0, np.max([each.weight @ ~own for each, own in pairs], axis=0))


def in_all(lanes: Sequence[LaneChances], said: Sequence[np.ndarray]) -> np.ndarray:
    """Return the chance to be ours in all views, given that in each.

    Horizons of one model see nearly the same, so the least of theirs counts; views of different
    models err each in their own way.
    """
    least: dict[View, np.ndarray] = {}
    for each, chance in zip(lanes, said, strict=True):
        least[each.view] = np.minimum(least.get(each.view, 1.0), chance)
    return np.prod(list(least.values()), axis=0)


def project(mixture: Mixture, z: np.ndarray) -> tuple[np.ndarray, float]:
    """Return two coordinates in which types differ most, and the scale of the map.

    The first leads from our type to the nearest other one, in deviations of a type's units.
    """
    root = np.linalg.cholesky(np.linalg.inv(mixture.covariance))
    seen, mean = (z - mixture.mean[0]) @ root, (mixture.mean - mixture.mean[0]) @ root
    scale = float(
        np.exp(np.log(np.diag(np.linalg.cholesky(np.linalg.inv(mixture.covariance)))).mean())
    )
    away = mean[1:][np.argmin(np.square(mean[1:]).sum(axis=1))]
    first = away / max(np.linalg.norm(away), 1e-12)
    rest = seen - np.outer(seen @ first, first)
    between = mean - np.outer(mean @ first, first)
    _, sizes, directions = np.linalg.svd(
        np.vstack([10.0 * between, rest - rest.mean(axis=0)]), full_matrices=False
    )
    second = directions[0] if len(sizes) and z.shape[1] > 1 else np.zeros(z.shape[1])
    return np.stack([seen @ first, seen @ second], axis=1), scale


def quality(
    table: UnitTable,
    lanes: Sequence[LaneChances],
    seen: float,
    seed: int,
    *,
    trusted: np.ndarray | None = None,
) -> tuple[Estimate, Estimate, Estimate]:
    """Return alpha, recall and precision over the rows of unlabelled units, with intervals.

    Lanes are drawn by their weight and units by their probabilities: where lanes disagree or units
    lie between types, the intervals are wide. Some units are misjudged by all lanes alike, about
    one in a hundred. With the chance that no types are seen, any fraction is as likely as any
    other; where that is likelier than not, the intervals say nothing.

    Args:
        table: The decisions.
        lanes: Result of `judge_lanes`.
        seen: Result of `visibility`.
        seed: Of the draws.
        trusted: (n,) float. `Ordinary.trust`; by default all units are of known types.
    """
    asked = ~table.labelled
    rows, keep = table.num_rows[asked].astype(float), table.keep[asked]
    rng = generator(seed, "machines", "quality")
    ours = _draw_ours(lanes, asked, seen, trusted, rng)
    known = np.zeros(len(rows), bool)  # to be of another type
    if table.classes.size:
        known = (table.classes[asked, 1:] == 1.0).any(axis=1)
    groups = keep & ~known, ~keep & ~known
    own = [ours[:, group] @ rows[group] for group in groups]
    sizes = [rows[group].sum() for group in groups]

    def measure(lost: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return alpha, recall and precision if these fractions of either side are misjudged."""
        pairs = zip(own, sizes, strict=True)
        kept, dropped = (mine * (1.0 - lost) + (size - mine) * found for mine, size in pairs)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (kept + dropped) / rows.sum(), kept / (kept + dropped), kept / (rows @ keep)

    # With many units chance alone would leave hardly an interval.
    lost, found = np.abs(rng.normal(0.0, _MISJUDGED, (2, len(ours))))
    drawn = zip(measure(0.0 * lost, 0.0 * found), measure(lost, found), strict=True)
    mean = table.probability[asked]
    total = float(mean @ rows)
    values = (
        total / float(rows.sum()),
        float((mean * keep) @ rows) / total if total > 0 else np.nan,
        float((mean * keep) @ rows) / float(rows @ keep) if keep.any() else np.nan,
    )
    made = []
    for value, both in zip(values, drawn, strict=True):
        ends = [_middle(draws[np.isfinite(draws)]) for draws in both]
        low, high = min(ends)[0], max(end[1] for end in ends)
        if seen < 0.5:
            low, high = 0.0, 1.0
        made.append(
            Estimate(float(value), float(min(low, value)), float(max(high, value)), "mixture")
        )
    return made[0], made[1], made[2]


def _draw_ours(
    lanes: Sequence[LaneChances],
    asked: np.ndarray,
    seen: float,
    trusted: np.ndarray | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """(draws, asked units) bool. Which units are ours; arguments are as in `quality`."""
    num_units = int(asked.sum())
    num_draws = max(min(_NUM_DRAWS, _MOST_DRAWN // max(num_units, 1)), _LEAST_DRAWS)
    ours = np.ones((num_draws, num_units), bool)
    place = {view: rng.uniform(size=ours.shape) for view in dict.fromkeys(e.view for e in lanes)}
    for each in lanes:
        lane = rng.choice(len(each.weight), num_draws, p=each.weight)
        ours &= place[each.view] < each.chance[lane][:, asked]
    blind = rng.uniform(size=num_draws) >= seen
    anyone = rng.uniform(size=ours.shape) < rng.uniform(size=(num_draws, 1))
    ours = np.where(blind[:, None], anyone, ours)
    if is_joined(lanes[0].shared):  # any fraction of these may be of the name
        ours &= rng.uniform(size=ours.shape) < rng.uniform(size=(num_draws, 1))
    if trusted is not None:
        ours &= rng.uniform(size=ours.shape) < trusted[asked]
    return ours


def _middle(draws: np.ndarray) -> tuple[float, float]:
    """Return the ends of the middle 95 % of draws; NaN without any."""
    if not len(draws):
        return np.nan, np.nan
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)
