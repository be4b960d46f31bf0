"""Units in latents: train the models of all views, estimate z and its metric. No label enters."""

import dataclasses
from functools import partial
from itertools import chain
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from puorl.core.progress import Advance, progress_bar, quiet
from puorl.core.run_folder import Checkpoint
from puorl.core.tasks import Workers, call_all
from puorl.data.dataset import Dataset
from puorl.nn import mlp
from puorl.pu.config import MachineConfig
from puorl.pu.machines import dynamics, slopes
from puorl.pu.machines.dynamics import Batch, UnitLatents, View
from puorl.pu.machines.sequences import Scalings, Sequences, build
from puorl.pu.machines.views import (
    ViewModel,
    estimate_latents,
    most_rows,
    slope_rows,
    thin,
    thin_rows,
)
from puorl.pu.units import Units

_NUM_COMPARED = 8_000
"""Rows, of all units together, whose states and actions are compared."""
_NUM_JUDGED, _NUM_RUNS = 50_000, 400
"""Held-out rows by which lanes are compared, and runs by which it is seen how much z varies."""


class Embedding(NamedTuple):
    """All units in the latents of all lanes; no label has entered it."""

    found: Units
    scalings: Scalings
    views: tuple[ViewModel, ...]
    """Of the machines; how they are driven is not among them."""
    latents: tuple[tuple[UnitLatents, ...], ...]
    median_rows: float
    driving: ViewModel
    """Of how they are driven."""
    behaviour: np.ndarray
    """(units, size). Its latents, in the metric of their likelihood."""
    driven: np.ndarray
    """(k, s + a) float32. States and actions of some rows, standardised."""
    driven_unit: np.ndarray
    """(k,) int64. Their units."""
    driven_rows: Batch
    """The same rows, with what came of them."""


def embed(
    data: Dataset,
    found: Units,
    config: MachineConfig,
    *,
    seed: int,
    checkpoint: Checkpoint,
    progress: bool = False,
    engine: Workers | None = None,
) -> Embedding:
    """Train the models of all views, each a task, and estimate the latents of all units."""
    rows, scalings = build(data.rows, found.number, config)
    number = found.number[rows.position]
    views: tuple[View, ...] = (*choose_views(found, data), "behaviour")
    held, run = dynamics.held_out(rows, seed), _runs(data, rows.position, number)
    total = sum(view != "slopes" for view in views) * config.num_steps
    with progress_bar("dynamics", total=total, unit="steps", show=progress) as advance:
        learn = partial(
            _learn_view,
            rows=rows,
            number=number,
            held=held,
            run=run,
            num_units=len(found.name),
            config=config,
            seed=seed,
            checkpoint=checkpoint,
            advance=advance if engine is None else quiet,
        )
        made = list(chain.from_iterable(call_all(learn, views, engine)))
    models, latents = zip(*made[:-1], strict=True)
    return _embedding(found, rows, scalings, models, latents, *made[-1])


def embed_others(made: Embedding, data: Dataset, found: Units, config: MachineConfig) -> Embedding:
    """Estimate the latents of units by models that were learnt from others."""
    rows, _ = build(data.rows, found.number, config, made.scalings)
    number, latents = found.number[rows.position], []
    for view in (*made.views, made.driving):
        batch = dynamics.make_batch(view.view, rows, number)
        lanes = range(len(view.sizes))
        own = (estimate_latents(view, k, batch, len(found.name), config) for k in lanes)
        latents.append(tuple(own))
    *latents, driven_by = latents
    return _embedding(
        found, rows, made.scalings, made.views, tuple(latents), made.driving, driven_by
    )


def _embedding(
    found: Units,
    rows: Sequences,
    scalings: Scalings,
    views: tuple[ViewModel, ...],
    latents: tuple[tuple[UnitLatents, ...], ...],
    driving: ViewModel,
    driven_by: tuple[UnitLatents, ...],
) -> Embedding:
    number = found.number[rows.position]
    sample = thin_rows(number, _NUM_COMPARED // len(found.name) + 1)
    return Embedding(
        found=found,
        scalings=scalings,
        views=views,
        latents=latents,
        median_rows=float(np.median(np.bincount(number, minlength=len(found.name)))),
        driving=driving,
        behaviour=driving.embed(0, driven_by[0].z),
        driven=rows.given[sample, : rows.state.shape[1] + rows.action.shape[1]],
        driven_unit=number[sample],
        driven_rows=dynamics.make_batch(
            "dynamics", Sequences(*(part[sample] for part in rows)), number[sample]
        ),
    )


def choose_views(found: Units, data: Dataset) -> tuple[View, ...]:
    """Choose what units are compared by: relations and slopes need several runs a unit."""
    if data.episode is None or found.cluster is not found.number:
        return ("dynamics",)
    pairs = np.unique(np.stack([found.number, data.episode]), axis=1)
    runs = np.bincount(pairs[0])
    return ("dynamics", "relations", "slopes") if np.median(runs) >= 2 else ("dynamics",)


def _learn_view(
    view: View,
    *,
    rows: Sequences,
    number: np.ndarray,
    held: np.ndarray,
    run: np.ndarray,
    num_units: int,
    config: MachineConfig,
    seed: int,
    checkpoint: Checkpoint,
    advance: Advance,
) -> list[tuple[ViewModel, tuple[UnitLatents, ...]]]:
    """Train the model of one view; return it with the latents, for each horizon."""
    own = _behaviour_config(config) if view == "behaviour" else config
    every = dynamics.make_batch(view, rows, number)
    if view == "slopes":
        own = dataclasses.replace(config, latent_sizes=slopes.SIZES, num_seeds=1)
        few = slope_rows(thin(every, most_rows(view, num_units)))
        num_present = rows.state.shape[1] + rows.action.shape[1]
        params = slopes.fit(few, num_units, num_present)
        z = slopes.estimate(dynamics.lane(params, 0), few, num_units)
        z = np.repeat(z[None], len(slopes.SIZES), axis=0)
        return [_finish(view, params, z, every, held, run, num_units, own, 0)]
    shown = jax.tree.map(lambda leaf: leaf[~held], every)
    state = dynamics.train(
        view, shown, num_units, own, seed=seed, checkpoint=checkpoint, advance=advance
    )
    z = np.asarray(state.z, np.float64)
    horizons = range(every.num_horizons)
    return [
        _finish(view, state.params, z, every, held, run, num_units, own, each) for each in horizons
    ]


def _behaviour_config(config: MachineConfig) -> MachineConfig:
    """One lane is enough to see whether units are driven in different ways."""
    return dataclasses.replace(config, latent_sizes=(4,), num_seeds=1)


def _runs(data: Dataset, position: np.ndarray, number: np.ndarray) -> np.ndarray:
    """(n,) int64. Parts of units to compare with each other: episodes, or halves of one."""
    size = np.bincount(number)
    start = np.cumsum(size) - size
    order = np.argsort(number, kind="stable")
    place = np.empty(len(number), np.int64)
    place[order] = np.arange(len(number)) - start[number[order]]
    half = (2 * place >= size[number]).astype(np.int64)
    episode = data.episode
    own = half if episode is None else np.unique(episode, return_inverse=True)[1][position]
    pairs = np.unique(np.stack([number, own]), axis=1)
    lone = np.bincount(pairs[0], minlength=len(size))[number] < 2
    part = np.where(lone, half + own.max() + 1, own)
    return np.unique(np.stack([number, part]), axis=1, return_inverse=True)[1].reshape(-1)


def _finish(
    view: View,
    params: mlp.Params,
    z: np.ndarray,
    rows: Batch,
    held: np.ndarray,
    run: np.ndarray,
    num_units: int,
    config: MachineConfig,
    horizon: int,
) -> tuple[ViewModel, tuple[UnitLatents, ...]]:
    """Estimate latents of all units with all rows, and their metric, lane by lane."""
    lanes, size = config.lanes, max(config.latent_sizes)
    used = np.asarray(dynamics.size_mask(config), np.float64)
    z = z * used[:, None]
    judged = thin(jax.tree.map(lambda leaf: leaf[held], rows), _NUM_JUDGED // num_units + 1)
    model = ViewModel(
        view=view,
        params=params,
        sizes=lanes,
        centre=np.zeros((len(lanes), size)),
        root=np.zeros((len(lanes), size, size)),
        inflation=np.ones(len(lanes)),
        mixtures=(),
        held_out_nll=np.zeros(len(lanes)),
        horizon=horizon,
    )
    latents = []
    for k in range(len(lanes)):
        nll = dynamics.outputs_nll(view, dynamics.lane(params, k), judged, z[k], horizon)
        model.held_out_nll[k] = nll.sum(axis=1).mean()
        own = estimate_latents(model, k, rows, num_units, config, start=z[k], num_iterations=2)
        metric = own.information.sum(axis=0) / own.num_rows.sum() + np.diag(1.0 - used[k])
        model.root[k] = np.linalg.cholesky(metric + 1e-9 * np.trace(metric) * np.eye(size))
        model.centre[k] = own.z.mean(axis=0)
        latents.append(own)
    k = int(np.argmin(model.held_out_nll))
    model.inflation[:] = _inflation(model, k, rows, run, latents[k], config)
    return model, tuple(latents)


def _inflation(
    model: ViewModel,
    lane: int,
    rows: Batch,
    run: np.ndarray,
    own: UnitLatents,
    config: MachineConfig,
) -> float:
    """Measure how much more z varies from run to run of a unit than its rows explain: 1 or more."""
    unit_of_run = np.zeros(int(run.max()) + 1, np.int64)
    unit_of_run[run] = np.asarray(rows.unit)
    num_runs = np.bincount(unit_of_run)[unit_of_run]
    asked = np.flatnonzero(num_runs > 1)
    if not len(asked):
        return 1.0
    asked = asked[:: -(-len(asked) // _NUM_RUNS)]
    place = np.full(len(num_runs), -1)
    place[asked] = np.arange(len(asked))
    used = place[run] >= 0
    by_run = jax.tree.map(lambda leaf: leaf[used], rows)
    by_run = by_run._replace(unit=jnp.asarray(place[run[used]], jnp.int32))
    first = own.z[unit_of_run[asked]]
    parts = estimate_latents(model, lane, by_run, len(asked), config, start=first, num_iterations=3)
    apart = np.square(model.embed(lane, parts.z) - model.embed(lane, first)).mean(axis=1)
    scaled = apart * parts.num_rows * num_runs[asked] / (num_runs[asked] - 1)
    return max(float(scaled.mean()), 1.0)
