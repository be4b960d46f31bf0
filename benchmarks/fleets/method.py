"""The methods that are judged, behind one call: which units are ours, from a few known ones.

A method sees a dataset whose column ``unit`` names the unit of each row, and names of known units.
Types and operators never reach it. `METHODS` is where another one is put in.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from baseline import above_largest_gap, one_step_scores

import puorl
from puorl.core.run_folder import Checkpoint
from puorl.core.stats import Estimate
from puorl.pu.config import FilterConfig, MachineConfig, preset_config
from puorl.pu.machines import embedding, fitting
from puorl.pu.machines.sampling import draw_sample
from puorl.pu.units import number_units, parse_unit


class Task(NamedTuple):
    """One draw: which units are known, and the seed of the method."""

    known: np.ndarray
    """(k,) str. Names of units."""
    seed: int


@dataclass(frozen=True, eq=False)
class Decision:
    """What a method says; arrays are over all units of the dataset, in the order of their names."""

    units: np.ndarray
    """(units,) str."""
    evidence: np.ndarray
    """(units,) float. The higher, the more like the known units; in nats where the method says."""
    kept: np.ndarray
    """(units,) bool. Called ours."""
    seconds: float
    probability: np.ndarray | None = None
    """(units,) float. That a unit is ours."""
    cluster: np.ndarray | None = None
    """(units,) int. 0 is ours."""
    alpha: Estimate | None = None
    """Fraction of our rows among the unlabelled ones."""
    recall: Estimate | None = None
    """Fraction of our unlabelled units that are kept."""
    verdict: str | None = None
    latent: np.ndarray | None = None
    """(units, z) float. What the method knows of a unit, for read-outs."""
    fitted: Any = None
    """The fitted filter, to be asked about further rows."""


@dataclass(frozen=True)
class Method:
    """A method with its settings."""

    name: str
    preset: str = "default"
    changes: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the preset's."""
    trial: str = ""
    """Name of a version in development, so that its rows do not stand in for another's."""

    @property
    def filter_config(self) -> FilterConfig:
        """All settings of the filter."""
        return preset_config(self.preset).changed(self.changes)

    def config(self) -> dict[str, Any]:
        """All that decides what the method does, JSON-ready."""
        named = {"method": self.name} | ({"trial": self.trial} if self.trial else {})
        if self.name == "linear":
            return named
        settings = asdict(self.filter_config)
        for added in ("latent_start", "num_trusted"):  # rows from before these stay valid
            if settings["machines"][added] == getattr(MachineConfig, added):
                del settings["machines"][added]
        return named | {"preset": self.preset, "filter": settings}

    def decide(self, data: puorl.Dataset, tasks: Sequence[Task]) -> list[Decision]:
        """Decide about all units of a dataset, once for each task."""
        return METHODS[self.name](self, data, tasks)


def by_dynamics(method: Method, data: puorl.Dataset, tasks: Sequence[Task]) -> list[Decision]:
    """Each unit's own dynamics beside those of the known units."""
    # No label enters the embedding of units: draws of one seed share it, with the same result as
    # `DomainFilter.fit` for each of them.
    unit, config = parse_unit("column:unit"), method.filter_config
    found = number_units(data, unit)
    made = []
    for known, seed in tasks:
        label = np.where(np.isin(found.name, known), 0, -1)
        seconds, begin = 0.0, time.perf_counter()
        if draw_sample(label, found.num_rows, seed).all():
            latents, seconds = embedded(data, config, seed)
            begin = time.perf_counter()
            types = fitting.find_types(latents, label, "", config, unit=unit, seed=seed)
            model = fitting.settle(types.model, types.lanes, data, found)
            flt = puorl.DomainFilter.of(model)
        else:  # the sample hangs on the labels
            labelled = np.isin(np.asarray(data.columns["unit"]), known)
            flt = puorl.DomainFilter(unit="column:unit", config=config)
            flt.fit(data, labelled, seed=seed)
        made.append(read_filter(flt, data, seconds=seconds + time.perf_counter() - begin))
    return made


_EMBEDDED: dict[tuple[str, str, int], tuple[fitting.Embedding, float]] = {}


def embedded(
    data: puorl.Dataset, config: FilterConfig, seed: int
) -> tuple[fitting.Embedding, float]:
    """The latents of all units and the seconds that they took; the last few are kept."""
    key = data.fingerprint, json.dumps(config.to_dict(), sort_keys=True), seed
    if key not in _EMBEDDED:
        begin = time.perf_counter()
        found = number_units(data, parse_unit("column:unit"))
        made = embedding.embed(data, found, config.machines, seed=seed, checkpoint=Checkpoint(None))
        if len(_EMBEDDED) >= _NUM_KEPT:
            del _EMBEDDED[next(iter(_EMBEDDED))]
        _EMBEDDED[key] = made, time.perf_counter() - begin
    return _EMBEDDED[key]


_NUM_KEPT = 8


def read_filter(flt: Any, data: puorl.Dataset, *, seconds: float) -> Decision:
    """What a fitted filter says of the units of its own data.

    Raises:
        ValueError: It does not speak of every unit exactly once.
    """
    table, units = flt.units_, np.unique(data.columns["unit"])
    name = np.asarray(table.name).astype(str)
    order = np.argsort(name)
    if not np.array_equal(name[order], units):
        raise ValueError(f"expected {len(units)} units of the data, got {len(name)} others")
    latent = getattr(table, "z", None)
    return Decision(
        units=units,
        evidence=np.asarray(table.evidence, np.float64)[order],
        kept=np.asarray(table.keep, bool)[order],
        seconds=seconds,
        probability=np.asarray(table.probability, np.float64)[order],
        cluster=np.asarray(table.cluster)[order],
        alpha=flt.alpha_,
        recall=getattr(flt, "recall_", None),
        verdict=flt.verdict_,
        latent=None if latent is None else np.asarray(latent, np.float64)[order],
        fitted=flt,
    )


def by_linear_model(method: Method, data: puorl.Dataset, tasks: Sequence[Task]) -> list[Decision]:
    """A linear model of the known units, cut at the largest gap: quick, and a check of the rest."""
    del method
    x = np.hstack([data.obs, data.action]).astype(np.float64)
    change = data.next_obs.astype(np.float64) - data.obs
    unit = np.asarray(data.columns["unit"])
    made = []
    for known, _ in tasks:
        begin = time.perf_counter()
        score = one_step_scores(x, change, unit, known)
        units = np.unique(unit)
        asked = ~np.isin(units, known)
        kept = np.ones(len(units), bool)
        kept[asked] = above_largest_gap(score[asked])
        made.append(Decision(units, score, kept, time.perf_counter() - begin))
    return made


METHODS: dict[str, Callable[[Method, puorl.Dataset, Sequence[Task]], list[Decision]]] = {
    "dynamics": by_dynamics,
    "linear": by_linear_model,
}


def method_options(parser: argparse.ArgumentParser) -> None:
    """Options of every benchmark that judges a method."""
    parser.add_argument("--method", choices=list(METHODS), default="dynamics")
    parser.add_argument("--preset", default="default")
    parser.add_argument(
        "--change", type=json.loads, default={}, help="settings unlike the preset's, as JSON"
    )
    parser.add_argument("--trial", default="", help="name of a version in development")
    parser.add_argument("--show", action="store_true", help="measure nothing")


def chosen_method(args: argparse.Namespace) -> Method:
    """The method that the options name."""
    return Method(args.method, args.preset, args.change, args.trial)
