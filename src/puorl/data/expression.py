"""Conditions and formulas over columns, in two small languages; nothing is passed to ``eval``.

    condition   = all {"or" all}
    all         = one {"and" one}
    one         = "not" one | "(" condition ")" | column [comparison]
    comparison  = operator literal | ["not"] "in" "[" literal {"," literal} "]"
    operator    = "==" | "!=" | "<" | "<=" | ">" | ">="
    literal     = number | 'text' | "text" | true | false

Column names that are not plain words are written in `backticks`; a quote inside quotes is doubled.
A column alone means that its flag is set. Every comparison with NaN is false, ``!=`` too.

    sum         = product {("+" | "-") product}
    product     = factor {("*" | "/") factor}
    factor      = ("+" | "-") factor | value ["**" factor]
    value       = number | column | "(" sum ")" | function "(" sum {"," sum} ")"

Functions are abs, sqrt, exp, log, sin, cos, min and max.
"""

import difflib
import operator
import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import NamedTuple, NoReturn

import numpy as np

from puorl.core.errors import ConfigError, DataError

Literal = bool | int | float | str

_MAX_DEPTH = 50
"""Largest nesting of parentheses, ``not`` and signs, far below Python's own limit."""
_MOST_SHOWN = 200
"""Characters of a text that a message shows."""
_OPERATORS: dict[str, Callable[..., np.ndarray]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_KEYWORDS = ("and", "or", "not", "in", "true", "false")
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
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])"
_REST = r"""
    | (?P<word>[^\W\d][\w.]*)
    | (?P<column>`(?:[^`]|``)+`)
    | (?P<end>\Z)
    | (?P<odd>.)
    )"""
_CONDITION = re.compile(
    rf"""\s*(?:
      (?P<number>[+-]?{_NUMBER})
    | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    | (?P<operator>==|!=|<=|>=|<|>)
    | (?P<mark>[()\[\],]){_REST}""",
    re.VERBOSE,
)
_PLAIN_NAME = re.compile(r"[^\W\d][\w.]*")
_FORMULA = re.compile(
    rf"""\s*(?:
      (?P<number>{_NUMBER})
    | (?P<mark>\*\*|[-+*/(),]){_REST}""",
    re.VERBOSE,
)
_HINTS = {
    "=": "write == to compare",
    "&": "write and",
    "|": "write or",
    "!": "write not, or != to compare",
    "~": "write not",
    "'": "the quote is not closed",
    '"': "the quote is not closed",
    "`": "the backtick is not closed",
}


class _Token(NamedTuple):
    kind: str
    """number, column, text, operator, end, or a keyword or mark itself."""
    text: str
    position: int
    is_word: bool
    """Not in backticks or quotes."""


_Node = Callable[[], np.ndarray]


class NamedValue(NamedTuple):
    """A value with which a condition compares a column by ``==``, ``!=`` or ``in``."""

    column: str
    value: Literal
    is_excluded: bool
    """Rows with it are left out, by ``!=``, ``not in`` or ``not``."""


def named_values(condition: str, columns: Mapping[str, np.ndarray]) -> list[NamedValue]:
    """Return the values that a condition names, each once.

    >>> [each.value for each in named_values("robot in ['A7', 'B1'] and speed < 2", {})]
    ['A7', 'B1']
    """
    parser = _Condition(condition, columns)
    parser.parse()
    return list(dict.fromkeys(parser.named))


def evaluate(condition: str, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """(n,) bool. Evaluate a condition for every row.

    Args:
        condition: E.g. ``"robot == 'A7' and not (speed > 2.5 or checked == 0)"``.
        columns: Name to (n,) numbers, flags or text.

    Raises:
        ConfigError: Wrong syntax, an unknown column, or a comparison of different kinds.

    >>> evaluate("robot == 'A7' and speed < 2", {"robot": np.array(["A7", "B1", "A7"]),
    ...                                          "speed": np.array([1.0, 1.0, np.nan])}).tolist()
    [True, False, False]
    """
    return _Condition(condition, columns).parse()()


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
        found = np.asarray(_Formula(formula, columns).parse(), np.float64)
    values = np.broadcast_to(found, (len(next(iter(columns.values()), ())),)).copy()
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise DataError(
            f"formula {formula!r}: expected a finite number in every row, got {values[bad[0]]} in "
            f"row {bad[0]} and {len(bad)} such rows in all; change the formula, or drop those rows"
        )
    return values


class _Parser:
    """Recursive descent over the tokens, one method for each rule of a grammar."""

    tokens: re.Pattern[str]
    subject: tuple[str, str]
    """Beginning of messages: what is parsed, and a word before the place in it."""
    keywords: tuple[str, ...] = ()

    def __init__(self, text: str, columns: Mapping[str, np.ndarray]) -> None:
        self._text, self._columns = text, columns
        self._tokens = [self._token(match) for match in self.tokens.finditer(text)]
        self._at = self._depth = 0

    def _token(self, match: re.Match[str]) -> _Token:
        kind = match.lastgroup or ""
        text, position, is_word = match[kind], match.start(kind), kind == "word"
        if kind == "odd":
            hint = _HINTS.get(text, "put odd names in `backticks` and text in quotes")
            problem = f"expected a column, a value or an operator, got {text!r}; {hint}"
            self._fail(position, problem)
        if is_word:
            kind = text.lower() if text.lower() in self.keywords else "column"
        elif kind in ("column", "text"):
            text = text[1:-1].replace(text[0] * 2, text[0])
        return _Token(text if kind == "mark" else kind, text, position, is_word)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, kind: str, *, expected: str = "") -> _Token | None:
        """Return the next token and step over it, if it is of that kind; fail if it is needed."""
        token = self._next
        if token.kind == kind:
            self._at += kind != "end"
            return token
        if expected:
            got = "the end" if token.kind == "end" else repr(token.text)
            self._fail(token.position, f"expected {expected}, got {got}")
        return None

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(self._next.position, f"nested deeper than {_MAX_DEPTH}; simplify it")

    def _values(self, column: _Token) -> np.ndarray:
        if column.text in self._columns:
            values = np.asarray(self._columns[column.text])
            if values.ndim != 1 or values.dtype.kind not in "biufU":
                self._refuse(
                    column, f"holds {values.dtype} of shape {values.shape}, not one value a row"
                )
            return values
        known = list(self._columns)
        close = difflib.get_close_matches(column.text, known, n=3)
        listed = ", ".join([*close, *(k for k in known if k not in close)][:20]) or "none"
        problem = (
            f"expected a column, got the unknown name {column.text!r}; known columns: {listed}"
        )
        if close and not self._odd_name(column.position):
            problem += f"; did you mean {_as_name(close[0])}?"
        self._fail(column.position, problem)

    def _refuse(self, column: _Token, problem: str) -> NoReturn:
        self._fail(column.position, f"column {column.text!r} {problem}")

    def _fail(self, position: int, problem: str) -> NoReturn:
        text, (what, place) = self._text, self.subject
        shown = text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + " ..."
        if odd := self._odd_name(position):
            problem += f"; write the column {odd!r} in backticks: {_as_name(odd)}"
        raise ConfigError(f"{what} {shown!r}: {place} character {position + 1}: {problem}")

    def _odd_name(self, position: int) -> str:
        """Return the column that is no plain word and stands without backticks at a place."""
        for name in self._columns:
            start = -1 if _PLAIN_NAME.fullmatch(name) else self._text.find(name)
            in_backticks = start > 0 and self._text[start - 1] == "`"
            # Quotes around the name are one character before it.
            if start >= 0 and not in_backticks and start - 1 <= position < start + len(name):
                return name
        return ""


class _Formula(_Parser):
    """Every rule returns its values."""

    tokens, subject = _FORMULA, ("formula", "near")

    def parse(self) -> np.ndarray:
        value = self._sum()
        self._take("end", expected="an operator or the end")
        return value

    def _sum(self) -> np.ndarray:
        value = self._product()
        while sign := self._take("+") or self._take("-"):
            value = value + self._product() if sign.kind == "+" else value - self._product()
        return value

    def _product(self) -> np.ndarray:
        value = self._factor()
        while sign := self._take("*") or self._take("/"):
            value = value * self._factor() if sign.kind == "*" else value / self._factor()
        return value

    def _factor(self) -> np.ndarray:
        self._deeper()
        if sign := self._take("+") or self._take("-"):
            value = self._factor() if sign.kind == "+" else -self._factor()
        else:
            value = self._value()
            value = value ** self._factor() if self._take("**") else value
        self._depth -= 1
        return value

    def _value(self) -> np.ndarray:
        if self._take("("):
            value = self._sum()
            self._take(")", expected="')'")
            return value
        if number := self._take("number"):
            return np.asarray(float(number.text))
        column = self._take("column", expected="a number or a column")
        assert column is not None
        if column.is_word and column.text in _FUNCTIONS and self._take("("):
            return self._call(column)
        values = self._values(column)
        if values.dtype.kind == "U":
            self._fail(column.position, f"expected numbers in column {column.text!r}, got text")
        return values.astype(np.float64)

    def _call(self, name: _Token) -> np.ndarray:
        values = [self._sum()]
        while self._take(","):
            values.append(self._sum())
        self._take(")", expected="')'")
        if len(values) > 1 and name.text not in _SEVERAL:
            self._fail(name.position, f"expected one value for {name.text}, got {len(values)}")
        return _FUNCTIONS[name.text](*values)


class _Condition(_Parser):
    """Every rule returns a function that computes its mask, so that syntax is checked first."""

    tokens, subject, keywords = _CONDITION, ("condition", "at"), _KEYWORDS

    def __init__(self, text: str, columns: Mapping[str, np.ndarray]) -> None:
        super().__init__(text, columns)
        self.named: list[NamedValue] = []
        self._inverted = False

    def parse(self) -> _Node:
        node = self._any()
        self._take("end", expected="and, or, or the end")
        return node

    def _any(self) -> _Node:
        return self._joined("or", lambda: self._joined("and", self._one))

    def _joined(self, word: str, part: Callable[[], _Node]) -> _Node:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        join = np.logical_and if word == "and" else np.logical_or
        # One after the other: thousands of masks would not fit into memory.
        return lambda: reduce(join, (each() for each in parts))

    def _one(self) -> _Node:
        self._deeper()
        if self._take("not"):
            self._inverted = not self._inverted
            inner = self._one()
            self._inverted = not self._inverted
            node: _Node = lambda: ~inner()  # noqa: E731
        elif self._take("("):
            node = self._any()
            self._take(")", expected="')'")
        else:
            node = self._comparison()
        self._depth -= 1
        return node

    def _comparison(self) -> _Node:
        is_value = self._next.kind in ("number", "text", "true", "false")
        order = " (the value stands to the right of the operator)" if is_value else ""
        column = self._take("column", expected=f"a column{order}")
        assert column is not None
        if sign := self._take("operator"):
            value = self._literal()
            if sign.text in ("==", "!="):
                self._name(column, [value], excluded=sign.text == "!=")
            return lambda: self._compare(column, sign.text, value)
        negated = self._take("not")
        if negated:
            self._take("in", expected="in (as in: column not in [1, 2])")
        elif not self._take("in"):
            return lambda: self._flag(column, self._values(column), "compare it, e.g. with == 1")
        close = ")" if self._take("(") else "]"
        if close == "]":
            self._take("[", expected="'[' and a list of values")
        values = [self._literal()]
        while self._take(","):
            values.append(self._literal())
        self._take(close, expected=f"',' or '{close}'")
        self._name(column, values, excluded=bool(negated))
        name, join = ("!=", np.logical_and) if negated else ("==", np.logical_or)
        return lambda: reduce(join, (self._compare(column, name, value) for value in values))

    def _name(self, column: _Token, values: list[Literal], *, excluded: bool) -> None:
        is_excluded = excluded != self._inverted
        self.named += [NamedValue(column.text, value, is_excluded) for value in values]

    def _literal(self) -> Literal:
        token = self._next
        if self._take("text"):
            return token.text
        if self._take("true") or self._take("false"):
            return token.kind == "true"
        advice = f" (text stands in quotes: '{token.text}')"
        any_value = ": a number, text in quotes, true or false"
        self._take("number", expected="a value" + (advice if token.kind == "column" else any_value))
        is_whole = re.fullmatch(r"[+-]?\d{1,400}", token.text)
        value = int(token.text) if is_whole else float(token.text)
        if not abs(value) <= np.finfo(np.float64).max:
            self._fail(token.position, "the number is too large for float64")
        return value

    def _compare(self, column: _Token, name: str, literal: Literal) -> np.ndarray:
        values, compare = self._values(column), _OPERATORS[name]
        ordering = name not in ("==", "!=")
        is_text, is_flag = values.dtype.kind == "U", values.dtype.kind == "b"
        problem = ""
        if isinstance(literal, str) and not is_text:
            problem = f"holds {_held(values)} and cannot be compared with text {literal!r}"
        elif isinstance(literal, str) and ordering:
            problem = f"holds text, which has no order; use == or != instead of {name}"
        elif is_text and not isinstance(literal, str):
            problem = f"holds text; compare it with text in quotes, not with {literal!r}"
        elif ordering and (isinstance(literal, bool) or is_flag):
            problem = f"is a flag here, which has no order; use == or != instead of {name}"
        elif is_flag and literal not in (0, 1):
            problem = f"holds true/false; compare it with true, false, 0 or 1, not {literal}"
        if problem:
            self._refuse(column, problem)
        if isinstance(literal, str) or values.dtype.kind in "iu" and not isinstance(literal, bool):
            return compare(values, literal)
        if isinstance(literal, bool) or is_flag:
            flags = self._flag(column, values, "compare it with a number")
            return compare(flags, bool(literal))
        # A literal takes the column's own width: 0.1 finds the float32 that was logged as 0.1.
        if abs(literal) > float(np.finfo(values.dtype).max):
            values = values.astype(np.float64)
        return compare(values, values.dtype.type(literal)) & ~np.isnan(values)

    def _flag(self, column: _Token, values: np.ndarray, advice: str) -> np.ndarray:
        if values.dtype.kind != "U" and bool(((values == 0) | (values == 1)).all()):
            return values == 1
        self._refuse(column, f"holds {_held(values)} where true/false or 0/1 is needed; {advice}")


def _as_name(column: str) -> str:
    """Write the name of a column as a condition needs it."""
    return column if _PLAIN_NAME.fullmatch(column) else "`" + column.replace("`", "``") + "`"


def _held(values: np.ndarray) -> str:
    kinds = {"b": "true/false", "f": "numbers", "U": "text"}
    return kinds.get(values.dtype.kind, "whole numbers")
