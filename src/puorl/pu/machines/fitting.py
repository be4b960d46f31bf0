"""From a split to a MachineModel: embed the units, find types, decide."""

from collections.abc import Mapping, Sequence
from itertools import chain, compress
from typing import NamedTuple

import numpy as np

from puorl.core.errors import DataError
from puorl.core.hashing import generator
from puorl.core.run_folder import Checkpoint
from puorl.core.tasks import Workers
from puorl.data.dataset import Dataset
from puorl.data.split import PUSplit
from puorl.pu.config import FilterConfig
from puorl.pu.machines import dynamics
from puorl.pu.machines.decisions import LaneChances, decide, judge_lanes, quality
from puorl.pu.machines.dynamics import UnitLatents
from puorl.pu.machines.embedding import Embedding, choose_views, embed, embed_others
from puorl.pu.machines.evidence import partition_evidence
from puorl.pu.machines.findings import (
    LITTLE_OVERLAP,
    OURS,
    Finding,
    UnitTable,
    balanced_rows,
    cost_across,
    nearest_rows,
    overlap_of_rows,
    shared_rows,
    visibility,
)
from puorl.pu.machines.mixture import (
    SEEN,
    SURE,
    find_drivers,
    find_ranges,
    fit_types,
    join_alike,
    split_evidence,
)
from puorl.pu.machines.model import MachineModel, label_others
from puorl.pu.machines.naming import Apart, Lane, tell_apart, with_none
from puorl.pu.machines.nearby import look_again
from puorl.pu.machines.sampling import (
    Driving,
    data_of,
    draw_sample,
    draw_typed,
    judge_others,
    take_units,
)
from puorl.pu.machines.views import ViewModel
from puorl.pu.units import Unit, Units, number_units

_PARTED = 5.0
"""Nats from which a later horizon may part units that the clearest view keeps together."""
_UNTRUSTED = 1e3
"""Nats by which other lanes fall behind."""
_MATCHED = 2.0
"""Nats from which types of machines, each with drivers of its own, differ where both drive."""
_FEW = 0.1
"""Fraction of a driver's units that may be on the other side where types are said to have drivers
of their own."""
_NUM_DEALT = 200
"""Times that sides are dealt to units at random: none of these may differ as much."""
_SHORT = 1.0 / 3.0
"""Rows, in those of the median unit, below which a single episode does not shape types."""
MIN_UNITS = 4
"""Fewer units cannot show that there are types."""


class Types(NamedTuple):
    """What was found among the units that were learnt from."""

    model: MachineModel
    latents: tuple[tuple[UnitLatents, ...], ...]
    """Of these units, for the views of the model."""
    driver: np.ndarray
    """(units,) int64. Who drives each, where types are compared within drivers; else 0."""
    lanes: list[LaneChances]
    """Opinions that the decisions follow from."""


class _Seen(NamedTuple):
    """Types of units in the views that count."""

    made: Embedding
    """With the latents of these views."""
    views: list[ViewModel]
    driver: np.ndarray
    """As in `Types`."""
    is_crossed: bool
    """As in `Finding`."""

    def with_classes(self, shared: np.ndarray) -> "_Seen":
        """Return the same with names for types: `Mixture.classes`."""
        views = [
            view._replace(mixtures=tuple(m._replace(classes=shared) for m in view.mixtures))
            for view in self.views
        ]
        return self._replace(views=views)


def fit(
    split: PUSplit,
    config: FilterConfig,
    *,
    unit: Unit,
    seed: int,
    checkpoint: Checkpoint,
    progress: bool = False,
    labelled_as: Mapping[str, np.ndarray | str] | None = None,
    engine: Workers | None = None,
) -> MachineModel:
    """Learn how units move, and which are ours; other types may be known by name.

    In large fleets all is learnt from a sample of the units (`puorl.pu.machines.sampling`).

    Raises:
        DataError: Too few units or rows, or names that do not fit.
    """
    found, names = number_units(split.pool, unit), labelled_as or {}
    label = label_others(split.pool, found, labels_of_units(split, found, unit), names)
    sample = draw_sample(label, found.num_rows, seed)
    shown, data = take_units(found, sample), data_of(split.pool, found, sample)
    made = embed(
        data,
        shown,
        config.machines,
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
        engine=engine,
    )
    typed = sample
    if not sample.all() and _has_runs(made):
        typed = draw_typed(label, sample, seed)
        own = data_of(split.pool, found, typed)
        made = embed_others(made, own, take_units(found, typed), config.machines)
    types = find_types(
        made,
        label[typed],
        split.fingerprint,
        config,
        unit=unit,
        seed=seed,
        names=tuple(names),
    )
    model = types.model
    if typed is sample:
        model = model.with_row_fits(data, shown, types.driver)
    else:  # types were found among other units than those that networks learnt from
        pairs = zip(model.views, types.latents, strict=True)
        latents = [own[view.lane].z for view, own in pairs]
        model = model.with_row_fits(data, shown).with_unit_fits(latents, types.driver)
    if sample.all():
        return settle(model, types.lanes, data, shown)
    driving = Driving(made.driving, made.behaviour, types.driver)
    model, lanes, trusted = judge_others(
        model, types.latents, driving, split.pool, found, label, typed
    )
    return settle(model, lanes, split.pool, found, trusted)


def settle(
    model: MachineModel,
    lanes: Sequence[LaneChances],
    data: Dataset,
    found: Units,
    trusted: np.ndarray | None = None,
) -> MachineModel:
    """Return the model with single episodes in doubt decided by `look_again`, which has the rest.

    What other episodes do at the same place says nothing where no types are seen. Units of several
    runs went everywhere; windows of one episode would be compared with each other.
    """
    is_episode = found.cluster is found.number and len(choose_views(found, data)) == 1
    if model.finding.gain < SEEN or not is_episode:
        return model
    return look_again(model, lanes, data, found, trusted=trusted)


def find_types(
    made: Embedding,
    label: np.ndarray,
    fingerprint: str,
    config: FilterConfig,
    *,
    unit: Unit,
    seed: int,
    names: Sequence[str] = (),
) -> Types:
    """Find the types of units, with some labelled, and decide about all.

    Args:
        made: Latents of the units.
        label: (units,) int. 0 for units known to be ours, above 0 for those of other named types,
            -1 for unknown ones.
        fingerprint: Of the split.
        config: Settings of the embedding.
        unit: What is decided about.
        seed: Of starts and draws.
        names: Of the types that are labelled 1 and so on.
    """
    rng = generator(seed, "machines")
    group, behaviour_gain = find_drivers(made.behaviour, label, rng)
    linear = _take_views(made, [view.view == "slopes" for view in made.views])
    made = _take_views(made, [view.view != "slopes" for view in made.views])
    if group.any():  # over several steps, drivers would count as machines
        made = _take_views(made, [view.horizon == 0 for view in made.views])
    seen = _see_types(linear, made, label, group, behaviour_gain, config, seed)
    apart = None
    if names:
        apart = _tell_apart(seen, label, seed)
        if apart.nats:
            own = apart.label(label)
            seen = _see_types(linear, made, own, group, behaviour_gain, config, seed)
        seen = seen.with_classes(apart.shared)
    made, views, driver = seen.made, seen.views, seen.driver
    lanes = judge_lanes(views, made.latents, made.median_rows, driver, fitted=True)
    gain = _best_gain(views)
    # Where no types are seen, units unlike all others are still seen to be so.
    odd = np.where((label < 0) & (gain < SEEN), _odd_nats(views), 0.0)

    def judge(chance: float) -> UnitTable:
        by_unit = np.where(odd >= SEEN, [visibility(nats) for nats in odd], chance)
        return decide(views, made.latents, lanes, made.found, label, driver, seen=by_unit)

    table = judge(visibility(gain))
    is_odd = (odd >= SEEN) & ~table.keep
    if gain < SEEN:
        overlap = _least_overlap(made, group, rng)
    else:
        overlap = overlap_of_rows(made.driven, made.driven_unit, table.keep)
    finding = Finding(
        gain=gain,
        behaviour_gain=behaviour_gain,
        overlap=overlap,
        is_crossed=seen.is_crossed,
        num_labelled=int((label == 0).sum()),
        num_odd=int(is_odd.sum()),
        alike=() if apart is None else _in_words(apart, names),
        num_rows=made.median_rows,
    )
    table = judge(finding.seen)
    table.cluster[is_odd] = -1
    if names:
        none = with_none(table.classes, np.where(is_odd, 0.0, 1.0), table.probability)
        table = UnitTable(**table._asdict() | {"classes": none})
    alpha, recall, precision = quality(table, lanes, finding.seen, seed)
    model = MachineModel(
        config=config,
        unit=unit,
        seed=seed,
        scalings=made.scalings,
        views=tuple(views),
        median_rows=made.median_rows,
        units=table,
        alpha=alpha,
        recall=recall,
        precision=precision,
        finding=finding,
        split_fingerprint=fingerprint,
        names=tuple(names),
    )
    return Types(model, made.latents, driver, lanes)


def _see_types(
    linear: Embedding,
    made: Embedding,
    label: np.ndarray,
    group: np.ndarray,
    behaviour_gain: float,
    config: FilterConfig,
    seed: int,
) -> _Seen:
    """Find the types of units in the views that count.

    Args:
        linear: Slopes of all units.
        made: Latents of networks.
        label: (units,) int. Known type of each, or group of types; -1 for unknown.
        group: (units,) int. Who drives each unit.
        behaviour_gain: Nats for more than one driver.
        config: Settings.
        seed: Of starts.
    """
    needed = SURE if _has_runs(made) else SEEN
    driver = group if behaviour_gain >= needed else np.zeros(len(label), int)
    several = bool(driver.any())
    num_trusted = config.machines.num_trusted
    views = _mixtures(made, label, driver, num_trusted, seed)
    is_crossed = several and _best_gain(views) >= needed
    if several and not is_crossed:  # no driver has machines of two types
        driver = np.zeros(len(label), int)
        views = _mixtures(made, label, driver, num_trusted, seed)[:1]
        views = [_compare_matched(made, views[0], group)]
    if _best_gain(views) < SEEN and several == group.any():
        shown = _slope_types(linear, made, label, group, seed)
        if shown is not None:
            made, views, driver, is_crossed = linear, [shown], group, several
        elif several:
            views = [_compare_linear(made, views[0], group)]
    counts = _choose_views(views, made, label, driver)
    return _Seen(_take_views(made, counts), list(compress(views, counts)), driver, is_crossed)


def _tell_apart(seen: _Seen, label: np.ndarray, seed: int) -> Apart:
    """Compare the named types in the lanes that decide."""
    views = []
    for view, latents in zip(seen.views, seen.made.latents, strict=True):
        gains, lanes = _best_of_lanes(view), []
        for k in sorted(k for k, gain in gains.items() if gain > -_UNTRUSTED / 2.0):
            members = tuple(m.member for m in view.mixtures if m.lane == k)
            lanes.append(Lane(view.embed(k, latents[k].z), members))
        views.append(lanes)
    return tell_apart(views, label, seen.driver, seed)


def _in_words(apart: Apart, names: Sequence[str]) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Name the types that are not told apart."""
    every = (OURS, *names)
    return tuple((tuple(every[k] for k in classes), nats) for classes, nats in apart.nats)


def _take_views(made: Embedding, wanted: Sequence[bool]) -> Embedding:
    views, latents = compress(made.views, wanted), compress(made.latents, wanted)
    return made._replace(views=tuple(views), latents=tuple(latents))


def _choose_views(
    views: Sequence[ViewModel], made: Embedding, label: np.ndarray, driver: np.ndarray
) -> list[bool]:
    """Whether each view counts: the clearest one, and those that agree or clearly see more types.

    Units of a type vary, too, and several views show it more finely than others; over several steps
    noise adds up. How clearly a view sees any types does not say that all of its types are there.
    So a view may part units that another keeps together only if that alone is clear. This holds
    for the clearest view as well: its nats may be those of types that another model sees, too, and
    a little more for groups within them.
    """
    gain = [max(mixture.gain for mixture in view.mixtures) for view in views]
    order = np.argsort(np.negative(gain), kind="stable").tolist()

    def kept(number: int) -> np.ndarray:
        lanes = judge_lanes(
            [views[number]], [made.latents[number]], made.median_rows, driver, fitted=True
        )
        return (lanes[0].weight @ lanes[0].chance >= 0.5) | (label == 0)

    def parts(number: int, together: np.ndarray, needed: float) -> bool:
        view = views[number]
        clearest = max(view.mixtures, key=lambda mixture: mixture.gain)
        z = view.embed(clearest.lane, made.latents[number][clearest.lane].z)
        return split_evidence(z, clearest, together, label) >= needed

    best = order[0]
    for number in order[1:]:
        if gain[number] >= SURE and views[number].view != views[best].view:
            if not parts(best, kept(number), SURE):
                best = number
            break
    together, counts = kept(best), []
    for number, view in enumerate(views):
        if number == best or gain[number] < SURE:  # the latter decide nothing
            counts.append(number == best or view.horizon == 0)
        else:
            needed = _PARTED if view.view == views[best].view else SURE
            counts.append(parts(number, together, needed))
    return counts


def _mixtures(
    made: Embedding, label: np.ndarray, driver: np.ndarray, num_trusted: int, seed: int
) -> list[ViewModel]:
    """Find the types in all lanes; with several drivers, in relations only if they surely show."""
    views, shapes = [], _shaping(made, label, driver)
    for view, latents in zip(made.views, made.latents, strict=True):
        rng = generator(seed, "machines", view.view)
        mixtures = [
            fit_types(view.embed(k, own.z), label, rng, driver, lane=k, shapes=shapes)
            for k, own in enumerate(latents)
        ]
        if not _has_runs(made):
            mixtures = [
                [join_alike(m, view.embed(m.lane, latents[m.lane].z), label, driver) for m in each]
                for each in mixtures
            ]
        views.append(view._replace(mixtures=tuple(chain.from_iterable(mixtures))))
    if driver.any():
        trusted, *others = (_trust_likelihood(view, num_trusted) for view in views)
        if _has_runs(made):
            return [trusted, *(view for view in others if _second_best(view) >= SURE)]
        driven = tuple(
            mixture.with_least_shifts(driver, label).with_driven(driver)
            for mixture in trusted.mixtures
        )
        views = [trusted._replace(mixtures=driven)]
    return views if _has_runs(made) else _limit_to_matched(made, views)


def _least_overlap(made: Embedding, driver: np.ndarray, rng: np.random.Generator) -> float:
    """Overlap of the first driver with the others, or of units in different ranges, if less."""
    sides = driver == 0, find_ranges(made.driven, made.driven_unit, rng) == 0
    return min(overlap_of_rows(made.driven, made.driven_unit, side) for side in sides)


def _slope_types(
    linear: Embedding, made: Embedding, label: np.ndarray, driver: np.ndarray, seed: int
) -> ViewModel | None:
    """Types of units that are driven alike, by their slopes; None where they do not surely show.

    Networks err where a driver goes, and latents take that up: slopes of a unit do so much less.
    But where ranges of units lie apart, the linear model of all units is wrong in each, and slopes
    show where a unit was driven.

    Slopes show sharply how units of a type vary, too. So a lane of the networks, at least, must
    prefer the same partition to one type. It was not chosen for that: where slopes part units of
    one type, it costs networks some ten nats. What is claimed is as sure as that support: it says
    that there are types, but hardly which units are of them. With several drivers, where networks
    see less, it is enough that slopes are sure.

    Args:
        linear: Slopes of all units.
        made: Latents of networks.
        label: (units,) int. As in `find_types`.
        driver: (units,) int. Who drives each unit.
        seed: Of starts.
    """
    rng = generator(seed, "machines", "slopes")
    if not linear.views or _least_overlap(linear, driver, rng) < LITTLE_OVERLAP:
        return None
    [view], [latents] = linear.views, linear.latents
    mixtures = chain.from_iterable(
        fit_types(view.embed(k, own.z), label, rng, driver, lane=k) for k, own in enumerate(latents)
    )
    view = view._replace(mixtures=tuple(mixtures))
    nats = _second_best(view)
    if nats < SEEN:
        return None
    if driver.any() and nats >= SURE:
        return view
    clearest = max(view.mixtures, key=lambda mixture: mixture.gain)
    other = (~np.isin(clearest.member, clearest.ours)).astype(int)
    support = max(
        partition_evidence(each.embed(k, own.z), other, np.minimum(label, 1), driver)
        for each, lanes in zip(made.views, made.latents, strict=True)
        for k, own in enumerate(lanes)
    )
    return _lowered(view, nats - SEEN - support) if support > 0.0 else None


def _has_runs(made: Embedding) -> bool:
    """Whether units were recorded several times: such units need not have one driver."""
    return any(view.view == "relations" for view in made.views)


def _shaping(made: Embedding, label: np.ndarray, driver: np.ndarray) -> np.ndarray | None:
    """(units,) bool. Which units shape types: not the shortest of single episodes; None for all.

    An episode that ends early was cut short by what it did: it shows a start and a fall, where the
    model is at its worst, and several of them look like a type of their own.
    """
    if _has_runs(made):
        return None
    shapes = (made.found.num_rows >= _SHORT * made.median_rows) | (label >= 0)
    return shapes if len(np.unique(driver[shapes])) > driver.max() else None


def _best_gain(views: Sequence[ViewModel]) -> float:
    """Nats for types that two lanes of a view see, or the only one that is trusted.

    Each was trained by itself: what one alone sees is as likely to be the best of many guesses.
    """
    return max(_second_best(view) for view in views)


def _odd_nats(views: Sequence[ViewModel]) -> np.ndarray:
    """(units,) float64. Nats by which units are unlike all others, where some odd ones are.

    As of types, two lanes of a view must see it, or the only one that is trusted.
    """
    nats = []
    for view in views:
        best = {}
        for mixture in sorted(view.mixtures, key=lambda each: each.gain):
            if mixture.gain > -_UNTRUSTED / 2.0:
                is_odd = (mixture.member >= 0) & ~mixture.fair[mixture.member]
                best[mixture.lane] = np.where(is_odd, mixture.odd_gain, 0.0)
        ascending = np.sort(list(best.values()), axis=0)
        nats.append(ascending[max(len(best) - 2, 0)])
    return np.max(nats, axis=0)


def _second_best(view: ViewModel) -> float:
    """Nats of the second best lane; for slopes, whose lanes are sizes of one z, of their mean."""
    best = _best_of_lanes(view)
    if view.view == "slopes":
        return float(np.logaddexp.reduce(list(best.values())) - np.log(len(best)))
    trusted = sorted(gain for gain in best.values() if gain > -_UNTRUSTED / 2.0)
    return trusted[-2] if len(trusted) > 1 else trusted[-1]


def _best_of_lanes(view: ViewModel) -> dict[int, float]:
    """Nats of the best partition of each lane."""
    best = dict.fromkeys((mixture.lane for mixture in view.mixtures), -np.inf)
    for mixture in view.mixtures:
        best[mixture.lane] = max(best[mixture.lane], float(mixture.gain))
    return best


def _trust_likelihood(view: ViewModel, num_trusted: int) -> ViewModel:
    """Let the lanes decide that predict held-out rows best, each with the same weight.

    With several drivers a lane may find types by what its model gets wrong where one of them
    drives: how clear its types are says little then, and its likelihood more.
    """
    trusted = np.argsort(view.held_out_nll, kind="stable")[:num_trusted].tolist()
    clear = {k: max(m.gain for m in view.mixtures if m.lane == k) for k in trusted}
    mixtures = tuple(
        mixture.with_near()._replace(gain=mixture.gain + (clear[trusted[0]] - clear[mixture.lane]))
        if mixture.lane in clear
        else mixture._replace(gain=mixture.gain - _UNTRUSTED)
        for mixture in view.mixtures
    )
    return view._replace(mixtures=mixtures)


def _compare_matched(made: Embedding, view: ViewModel, driver: np.ndarray) -> ViewModel:
    """Let types count only if they differ on rows that either side could have.

    Where each driver keeps to units of its own, the model errs in another way where each drives,
    and latents take that up. On rows with neighbours on both sides, the mean latents of the other
    side must cost units more than those of their own side do: else the sides differ no more than
    units of one side. Nats for that, with units as the sample, limit those for the types.
    """
    clearest = max(view.mixtures, key=lambda mixture: mixture.gain)
    ours = np.isin(clearest.member, clearest.ours)
    if clearest.gain < SEEN or min(ours.sum(), (~ours).sum()) < 2:
        return view
    shared = shared_rows(nearest_rows(made.driven, made.driven_unit), made.driven_unit, ours)
    found = _matched_nats(made, view, made.latents[0], ours, shared)
    differ = found >= _MATCHED or _linear_nats(made, ours, driver) >= SEEN
    return view if differ else _lowered(view, clearest.gain - found)


def _limit_to_matched(made: Embedding, views: Sequence[ViewModel]) -> list[ViewModel]:
    """Limit the nats for types of single episodes to those on rows that either side could have.

    An episode visits some states and not others. Where it went, the model errs in its own way, and
    latents take that up: short records of walking and of falling look like two machines. How the
    partitions of a lane compare stays as it was.
    """
    nearest = nearest_rows(made.driven, made.driven_unit)

    def limited(view: ViewModel, latents: tuple[UnitLatents, ...]) -> ViewModel:
        clearest = max(view.mixtures, key=lambda mixture: mixture.gain)
        ours = np.isin(clearest.member, clearest.ours)
        if clearest.gain < SEEN or min(ours.sum(), (~ours).sum()) < 2:
            return view
        shared = shared_rows(nearest, made.driven_unit, ours)
        nats = _matched_nats(made, view, latents, ours, shared)
        # The mean of that sample was fitted: half a log of its size (Schwarz 1978).
        most = max(nats - 0.5 * np.log(len(ours)), 0.0)
        best = _best_of_lanes(view)
        return view._replace(
            mixtures=tuple(
                mixture._replace(gain=mixture.gain - max(best[mixture.lane] - most, 0.0))
                for mixture in view.mixtures
            )
        )

    return [limited(view, own) for view, own in zip(views, made.latents, strict=False)]


def _matched_nats(
    made: Embedding,
    view: ViewModel,
    latents: Sequence[UnitLatents],
    ours: np.ndarray,
    shared: np.ndarray,
) -> float:
    """Nats by which units differ more across sides than within, with weights of rows."""
    rows, unit = made.driven_rows, made.driven_unit
    own_side = (~ours).astype(int)
    side = np.eye(2)[own_side].T
    count = side.sum(axis=1, keepdims=True)
    more = np.zeros(len(unit))
    for k, own in enumerate(latents):
        params = dynamics.lane(view.params, k)
        total = side @ own.z
        across = (total / count)[1 - own_side]
        among = (total[own_side] - own.z) / (count[own_side] - 1.0)
        cost = [
            dynamics.outputs_nll(view.view, params, rows, z, view.horizon).sum(axis=1)
            for z in (across, among, own.z)
        ]
        more += cost[0] - 2.0 * cost[1] + cost[2]
    seen = np.bincount(unit, shared, len(ours))
    by_unit = np.bincount(unit, shared * more, len(ours)) / np.maximum(seen, 1e-9)
    return _nats_above_0(by_unit)


def _lowered(view: ViewModel, nats: float) -> ViewModel:
    """Return the view with less evidence for types; with as much, if there are no nats to take."""
    lower = max(nats, 0.0)
    return view._replace(mixtures=tuple(m._replace(gain=m.gain - lower) for m in view.mixtures))


def _compare_linear(made: Embedding, view: ViewModel, driver: np.ndarray) -> ViewModel:
    """Let types of the drivers count that one lane sees, if linear models of both surely differ."""
    clearest = max(view.mixtures, key=lambda mixture: mixture.gain)
    ours = np.isin(clearest.member, clearest.ours)
    if clearest.gain < SEEN or min(ours.sum(), (~ours).sum()) < 2:
        return view
    nats = _linear_nats(made, ours, driver)
    more = nats - _second_best(view) if nats >= SURE else 0.0
    return view._replace(mixtures=tuple(m._replace(gain=m.gain + more) for m in view.mixtures))


def _linear_nats(made: Embedding, ours: np.ndarray, driver: np.ndarray) -> float:
    """Nats by which linear models of both sides differ on rows that are balanced between them.

    Latents may hold little of what differs. 0 where the sides are not those of the drivers: sides
    that were found by how units move would differ in any case; or where sides that are dealt at
    random differ as much.
    """
    mixed = np.array([ours[driver == k].mean() for k in np.unique(driver)])
    if not _has_runs(made) or np.minimum(mixed, 1.0 - mixed).max() > _FEW:
        return 0.0
    rows, unit = made.driven_rows, made.driven_unit
    given, size = np.asarray(rows.given), rows.outcome.shape[1] // rows.num_horizons
    weight = balanced_rows(given, ours[unit]) + 1e-6
    change = np.asarray(rows.outcome[:, :size], np.float64)
    found = cost_across(given, change, unit, ours, weight)
    nats, rng = _nats_above_0(found), np.random.default_rng(0)
    if nats < SEEN:
        return nats
    # All units of a side are compared with the same models, so they are no sample of their own.
    dealt = (rng.permutation(ours) for _ in range(_NUM_DEALT))
    by_chance = (cost_across(given, change, unit, side, weight).mean() for side in dealt)
    return 0.0 if any(value >= found.mean() for value in by_chance) else nats


def _nats_above_0(value: np.ndarray) -> float:
    """Log ratio of likelihoods of a normal sample with any mean and with mean 0; 0 below that."""
    n = len(value)
    ratio = value.mean() ** 2 / max(value.var(), 1e-12)
    return 0.5 * n * float(np.log1p(ratio)) if value.mean() > 0 else 0.0


def labels_of_units(split: PUSplit, found: Units, unit: Unit) -> np.ndarray:
    """(units,) int64. 0 for units with a labelled row, -1 for others."""
    label = np.full(len(found.name), -1)
    label[np.unique(found.number[split.labelled])] = 0
    if len(label) < MIN_UNITS or not (label < 0).any():
        raise DataError(
            f"unit {unit}: expected at least {MIN_UNITS} units, some without labelled rows, "
            f"got {len(label)} with {int((label == 0).sum())} labelled; name the column that "
            "distinguishes machines, or decide by transition"
        )
    return label
