"""Crews: cells whose lanes train together.

A GPU does sixty lanes in little more than twice the time of ten, so that small cells of one shape
are better trained side by side.
"""

from dataclasses import dataclass
from functools import cached_property

from puorl.bench.plan import Cell, Plan
from puorl.core import fingerprint
from puorl.envs.bodies import body as body_of


@dataclass(frozen=True, eq=False)
class Crew:
    """Cells with one learner, one budget and rows of one shape; a single cell is a crew, too."""

    cells: tuple[Cell, ...]

    @cached_property
    def id(self) -> str:
        """Name of its groups."""
        names = [cell.id for cell in self.cells]
        return names[0] if len(names) == 1 else fingerprint.of_settings({"cells": names})[:16]

    @property
    def title(self) -> str:
        """For people."""
        first, *more = self.cells
        return first.title + (f" and {len(more)} more" if more else "")

    def cell(self, name: str) -> Cell:
        """Its cell of that id."""
        return next(cell for cell in self.cells if cell.id == name)


def make_crews(plan: Plan, most_lanes: int | None) -> tuple[Crew, ...]:
    """The cells of a plan in its order, as crews.

    Args:
        plan: What is to be run.
        most_lanes: Neighbours of one shape are joined while their trainings are at most this many;
            None leaves every cell alone.
    """
    crews: list[list[Cell]] = []
    lanes: set[str] = set()
    for cell in plan.cells:
        own = {run.expected_training for run in plan.runs_of(cell)}
        fits = most_lanes is not None and len(lanes | own) <= most_lanes
        # Of one claim there is one holder: a crew that needs it twice would wait for itself.
        claimed = bool(crews) and cell.id in {other.id for other in crews[-1]}
        if crews and fits and not claimed and _shape(crews[-1][0]) == _shape(cell):
            crews[-1].append(cell)
            lanes |= own
        else:
            crews.append([cell])
            lanes = own
    return tuple(Crew(tuple(cells)) for cells in crews)


def _shape(cell: Cell) -> tuple:
    body = body_of(cell.setting.body)
    return cell.training, cell.budget, body.obs_dim, body.act_dim
