"""MachineReport: every unit, what the choice rests on, and how good it is. Free of jax."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from puorl.core.formatting import fields_as_json
from puorl.core.stats import Estimate
from puorl.pu.machines.findings import NONE, OURS, Finding, UnitTable, Verdict

if TYPE_CHECKING:  # importing it loads jax
    from puorl.pu.machines.model import MachineModel


@dataclass(frozen=True)
class UnitRow:
    """One unit of the table."""

    name: str
    num_rows: int
    labelled: bool
    probability: float
    evidence: float
    """Nats for ours against the other types."""
    misfit: float
    """Nats a row by which our type explains the unit worse than its own latents."""
    keep: bool
    cluster: int
    """0 is ours, others by number of units, -1 none of these."""
    agreement: float
    x: float
    y: float
    spread: float
    """Standard error of x and y."""
    name_of_type: str = ""
    """Given with `labelled_as`; empty for types that have letters."""
    is_weighed: bool = False
    """Whether its rows are kept with the probability as weight, as in the mode ``soft``."""
    chances: dict[str, float] = field(default_factory=dict)
    """Probability of each named type and of none of these; empty where no other type is named."""


@dataclass(frozen=True)
class MachineReport:
    """The result of a decision about machines, JSON-ready."""

    verdict: Verdict
    advice: str
    finding: Finding
    alpha: Estimate
    """Fraction of target rows among the unlabelled."""
    recall: Estimate
    precision: Estimate
    agreement: float
    """Mean weight of the models that agree with the decision, over unlabelled units."""
    units: tuple[UnitRow, ...]
    view: str
    """What showed the types most clearly: dynamics, relations between sensors, or slopes."""
    unit: str
    settings: dict[str, Any]

    @property
    def is_soft(self) -> bool:
        """Whether all rows are kept, with weights."""
        return self.settings.get("mode") == "soft"

    @property
    def num_types(self) -> int:
        """Types that have units, ours included."""
        return len({row.cluster for row in self.units if row.cluster >= 0})

    @property
    def is_weak(self) -> bool:
        """Whether units not known to be others were dropped, though no second type is seen."""
        num_dropped = sum(not row.keep and row.probability > 0 for row in self.units)
        return num_dropped > self.finding.num_odd and self.verdict in ("behaviour", "neither")

    def to_dict(self) -> dict[str, Any]:
        """Return all content, JSON-ready; numbers that are not finite become None."""
        return {"kind": "machines", **fields_as_json(self)}


def class_names(names: Sequence[str]) -> tuple[str, ...]:
    """Name the columns of `UnitTable.classes`.

    >>> class_names(["worn"])
    ('ours', 'worn', 'none of these')
    """
    return (OURS, *names, NONE)


def unit_rows(
    table: UnitTable, names: Sequence[str] = (), *, is_soft: bool = False
) -> tuple[UnitRow, ...]:
    """Return the table row by row, the surest of ours first; ``names`` are of types from 1 on."""
    classes, made = class_names(names), []
    for i in np.lexsort((table.name, -table.evidence, ~table.labelled)):
        made.append(
            UnitRow(
                name=str(table.name[i]),
                num_rows=int(table.num_rows[i]),
                labelled=bool(table.labelled[i]),
                probability=float(table.probability[i]),
                evidence=float(table.evidence[i]),
                misfit=float(table.misfit[i]),
                keep=bool(table.keep[i]),
                cluster=int(table.cluster[i]),
                agreement=float(table.agreement[i]),
                x=float(table.position[i, 0]),
                y=float(table.position[i, 1]),
                spread=float(table.spread[i]),
                name_of_type=names[k - 1] if 0 < (k := int(table.cluster[i])) <= len(names) else "",
                is_weighed=is_soft and not bool(table.labelled[i]),
                chances=dict(zip(classes, table.classes[i].tolist(), strict=True))
                if table.classes.size
                else {},
            )
        )
    return tuple(made)


def make_machine_report(model: "MachineModel", settings: Mapping[str, Any]) -> MachineReport:
    """Collect what a fitted model says."""
    asked = ~model.units.labelled
    dropped = ~model.units.keep & (model.units.probability > 0)  # 0: known to be others
    view, _ = model.best
    is_soft = settings.get("mode") == "soft"
    steps = model.config.machines.horizons[view.horizon]
    return MachineReport(
        verdict=model.finding.verdict,
        advice=model.finding.advise(int(dropped.sum()), is_soft=is_soft),
        finding=model.finding,
        alpha=model.alpha,
        recall=model.recall,
        precision=model.precision,
        agreement=float(model.units.agreement[asked].mean()),
        units=unit_rows(model.units, model.names, is_soft=is_soft),
        view=f"{view.view} over {steps} steps" if steps > 1 else view.view,
        unit=str(model.unit),
        settings=dict(settings),
    )
