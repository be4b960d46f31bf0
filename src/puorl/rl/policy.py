"""A learnt policy and its file; it acts in NumPy, without JAX."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import save as to_bytes

from puorl.core import hashing
from puorl.core.errors import ConfigError, DataError
from puorl.core.files import atomic_path
from puorl.data.fitted_columns import places
from puorl.data.validate import listed
from puorl.nn.numpy_mlp import NumpyPolicy, dimensions
from puorl.rl.onnx import to_onnx

_VERSION = 1
_RENAMED = {"policy_every": "policy_delay"}
"""Settings of learners under names of version 0.1."""
_HEADER = "puorl_policy"
_NETWORK = "network."
_SCALING = ("mean", "scale", "low", "high")
_NAMES = ("obs_names", "action_names")
_FIRST = {"td7": ("encoder.", "linear."), "bcq": ("q.", "behaviour.")}
"""Networks that read the observation, by kind, where it is not the only one."""
_COPY = "take another copy, or train again"
_AGAIN = f"the file is damaged; {_COPY}"


@dataclass(frozen=True, eq=False, repr=False)
class Policy(NumpyPolicy):
    """A learnt policy with its normaliser, its action range and its metadata.

    >>> policy = Policy.of("tanh", [{"w": np.zeros((3, 2)), "b": np.ones(2)}], low=[0, 0])
    >>> policy.act(np.zeros(3))
    array([0.8807971, 0.8807971], dtype=float32)
    """

    metadata: dict[str, Any] = field(default_factory=dict)
    """JSON values: learner, config, steps, seed, names of columns, versions."""

    def __post_init__(self) -> None:
        """Turn the metadata into what a file gives back."""
        super().__post_init__()
        if not isinstance(self.metadata, Mapping):
            raise DataError(f"metadata: expected names and values, got {self.metadata!r}")
        try:
            text = json.dumps(self.metadata, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(f"metadata: expected JSON values, got: {error}") from error
        object.__setattr__(self, "metadata", json.loads(text))
        for key, width in zip(_NAMES, (self.obs_dim, self.act_dim), strict=True):
            found = self.metadata.get(key, [""] * width)
            is_list = isinstance(found, list) and all(isinstance(name, str) for name in found)
            if not is_list or len(found) != width:
                raise DataError(f"{key}: expected {width} names of columns, got {found!r}")

    @property
    def obs_names(self) -> tuple[str, ...]:
        """Columns of the data that an observation holds, in order; empty if they are not known."""
        return tuple(self.metadata.get("obs_names", ()))

    @property
    def action_names(self) -> tuple[str, ...]:
        """Columns of the data that an action holds, in order; empty if they are not known."""
        return tuple(self.metadata.get("action_names", ()))

    @property
    def columns_text(self) -> str:
        """Say which columns go in and come out; empty if they are not known."""
        if not self.obs_names:
            return ""
        given = self.codes or self.action_names
        return f"{listed(self.obs_names)} -> {listed(given)}"

    def describe(self) -> dict[str, Any]:
        """Return what the policy takes and gives, JSON-ready; what its file does not say is absent.

        Columns are in the order in which `act` takes and gives them.
        """
        found = {name: self.metadata.get(name) for name in ("learner", "steps", "seed")}
        found |= {"obs_dim": self.obs_dim, "action_dim": self.act_dim}
        found |= {"obs": list(self.obs_names), "action": list(self.action_names)}
        if self.codes is None:
            found |= {"action_low": self.low.tolist(), "action_high": self.high.tolist()}
        known = {k: v for k, v in (found | self._codes()).items() if v not in (None, [])}
        return known | {"fingerprint": self.fingerprint}

    def for_columns(self, obs_names: Sequence[str], action_names: Sequence[str] = ()) -> "Policy":
        """Return the policy for data with these columns: it takes and gives them in their order.

        Names that the policy or the data lacks are not compared, nor are those of codes.

        Raises:
            DataError: The data has other columns than the policy.
        """
        owner = "the policy was trained on"
        inputs = places("obs", self.obs_names, obs_names, owner)
        codes = self.codes is not None
        outputs = None if codes else places("action", self.action_names, action_names, owner)
        if inputs is None and outputs is None:
            return self
        arrays, metadata = dict(self.arrays), dict(self.metadata)
        inputs = np.arange(self.obs_dim) if inputs is None else inputs
        outputs = np.arange(self.act_dim) if outputs is None else outputs
        for prefix in _FIRST.get(self.kind, ("",)):
            arrays[f"{prefix}0.w"] = arrays[f"{prefix}0.w"][inputs]
        if not codes:
            last = max((name for name in arrays if name.endswith(".w")), key=_layer)
            for name in (last, last.removesuffix("w") + "b"):
                arrays[name] = arrays[name][..., outputs]
        for key, order in zip(_NAMES, (inputs, outputs), strict=True):
            if key in metadata:
                metadata[key] = [metadata[key][i] for i in order]
        scaling = (self.mean[inputs], self.scale[inputs], self.low[outputs], self.high[outputs])
        return Policy(self.kind, arrays, *scaling, metadata, codes=self.codes)

    @classmethod
    def of(
        cls,
        kind: str,
        params: Any,
        *,
        mean: Any = None,
        scale: Any = None,
        low: Any = None,
        high: Any = None,
        codes: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> "Policy":
        """Make a policy of a learner's parameters, which are copied.

        Args:
            kind: How the network becomes an action, one of `puorl.nn.numpy_mlp.KINDS`.
            params: One lane's tree, as ``learner.actor(state)`` gives it: JAX or NumPy arrays.
            mean: (d,) float32. Of the observations it was trained on; zeros if None.
            scale: (d,) float32. Their deviation with its epsilon; ones if None.
            low: (m,) float32. The action for an output of -1; -1 if None.
            high: (m,) float32. The action for an output of 1; 1 if None.
            codes: What the outputs stand for, if actions are discrete.
            metadata: JSON values.

        Raises:
            ConfigError: No such kind.
            DataError: Arrays that do not fit together or are not finite.
        """
        arrays = _named(params)
        obs_dim, act_dim = dimensions(kind, arrays)
        return cls(
            kind,
            arrays,
            np.zeros(obs_dim) if mean is None else mean,
            np.ones(obs_dim) if scale is None else scale,
            -np.ones(act_dim) if low is None else low,
            np.ones(act_dim) if high is None else high,
            dict(metadata or {}),
            codes=None if codes is None else tuple(codes),
        )

    @property
    def fingerprint(self) -> str:
        """Hash of all that decides the actions, so without the metadata."""
        content = {"kind": self.kind, "arrays": hashing.of_arrays(self._tensors())}
        return hashing.of_settings(content | self._codes())

    def to_numpy(self) -> NumpyPolicy:
        """Return the acting part alone, for a program that only acts: arrays without metadata."""
        scaling = (self.mean, self.scale, self.low, self.high)
        return NumpyPolicy(self.kind, self.arrays, *scaling, codes=self.codes)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write a safetensors file, whole or not at all; the same policy gives the same bytes.

        Raises:
            DataError: Something is at ``path`` and ``force`` is off, or it cannot be written.
        """
        content = {
            "version": _VERSION,
            "kind": self.kind,
            "metadata": self.metadata,
            "checksum": self._checksum(),
            **self._codes(),
        }
        # One entry alone: safetensors writes several in any order.
        header = {_HEADER: json.dumps(content, sort_keys=True, allow_nan=False)}
        with atomic_path(path, force=force) as part:
            # Not save_file, whose files only their owner may read.
            part.write_bytes(to_bytes(self._tensors(), header))

    def to_onnx(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write an ONNX file, with the scaling of states and actions inside.

        Its input ``obs`` is (n, d) and its output ``action`` (n, m), both float32, in the units of
        the data. For discrete actions the output is ``probabilities`` (n, A) of the codes, which
        ``puorl.codes`` of the file's properties lists as JSON; ``puorl.obs_names`` and
        ``puorl.action_names`` list the columns, if they are known. Unlike `act` it takes values
        that are not finite, and gives such actions.

        Raises:
            DataError: Something is at ``path`` and ``force`` is off, or it cannot be written.
        """
        kept = {name: self.metadata.get(name) for name in ("learner", "steps", "seed")}
        texts = {f"puorl.{k}": str(v) for k, v in kept.items() if v is not None}
        if self.codes is not None:
            texts["puorl.codes"] = json.dumps(self.codes)
        texts |= {f"puorl.{k}": json.dumps(self.metadata[k]) for k in _NAMES if k in self.metadata}
        content = to_onnx(self, {**texts, "puorl.fingerprint": self.fingerprint})
        with atomic_path(path, force=force) as part:
            part.write_bytes(content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Policy":
        """Read a policy that ``save`` wrote.

        Raises:
            DataError: The file is missing, damaged, of another kind, or of a newer puorl.
        """
        path = Path(path)
        content, tensors = _read(path)
        try:
            scaling = {name: tensors.pop(name) for name in _SCALING}
            policy = cls(
                kind=content["kind"],
                arrays={name.removeprefix(_NETWORK): array for name, array in tensors.items()},
                metadata=content["metadata"],
                codes=content.get("codes"),
                **scaling,
            )
            stored, found = content["checksum"] or "", policy._checksum()
        except KeyError as error:
            raise DataError(f"{path}: expected a part {error}, got none; {_AGAIN}") from error
        except (ConfigError, DataError) as error:
            raise DataError(f"{path}: expected a whole policy, got: {error}; {_AGAIN}") from error
        hashing.check(path, stored, found, repair=_COPY)
        if isinstance(config := policy.metadata.get("config"), dict):
            policy.metadata["config"] = upgrade_config(config)
        return policy

    def __repr__(self) -> str:
        known = [f"{k}={self.metadata[k]}" for k in ("steps", "seed") if k in self.metadata]
        parts = [
            str(self.metadata.get("learner", self.kind)),
            f"obs {self.obs_dim} -> action {self.act_dim}{' codes' if self.codes else ''}",
            *([self.columns_text] if self.obs_names else []),
            f"{sum(array.size for array in self.arrays.values()):,} weights",
            *known,
            self.fingerprint[:8],
        ]
        return f"Policy({', '.join(parts)})"

    def _tensors(self) -> dict[str, np.ndarray]:
        network = {f"{_NETWORK}{name}": array for name, array in self.arrays.items()}
        return network | {name: getattr(self, name) for name in _SCALING}

    def _codes(self) -> dict[str, list[str]]:
        """Return the codes by name; nothing for continuous actions, whose files had none before."""
        return {} if self.codes is None else {"codes": list(self.codes)}

    def _checksum(self) -> str:
        return hashing.of_settings({"policy": self.fingerprint, "metadata": self.metadata})


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the content of the header, and the tensors."""
    if not path.is_file():
        found = "a folder; name a file in it" if path.is_dir() else "no such file; check the path"
        raise DataError(f"{path}: expected a policy file, found {found}")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            content = _header(path, file.metadata())
            return content, {name: file.get_tensor(name) for name in file.keys()}
    except (OSError, ValueError, TypeError, KeyError, safetensors.SafetensorError) as error:
        raise DataError(
            f"{path}: expected a policy in safetensors, got: {error}; is it whole, and of puorl?"
        ) from error


def _header(path: Path, entries: Mapping[str, str] | None) -> dict[str, Any]:
    text = (entries or {}).get(_HEADER)
    if text is None:
        raise DataError(
            f"{path}: expected a policy of puorl, got a safetensors file of another kind"
        )
    try:
        content = json.loads(text)
        version = int(content["version"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise DataError(f"{path}: expected a policy's header, got: {error!r}; {_AGAIN}") from error
    if version > _VERSION:
        raise DataError(
            f"{path}: expected a policy of version {_VERSION}, got version {version}; it was "
            "saved by a newer puorl, so update puorl to read it"
        )
    return content


def _layer(name: str) -> tuple[bool, int]:
    """Sort the last layer, which gives the action, behind all others."""
    *prefix, number, _ = name.split(".")
    return prefix in ([], ["mlp"]), int(number)


def _named(tree: Any) -> dict[str, Any]:
    """Return leaves by path: fields of named tuples, keys of mappings, numbers of positions."""
    if tree is None:
        return {}
    if isinstance(tree, Mapping):
        pairs = tree.items()
    elif isinstance(tree, tuple | list):
        pairs = zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True)
    else:
        return {"": np.asarray(tree)}
    return {
        f"{name}.{rest}" if rest else str(name): leaf
        for name, branch in pairs
        for rest, leaf in _named(branch).items()
    }


def stored_config(config: Any) -> dict[str, Any]:
    """Return the settings that runs are named and compared by.

    A setting that came later (``metadata={"later": True}``) is left out at its default, so that
    runs from before are the same runs still.
    """
    later = {f.name: f.default for f in fields(config) if f.metadata.get("later")}
    held = asdict(config)
    return {k: v for k, v in held.items() if k not in later or v != later[k]}


def upgrade_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored config under today's names.

    >>> upgrade_config({"gamma": 0.99, "policy_every": 2})
    {'gamma': 0.99, 'policy_delay': 2}
    """
    return {_RENAMED.get(name, name): value for name, value in config.items()}
