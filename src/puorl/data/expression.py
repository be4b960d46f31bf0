"""Conditions over columns, such as ``robot == 'A7' and checked == 1``, in a small language.

    condition   = all {"or" all}
    all         = one {"and" one}
    one         = "not" one | "(" condition ")" | column [comparison]
    comparison  = operator literal | ["not"] "in" "[" literal {"," literal} "]"
    operator    = "==" | "!=" | "<" | "<=" | ">" | ">="
    literal     = number | 'text' | "text" | true | false

Column names that are not plain words are written in `backticks`; a quote inside quotes is doubled.
A column alone means that its flag is set. Every comparison with NaN is false, ``!=`` too.
"""

import difflib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from puorl.core.errors import ConfigError

Literal = bool | int | float | str

_MAX_DEPTH = 50
"""Largest nesting of parentheses and ``not``, far below Python's own limit."""

_MOST_SHOWN = 200
"""Characters of a condition that a message shows."""

_OPERATORS: dict[str, Callable[..., np.ndarray]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_KEYWORDS = ("and", "or", "not", "in", "true", "false")
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<word>[^\W\d][\w.]*)
    | (?P<column>`(?:[^`]|``)+`)
    | (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    | (?P<operator>==|!=|<=|>=|<|>)
    | (?P<mark>[()\[\],])
    | (?P<end>\Z)
    )""",
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


@dataclass(frozen=True)
class _Token:
    kind: str
    """number, column, text, operator, mark, end, or a keyword itself."""
    text: str
    position: int


_Node = Callable[[], np.ndarray]


def evaluate(condition: str, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Evaluate a condition for every row.

    Args:
        condition: E.g. ``"robot == 'A7' and not (speed > 2.5 or checked == 0)"``.
        columns: Name to (n,) numbers, flags or text.

    Returns:
        (n,) bool.

    Raises:
        ConfigError: Wrong syntax, an unknown column, or a comparison of different kinds.

    >>> evaluate("robot == 'A7' and speed < 2", {"robot": np.array(["A7", "B1", "A7"]),
    ...                                          "speed": np.array([1.0, 1.0, np.nan])}).tolist()
    [True, False, False]
    """
    return _Parser(condition, columns).parse()()


def _fail(condition: str, position: int, problem: str) -> NoReturn:
    shown = condition if len(condition) <= _MOST_SHOWN else condition[:_MOST_SHOWN] + " ..."
    raise ConfigError(f"condition {shown!r}: at character {position + 1}: {problem}")


def _tokens(condition: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while not tokens or tokens[-1].kind != "end":
        match = _TOKEN.match(condition, position)
        if match is None:
            start = position + len(condition[position:]) - len(condition[position:].lstrip())
            found = condition[start]
            hint = _HINTS.get(found, "put odd names in `backticks` and text in quotes")
            problem = f"expected a column, a value or an operator, got {found!r}; {hint}"
            _fail(condition, start, problem)
        kind = match.lastgroup
        assert kind is not None
        text, start = match[kind], match.start(kind)
        if kind == "word":
            lower = text.lower()
            kind, text = (lower, text) if lower in _KEYWORDS else ("column", text)
        elif kind in ("column", "text"):
            text = text[1:-1].replace(text[0] * 2, text[0])
        tokens.append(_Token(kind, text, start))
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent over the tokens, one method for each rule of the grammar.

    Every rule returns a function that computes its mask, so that syntax is checked first.
    """

    def __init__(self, condition: str, columns: Mapping[str, np.ndarray]) -> None:
        self._condition = condition
        self._columns = columns
        self._tokens = _tokens(condition)
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        node = self._any()
        if self._peek().kind != "end":
            self._expected("and, or, or the end")
        return node

    def _any(self) -> _Node:
        return self._joined("or", lambda: self._joined("and", self._one))

    def _joined(self, word: str, part: Callable[[], _Node]) -> _Node:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        join = np.logical_and if word == "and" else np.logical_or
        return lambda: join.reduce([each() for each in parts])

    def _one(self) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            problem = f"nested deeper than {_MAX_DEPTH}; simplify it"
            _fail(self._condition, self._peek().position, problem)
        if self._take("not"):
            inner = self._one()
            node: _Node = lambda: ~inner()  # noqa: E731
        elif self._take("("):
            node = self._any()
            if not self._take(")"):
                self._expected("')'")
        else:
            node = self._comparison()
        self._depth -= 1
        return node

    def _comparison(self) -> _Node:
        column = self._peek()
        if column.kind in ("number", "text", "true", "false"):
            self._expected("a column (the value stands to the right of the operator)")
        if not self._take("column"):
            self._expected("a column")
        token = self._peek()
        if self._take("operator"):
            value = self._literal()
            return lambda: self._compare(column, token.text, value)
        negated = self._take("not")
        if self._take("in"):
            values = self._list()
            return lambda: self._member(column, values, negated)
        if negated:
            self._expected("in (as in: column not in [1, 2])")
        return lambda: self._flag(column, self._values(column), "compare it, e.g. with == 1")

    def _list(self) -> tuple[Literal, ...]:
        close = {"[": "]", "(": ")"}.get(self._peek().text)
        if self._peek().kind != "mark" or close is None:
            self._expected("'[' and a list of values")
        self._at += 1
        values = [self._literal()]
        while self._take(","):
            values.append(self._literal())
        if not self._take(close):
            self._expected(f"',' or '{close}'")
        return tuple(values)

    def _literal(self) -> Literal:
        token = self._peek()
        self._at += 1
        if token.kind == "text":
            return token.text
        if token.kind in ("true", "false"):
            return token.kind == "true"
        if token.kind == "number":
            return self._number(token)
        self._at -= 1
        if token.kind == "column":
            self._expected(f"a value (text stands in quotes: '{token.text}')")
        self._expected("a value: a number, text in quotes, true or false")

    def _number(self, token: _Token) -> Literal:
        if re.fullmatch(r"[+-]?\d{1,400}", token.text):
            value: Literal = int(token.text)
        else:
            value = float(token.text)
        if not abs(value) <= np.finfo(np.float64).max:
            _fail(self._condition, token.position, "the number is too large for float64")
        return value

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, kind: str) -> bool:
        token = self._peek()
        if token.kind == kind or (token.kind == "mark" and token.text == kind):
            self._at += 1
            return True
        return False

    def _expected(self, what: str) -> NoReturn:
        token = self._peek()
        got = "the end" if token.kind == "end" else repr(token.text)
        _fail(self._condition, token.position, f"expected {what}, got {got}")

    def _member(self, column: _Token, values: Sequence[Literal], negated: bool) -> np.ndarray:
        found = np.logical_or.reduce([self._compare(column, "==", value) for value in values])
        return ~found & _known(self._values(column)) if negated else found

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
        _fail(
            self._condition,
            column.position,
            f"expected a column, got the unknown name {column.text!r}; known columns: {listed}",
        )

    def _compare(self, column: _Token, name: str, literal: Literal) -> np.ndarray:
        values = self._values(column)
        ordering = name not in ("==", "!=")
        compare = _OPERATORS[name]
        if isinstance(literal, str):
            if values.dtype.kind != "U":
                self._refuse(
                    column, f"holds {_held(values)} and cannot be compared with text {literal!r}"
                )
            if ordering:
                self._refuse(
                    column, f"holds text, which has no order; use == or != instead of {name}"
                )
            return compare(values, literal)
        if values.dtype.kind == "U":
            self._refuse(
                column, f"holds text; compare it with text in quotes, not with {literal!r}"
            )
        if ordering and (isinstance(literal, bool) or values.dtype.kind == "b"):
            self._refuse(
                column, f"is a flag here, which has no order; use == or != instead of {name}"
            )
        if isinstance(literal, bool):
            return compare(self._flag(column, values, "compare it with a number"), literal)
        if values.dtype.kind == "b":
            if literal not in (0, 1):
                self._refuse(
                    column, f"holds true/false; compare it with true, false, 0 or 1, not {literal}"
                )
            return compare(values, literal == 1)
        return _compare_numbers(values, compare, literal)

    def _flag(self, column: _Token, values: np.ndarray, advice: str) -> np.ndarray:
        if values.dtype.kind == "b":
            return values.copy()
        if values.dtype.kind != "U" and bool(((values == 0) | (values == 1)).all()):
            return values == 1
        self._refuse(column, f"holds {_held(values)} where true/false or 0/1 is needed; {advice}")

    def _refuse(self, column: _Token, problem: str) -> NoReturn:
        _fail(self._condition, column.position, f"column {column.text!r} {problem}")


def _compare_numbers(
    values: np.ndarray, compare: Callable[..., np.ndarray], literal: int | float
) -> np.ndarray:
    if values.dtype.kind in "iu":
        return compare(values, literal)
    # A literal takes the column's own width, so that 0.1 finds the float32 that was logged as 0.1.
    if abs(literal) > float(np.finfo(values.dtype).max):
        values = values.astype(np.float64)
    return compare(values, values.dtype.type(literal)) & _known(values)


def _known(values: np.ndarray) -> np.ndarray:
    return ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), bool)


def _held(values: np.ndarray) -> str:
    kinds = {
        "b": "true/false",
        "i": "whole numbers",
        "u": "whole numbers",
        "f": "numbers",
        "U": "text",
    }
    return kinds[values.dtype.kind]
