"""What the data must have for the chosen unit and inputs: asked before anything is learnt."""

import difflib

from puorl.core.errors import DataError
from puorl.data.dataset import Dataset
from puorl.pu.units import Unit


def check_needs(data: Dataset, unit: Unit, inputs: str) -> None:
    """Refuse a unit or inputs that the data cannot serve.

    Args:
        data: All rows.
        unit: What is to be decided about.
        inputs: What is to be judged by, such as ``sars``.

    Raises:
        DataError: Rewards, episodes or a column are needed and not there.
    """
    if "r" in inputs and data.reward is None:
        raise DataError(
            f"--inputs {inputs}: expected rewards, and this data has none; name their column with "
            "--reward, or judge by --inputs sas"
        )
    if unit.kind in ("episode", "window") and data.episode is None:
        raise DataError(
            f"--unit {unit.kind}: expected rows with episode ids, and this data has none; name "
            "their column with --episode, or decide by --unit transition"
        )
    if unit.kind == "column" and unit.column not in data.columns:
        near = difflib.get_close_matches(unit.column, data.columns, n=1)
        hint = f"did you mean column:{near[0]}? " if near else ""
        raise DataError(
            f"--unit column:{unit.column}: no such column; {hint}"
            f"columns: {', '.join(data.columns) or 'none'}"
        )
