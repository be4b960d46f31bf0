"""Formulas over columns, such as ``-abs(pressure - 5) - 0.01 * power``, in a small language.

    sum      = product {("+" | "-") product}
    product  = factor {("*" | "/") factor}
    factor   = ("+" | "-") factor | value ["**" factor]
    value    = number | column | "(" sum ")" | function "(" sum {"," sum} ")"

Functions are abs, sqrt, exp, log, sin, cos, min and max. Names of columns that are not plain words
stand in `backticks`. Nothing is passed to ``eval``.
"""

import difflib
import re
from collections.abc import Mapping
from functools import reduce
from typing import NoReturn

import numpy as np

from puorl.core.errors import ConfigError, DataError

_FUNCTIONS = {
    "abs": np.abs,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "min": lambda *values: reduce(np.minimum, values),
    "max": lambda *values: reduce(np.maximum, values),
}
_SEVERAL = ("min", "max")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))|(?P<word>[^\W\d][\w.]*)"
    r"|(?P<quoted>`[^`]+`)|(?P<sign>\*\*|[-+*/(),])|(?P<end>\Z)|(?P<odd>.))"
)
_MAX_DEPTH = 50


def is_formula(text: str) -> bool:
    """Tell a formula from the name of a column, which may hold ``/``, ``-`` or parentheses.

    >>> is_formula("-abs(pressure - 5)"), is_formula("env/reward-1"), is_formula("gain (mean)")
    (True, False, False)
    """
    call = rf"\b(?:{'|'.join(_FUNCTIONS)})\("
    return bool(re.search(rf"^\s*[-+]|[*`+]|\s[-/]\s|{call}", text))


def compute(formula: str, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """(n,) float64. Compute a formula for every row.

    Args:
        formula: E.g. ``"-abs(pressure - 5) - 0.01 * power"``.
        columns: Name to (n,) numbers, flags or text.

    Raises:
        ConfigError: Wrong syntax, an unknown column, or one that holds text.
        DataError: A row gives no finite number.

    >>> compute("-abs(x - 5) * 2", {"x": np.array([4.0, 7.0])}).tolist()
    [-2.0, -4.0]
    """
    with np.errstate(all="ignore"):
        found = np.asarray(_Parser(formula, columns).parse(), np.float64)
    size = len(next(iter(columns.values()), ()))
    values = np.broadcast_to(found, (size,)).copy()
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise DataError(
            f"formula {formula!r}: expected a finite number in every row, got {values[bad[0]]} in "
            f"row {bad[0]} and {len(bad)} such rows in all; change the formula, or drop those rows"
        )
    return values


class _Parser:
    """Recursive descent over the tokens, one method for each rule of the grammar."""

    def __init__(self, formula: str, columns: Mapping[str, np.ndarray]) -> None:
        self._formula, self._columns = formula, columns
        self._tokens = list(_TOKEN.finditer(formula))
        self._at = self._depth = 0

    def parse(self) -> np.ndarray:
        value = self._sum()
        if self._text:
            self._fail(f"expected an operator or the end, got {self._text!r}")
        return value

    @property
    def _text(self) -> str:
        return self._tokens[self._at][0].strip()

    def _take(self, *signs: str) -> str:
        text = self._text
        if text not in signs:
            return ""
        self._at += 1
        return text

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            self._fail(f"expected {sign!r}, got {self._text or 'the end'!r}")

    def _sum(self) -> np.ndarray:
        value = self._product()
        while sign := self._take("+", "-"):
            value = value + self._product() if sign == "+" else value - self._product()
        return value

    def _product(self) -> np.ndarray:
        value = self._factor()
        while sign := self._take("*", "/"):
            value = value * self._factor() if sign == "*" else value / self._factor()
        return value

    def _factor(self) -> np.ndarray:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(f"nested deeper than {_MAX_DEPTH}; simplify it")
        if sign := self._take("+", "-"):
            value = self._factor() if sign == "+" else -self._factor()
        else:
            value = self._value()
            value = value ** self._factor() if self._take("**") else value
        self._depth -= 1
        return value

    def _value(self) -> np.ndarray:
        token, text = self._tokens[self._at], self._text
        if self._take("("):
            value = self._sum()
            self._need(")")
            return value
        if token.lastgroup not in ("number", "word", "quoted"):
            self._fail(f"expected a number or a column, got {text or 'the end'!r}")
        self._at += 1
        if token.lastgroup == "number":
            return np.asarray(float(text))
        name = text.strip("`")
        if token.lastgroup == "word" and name in _FUNCTIONS and self._take("("):
            return self._call(name)
        return self._column(name)

    def _call(self, name: str) -> np.ndarray:
        values = [self._sum()]
        while self._take(","):
            values.append(self._sum())
        self._need(")")
        if len(values) > 1 and name not in _SEVERAL:
            self._fail(f"expected one value for {name}, got {len(values)}")
        return _FUNCTIONS[name](*values)

    def _column(self, name: str) -> np.ndarray:
        if name not in self._columns:
            near = difflib.get_close_matches(name, list(self._columns), n=3)
            known = ", ".join([*near, *(k for k in self._columns if k not in near)][:20])
            self._fail(f"expected a column, got the unknown name {name!r}; known: {known}")
        values = np.asarray(self._columns[name])
        if values.dtype.kind not in "biuf":
            self._fail(f"expected numbers in column {name!r}, got text")
        return values.astype(np.float64)

    def _fail(self, problem: str) -> NoReturn:
        place = self._tokens[min(self._at, len(self._tokens) - 1)].start() + 1
        shown = self._formula[:200]
        raise ConfigError(f"formula {shown!r}: near character {place}: {problem}")
