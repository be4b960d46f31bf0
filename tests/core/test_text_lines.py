import io

import pytest

from puorl.core import files
from puorl.core.errors import DataError
from puorl.core.files import lines_of


@pytest.mark.parametrize(
    "text", ["", "a", "a\n", "a\nb", "\n\n", "1234567\n", "12345678\n1234567\n"]
)
def test_lines_are_those_of_the_file(text, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 9)
    assert list(lines_of(io.StringIO(text), "a.csv")) == text.splitlines(keepends=True)


@pytest.mark.parametrize(("text", "kind"), [("x" * 30, "no line break"), ("\0" * 30, "NUL bytes")])
def test_a_line_without_end_is_refused_where_it_stands(text, kind, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 9)
    file = io.StringIO(f"a\nb\n{text}")
    with pytest.raises(DataError, match=f"a.csv: line 13: expected a line of at most 9.*{kind}"):
        list(lines_of(file, "a.csv", first=11))
    assert file.tell() == 4 + 10  # no more was read than was needed to know
