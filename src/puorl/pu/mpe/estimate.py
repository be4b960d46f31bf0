"""AlphaEstimate, and what alpha means for data of one sample and of two.

Estimators are handed labelled rows P and unlabelled rows U that share no row, and alpha is the
share of target rows in exactly that U. This reading makes them indifferent to how the labels came
about:

- one sample: labelled rows were cut out of the pool, so U lacks them and alpha lies a little below
  the pool's share of target rows (29/99 against 0.3 in the paper's setting);
- two samples: P is a sample of its own, U is the whole pool, and alpha is the pool's share.

Among the target rows of P and U together the labelled share is ``c = n_p / (n_p + alpha n_u)`` in
both cases, so one conversion serves both. What differs is what c means (how often a target row of
the pool gets a label, or merely how large a sample was taken) and the share in the pool itself:
`pool_share`.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from puorl.core.errors import ConfigError, DataError

Sampling = Literal["one", "two"]

MAX_ALPHA = 0.999
"""At 1 every unlabelled row would be rejected from training as a target row: nothing is left."""


@dataclass(frozen=True)
class AlphaEstimate:
    """How many of the unlabelled rows are the target's, clipped to [0, 0.999].

    >>> AlphaEstimate(1.3, None, "bbe").value
    0.999
    """

    value: float
    """Share of target rows among the unlabelled."""
    interval: tuple[float, float] | None
    """Lower and upper end, or None where none was computed."""
    method: str
    """Name of the estimator."""

    def __post_init__(self) -> None:
        """Clip to the range in which an estimate can be used.

        Raises:
            DataError: The value or an end of the interval is not a number.
        """
        numbers = (self.value, *(self.interval or ()))
        if not np.all(np.isfinite(numbers)):
            raise DataError(
                f"{self.method}: expected a finite estimate of alpha, got {numbers}; "
                "check the scores for constant or non-finite values"
            )
        object.__setattr__(self, "value", clip_alpha(self.value))
        if self.interval is not None:
            low, high = self.interval
            object.__setattr__(self, "interval", (clip_alpha(low), clip_alpha(high)))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        content = asdict(self)
        return content | {"interval": None if self.interval is None else list(self.interval)}


def clip_alpha(value: float) -> float:
    """The nearest number in [0, 0.999]."""
    return float(min(max(value, 0.0), MAX_ALPHA))


def alpha_from_label_frequency(frequency: float, num_p: int, num_u: int) -> float:
    """Turn the labelled share c of all target rows (P and U together) into alpha.

    >>> alpha_from_label_frequency(0.2, 10, 100)
    0.4

    Raises:
        DataError: The frequency is not in (0, 1].
    """
    if not 0 < frequency <= 1:
        raise DataError(f"label frequency: expected a number in (0, 1], got {frequency}")
    return num_p * (1 - frequency) / (frequency * num_u)


def label_frequency(alpha: float, num_p: int, num_u: int) -> float:
    """The labelled share of all target rows, P and U together.

    With one sample it is the chance that a target row of the pool was labelled; with two it only
    reflects how large a labelled sample was taken.
    """
    return num_p / (num_p + alpha * num_u)


def pool_share(alpha: float, num_p: int, num_u: int, sampling: Sampling) -> float:
    """Share of target rows in the pool that the data was drawn from.

    >>> round(pool_share(29 / 99, 10_000, 990_000, "one"), 6)
    0.3

    Raises:
        ConfigError: Unknown sampling.
    """
    if sampling not in get_args(Sampling):
        raise ConfigError(f"sampling: expected one or two, got {sampling!r}")
    return alpha if sampling == "two" else (num_p + alpha * num_u) / (num_p + num_u)


def check_scores(score_p: np.ndarray, score_u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as floating-point arrays of one axis, none empty, all finite.

    Raises:
        DataError: They are not.
    """
    return _checked(score_p, "score_p", ndim=1), _checked(score_u, "score_u", ndim=1)


def check_probabilities(score_p: np.ndarray, score_u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for scores that must be probabilities.

    Raises:
        DataError: They are not.
    """
    pair = check_scores(score_p, score_u)
    for name, score in zip(("score_p", "score_u"), pair, strict=True):
        if score.min() < 0 or score.max() > 1:
            raise DataError(
                f"{name}: expected probabilities in [0, 1], got values from {score.min():g} to "
                f"{score.max():g}; apply a sigmoid to logits first"
            )
    return pair


def check_features(x_p: np.ndarray, x_u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64 arrays (rows, columns) of the same columns, none empty, all finite.

    Raises:
        DataError: They are not.
    """
    x_p, x_u = _checked(x_p, "x_p", ndim=2), _checked(x_u, "x_u", ndim=2)
    if x_p.shape[1] != x_u.shape[1]:
        raise DataError(
            f"x_u: expected the {x_p.shape[1]} columns of x_p, got {x_u.shape[1]}; "
            "build both from the same inputs"
        )
    return x_p.astype(np.float64), x_u.astype(np.float64)


def _checked(values: np.ndarray, name: str, *, ndim: int) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    if values.ndim != ndim or values.size == 0:
        raise DataError(
            f"{name}: expected a non-empty array with {ndim} axes, got shape {values.shape}"
        )
    num_bad = int(np.count_nonzero(~np.isfinite(values)))
    if num_bad:
        raise DataError(
            f"{name}: expected finite numbers, got {num_bad} of {values.size} that are not; "
            "check the classifier's input for missing values"
        )
    return values
