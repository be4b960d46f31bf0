"""Files of a MachineModel: networks and tables as safetensors, everything else as JSON."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from puorl.core.errors import DataError
from puorl.core.run_folder import decode
from puorl.core.stats import Estimate
from puorl.data.fitted_columns import FittedColumns
from puorl.pu.config import FilterConfig
from puorl.pu.machines.findings import Finding, UnitTable
from puorl.pu.machines.mixture import Mixture
from puorl.pu.machines.model import MachineModel
from puorl.pu.machines.newcomers import RowFit, UnitFit
from puorl.pu.machines.sequences import Scaling, Scalings
from puorl.pu.machines.views import ViewModel
from puorl.pu.model import (
    REPAIR,
    params_from_arrays,
    params_to_arrays,
    read_arrays,
    read_content,
    write_files,
)
from puorl.pu.units import parse_unit

_VERSION = 2
_VIEW_ARRAYS = ("centre", "root", "inflation", "held_out_nll")
_MIXTURE_ARRAYS = ("mean", "covariance", "num_units", "shift", "member", "num_known", "classes")
_ESTIMATES = ("alpha", "recall", "precision")


def holds(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds a filter that decides by dynamics."""
    return "puorl_machines" in read_content(folder)


def write(
    model: MachineModel, folder: str | os.PathLike[str], metadata: dict[str, Any], *, force: bool
) -> Path:
    """Write a model into a new folder."""
    arrays: dict[str, np.ndarray] = {}
    for name, scaling in zip(Scalings._fields, model.scalings, strict=True):
        arrays |= {f"scaling.{name}.{k}": v for k, v in scaling._asdict().items()}
    for number, view in enumerate(model.views):
        arrays |= params_to_arrays(f"view{number}", view.params)
        arrays |= {f"view{number}.{k}": getattr(view, k) for k in _VIEW_ARRAYS}
        for k, mixture in enumerate(view.mixtures):
            head = f"view{number}.mixture{k}"
            arrays |= {f"{head}.{name}": getattr(mixture, name) for name in _MIXTURE_ARRAYS}
    table = model.units._asdict()
    names = table.pop("name")
    arrays |= {f"units.{k}": v for k, v in table.items()}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    views = [
        {
            "view": view.view,
            "horizon": view.horizon,
            "sizes": view.sizes,
            "gains": [mixture.gain for mixture in view.mixtures],
            "ours": [mixture.ours for mixture in view.mixtures],
            "lanes": [mixture.lane for mixture in view.mixtures],
        }
        for view in model.views
    ]
    content = {
        "puorl_machines": _VERSION,
        **metadata,
        "unit": str(model.unit),
        "seed": model.seed,
        "config": model.config.to_dict(),
        "views": views,
        "median_rows": model.median_rows,
        "units": [str(name) for name in names],
        **{name: getattr(model, name).to_dict() for name in _ESTIMATES},
        "finding": dataclasses.asdict(model.finding),
        "names": list(model.names),
        "row_fits": [fit._asdict() for fit in model.row_fits],
        "unit_fits": [fit.to_dict() for fit in model.unit_fits],
        "split": model.split_fingerprint,
        "columns": None if model.named is None else model.named.to_dict(),
    }
    return write_files(folder, content, arrays, force=force)


def read(folder: str | os.PathLike[str]) -> tuple[MachineModel, dict[str, Any]]:
    """Read what `write` wrote; return the model and the content of the JSON file.

    Raises:
        DataError: Not such a filter, or a damaged one.
    """
    content = read_content(folder)
    if content.get("puorl_machines") != _VERSION:
        raise DataError(
            f"{folder}: expected a saved filter of version {_VERSION}; fit and save it again"
        )
    try:
        arrays = read_arrays(folder, content)
        scalings = Scalings(
            *(
                Scaling(*(arrays[f"scaling.{name}.{k}"] for k in Scaling._fields))
                for name in Scalings._fields
            )
        )
        # Filters from before chances of named types were stored have none.
        fields = [k for k in UnitTable._fields if k != "classes" or f"units.{k}" in arrays]
        model = MachineModel(
            config=FilterConfig.from_dict(content["config"]),
            unit=parse_unit(content["unit"]),
            seed=content["seed"],
            scalings=scalings,
            views=tuple(_view(k, each, arrays) for k, each in enumerate(content["views"])),
            median_rows=content["median_rows"],
            units=UnitTable(
                name=np.array(content["units"], dtype=str),
                **{k: arrays[f"units.{k}"] for k in fields if k != "name"},
            ),
            finding=decode(Finding, content["finding"], Path(folder)),
            names=tuple(content.get("names", ())),
            row_fits=tuple(RowFit(**fit) for fit in content.get("row_fits", ())),
            unit_fits=tuple(map(UnitFit.from_dict, content.get("unit_fits", ()))),
            split_fingerprint=content["split"],
            named=FittedColumns.stored(content.get("columns")),
            **{name: decode(Estimate, content[name], Path(folder)) for name in _ESTIMATES},
        )
    except DataError:
        raise
    except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
        raise DataError(
            f"{folder}: expected a whole saved filter, got: {error!r}; {REPAIR}"
        ) from error
    return model, content


def _view(number: int, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> ViewModel:
    mixtures = []
    each = zip(content["gains"], content["ours"], content["lanes"], strict=True)
    for k, (gain, ours, lane) in enumerate(each):
        head = f"view{number}.mixture{k}"
        # Filters from before `num_known` and `classes` were stored have none.
        found = {k: arrays.get(f"{head}.{k}") for k in _MIXTURE_ARRAYS}
        own: dict[str, Any] = {k: array for k, array in found.items() if array is not None}
        mixtures.append(Mixture(**own, gain=gain, ours=tuple(ours), lane=lane))
    return ViewModel(
        view=content["view"],
        horizon=content.get("horizon", 0),
        params=params_from_arrays(f"view{number}", arrays),
        sizes=tuple(content["sizes"]),
        mixtures=tuple(mixtures),
        **{k: arrays[f"view{number}.{k}"] for k in _VIEW_ARRAYS},
    )
