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
from collections.abc import Callable, Mapping
from functools import reduce
from typing import NamedTuple, NoReturn

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
    | (?P<odd>.)
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


class _Token(NamedTuple):
    kind: str
    """number, column, text, operator, end, or a keyword or mark itself."""
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


class _Parser:
    """Recursive descent over the tokens, one method for each rule of the grammar.

    Every rule returns a function that computes its mask, so that syntax is checked first.
    """

    def __init__(self, condition: str, columns: Mapping[str, np.ndarray]) -> None:
        self._condition = condition
        self._columns = columns
        self._tokens = [self._token(match) for match in _TOKEN.finditer(condition)]
        self._at = 0
        self._depth = 0

    def _token(self, match: re.Match[str]) -> _Token:
        kind = match.lastgroup or ""
        text, position = match[kind], match.start(kind)
        if kind == "odd":
            hint = _HINTS.get(text, "put odd names in `backticks` and text in quotes")
            problem = f"expected a column, a value or an operator, got {text!r}; {hint}"
            self._fail(position, problem)
        if kind == "word":
            kind = text.lower() if text.lower() in _KEYWORDS else "column"
        elif kind in ("column", "text"):
            text = text[1:-1].replace(text[0] * 2, text[0])
        return _Token(text if kind == "mark" else kind, text, position)

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
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(self._next.position, f"nested deeper than {_MAX_DEPTH}; simplify it")
        if self._take("not"):
            inner = self._one()
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
        name, join = ("!=", np.logical_and) if negated else ("==", np.logical_or)
        return lambda: reduce(join, (self._compare(column, name, value) for value in values))

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
        problem = f"expected a column, got the unknown name {column.text!r}; known columns: "
        self._fail(column.position, problem + listed)

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

    def _refuse(self, column: _Token, problem: str) -> NoReturn:
        self._fail(column.position, f"column {column.text!r} {problem}")

    def _fail(self, position: int, problem: str) -> NoReturn:
        text = self._condition
        shown = text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + " ..."
        raise ConfigError(f"condition {shown!r}: at character {position + 1}: {problem}")


def _held(values: np.ndarray) -> str:
    kinds = {"b": "true/false", "f": "numbers", "U": "text"}
    return kinds.get(values.dtype.kind, "whole numbers")
