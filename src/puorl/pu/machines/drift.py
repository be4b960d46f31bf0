"""Follow units over time: has a machine left its own kind?

The networks are held. z is estimated for every window of a unit's record, and compared with that of
its first windows in the metric of the likelihood. What counts as usual is learnt from the windows
of the record's beginning and from how much the latents of one unit vary from run to run.

Whether a window is of our type is judged as it is of units, by all lanes that decide.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import stats

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.pu.machines import dynamics
from puorl.pu.machines.decisions import chance_of_ours
from puorl.pu.machines.model import MachineModel
from puorl.pu.machines.sequences import Sequences, build
from puorl.pu.machines.views import estimate_latents
from puorl.pu.units import number_units

FALSE_ALARMS = 1e-3
"""Expected false alarms a window."""
NUM_FIRST = 8
"""Windows at the beginning that are taken as the unit's own; at most a third of its windows."""
MIN_WINDOWS = 4
"""Units with fewer are not followed."""
_IN_A_ROW = 2
"""Windows that must be far from the beginning before there is an alarm."""
_STEPS = 3
"""Steps of a window's z at most, which start from that of its stretch."""


class UnitCourse(NamedTuple):
    """A unit followed over time."""

    name: str
    time: np.ndarray
    """(windows,) float64. Time, or number, of the first row of each window."""
    probability: np.ndarray
    """(windows,) float64. Chance that the unit is ours, judged by this window; at most as large as
    its stretch of the record, from the beginning to the alarm or from there on, is ordinary."""
    distance: np.ndarray
    """(windows,) float64. From the unit's beginning, in deviations; NaN in its first windows."""
    band: float
    """Distance that is exceeded by chance in one of a thousand windows."""
    alarm: int | None
    """The window of the alarm: the second in a row beyond the band."""
    is_dated: bool = False
    """Whether time is in seconds since 1970."""

    @property
    def first_beyond(self) -> int | None:
        """The window from which on the unit is beyond its band; None without an alarm."""
        return None if self.alarm is None else self.alarm + 1 - _IN_A_ROW


def follow(model: MachineModel, data: Dataset, window_of_row: np.ndarray) -> list[UnitCourse]:
    """Follow every unit of a dataset that has enough windows.

    Args:
        model: The fitted model; the lane that sees types best tells whether a unit has changed.
        data: Records of one or more units.
        window_of_row: (n,) int. Window of each row; numbers rise with time within a unit.

    Raises:
        DataError: No unit has 4 windows, or other columns than those of the fit.
    """
    data = model.in_order(data)
    found = number_units(data, model.unit)
    config = model.config.machines
    rows, _ = build(data.rows, found.number, config, model.scalings)
    unit = found.number[rows.position]
    pairs, group = np.unique(
        np.stack([unit, np.asarray(window_of_row)[rows.position]]), axis=1, return_inverse=True
    )
    group = group.reshape(-1)
    view, mixture = model.best
    lane = mixture.lane
    batch = dynamics.make_batch(view.view, rows, group)
    own = estimate_latents(view, lane, batch, pairs.shape[1], config)
    z = view.embed(lane, own.z)
    extra = view.inflation[lane] / np.maximum(own.num_rows, 1)
    moment = data.rows.time if data.rows.time is not None else np.arange(len(data), dtype=float)
    is_dated = data.rows.time is not None and data.provenance.clock == "dates"
    begin = np.full(pairs.shape[1], np.inf)
    np.minimum.at(begin, group, moment[rows.position])
    courses, stretch, num_stretches = [], np.full(pairs.shape[1], -1), 0
    for number, name in enumerate(found.name):
        mine = np.flatnonzero(pairs[0] == number)
        if len(mine) < MIN_WINDOWS:
            continue
        distance, band = distances(z[mine], extra[mine])
        alarm = first_alarm(distance, band)
        unknown = np.full(len(mine), np.nan)
        course = UnitCourse(str(name), begin[mine], unknown, distance, band, alarm, is_dated)
        change = len(mine) if course.first_beyond is None else course.first_beyond
        stretch[mine] = num_stretches + (np.arange(len(mine)) >= change)
        num_stretches += 1 + (alarm is not None)
        courses.append((course, mine))
    if not courses:
        most = int(np.bincount(pairs[0], minlength=1).max())
        raise DataError(
            f"expected a unit with at least {MIN_WINDOWS} windows to follow over time, got at most "
            f"{most} windows a unit; choose shorter windows"
        )
    chance = _probabilities(model, rows, group, stretch)
    return [course._replace(probability=chance[mine]) for course, mine in courses]


def _probabilities(
    model: MachineModel, rows: Sequences, window: np.ndarray, stretch: np.ndarray
) -> np.ndarray:
    """(windows,) float64. Chance to be ours of each window, NaN where it is in no stretch.

    A window has few rows, so it hardly shows that a unit is like nothing in the fit. What is so as
    a whole is so in its windows: within a stretch nothing has changed.

    Args:
        model: The fitted model.
        rows: Records of all units.
        window: (rows,) int. Window of each row.
        stretch: (windows,) int. Stretch of each, -1 for none.
    """
    model, _ = model.with_weighty_lanes()
    used = stretch[window] >= 0
    rows, window = Sequences(*(part[used] for part in rows)), window[used]
    place = np.cumsum(stretch >= 0) - 1
    stretch_of = stretch[stretch >= 0]
    batches = [dynamics.make_batch(view.view, rows, place[window]) for view in model.views]
    unit = jnp.asarray(stretch[window], jnp.int32)
    whole = model.ask([batch._replace(unit=unit) for batch in batches], int(stretch.max()) + 1)
    start = [[own.z[stretch_of] for own in lanes] for lanes in whole.latents]
    judged = model.judge(model.ask(batches, len(stretch_of), start, _STEPS))
    as_whole = model.judge(whole).ordinary.chance[stretch_of]
    ordinary = judged.ordinary
    ordinary = ordinary._replace(chance=np.minimum(ordinary.chance, as_whole))
    chance = np.full(len(stretch), np.nan)
    chance[stretch >= 0] = chance_of_ours(judged.lanes, model.finding.seen, ordinary)
    return chance


def distances(z: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, float]:
    """Return each window's distance from the first ones, in deviations, and the usual band.

    Args:
        z: (windows, size) float. In the order of time.
        noise: (windows,) float. Variance of each number of z that its rows alone explain.
    """
    count, size = max(2, min(NUM_FIRST, len(z) // 3)), z.shape[1]
    first = z[:count]
    centre = first.mean(axis=0)
    # The spread of few windows is drawn towards what is usual for all units.
    usual = float(noise[:count].mean())
    total = np.square(first - centre).sum(axis=0) + _SURE * usual
    variance = total / (count - 1 + _SURE)
    square = (np.square(z - centre) / (variance * (1.0 + 1.0 / count))).sum(axis=1)
    band = float(np.sqrt(size * stats.f.ppf(1.0 - FALSE_ALARMS, size, count - 1 + _SURE)))
    distance = np.sqrt(square)
    distance[:count] = np.nan
    return distance, band


_SURE = 8.0
"""Windows that the usual spread counts for."""


def first_alarm(distance: np.ndarray, band: float) -> int | None:
    """Return the first window at which enough in a row lie beyond the band."""
    run = 0
    for number, value in enumerate(distance):
        run = run + 1 if value > band else 0
        if run == _IN_A_ROW:
            return number
    return None
