"""Wrong usage in one line: the option parser explains itself in a box of many."""

import difflib
import re
from collections.abc import Sequence
from textwrap import dedent

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"^│ ?|\s*│?\s*$")
_CORNERS = ("╭", "╰")
_RULE = re.compile(r"\s*[─-]{4,}")
_ITEM, _EXPLANATION = 4, 8  # how far the parser indents options, and the texts below them
_SUGGESTION = "Perhaps you meant"
_MISSING = "Missing"
_PLACE = re.compile(r"(argument ')(?:\w+\.)+")
"""Where a setting is in our classes, which is nothing to the user."""
_INT = re.compile(r"invalid literal for int\(\) with base 10: ")
_FLOAT = re.compile(r"could not convert string to float: ")
_OPTIONAL = re.compile(
    r"no type matching \{None\}\|(\S+).* could be instantiated from \[(.*?)\]\..*"
)
"""How the parser explains a wrong value of an option that may be left out."""
_KINDS = {"INT": "a whole number", "COUNT": "a whole number such as 1000000, 1e6 or 1M"}
_OPTION = re.compile(r"--[a-z][a-z-]*")
_SETTINGS = (
    "obs action reward next_obs terminal timeout episode time label format unit inputs mode seed "
    "rows labelled target_fraction labelled_fraction proportions policy threads"
).split()
_OTHERWISE = {"label": "labelled"}
"""Settings whose option has another name."""
_IN_PYTHON = re.compile(r" \((?:force|resume)=True in Python\)")
_KEYWORD = re.compile(
    rf"(?<![\w.`'\"-])(?P<name>{'|'.join(_SETTINGS)})=(?:(?P<quote>['\"])(?P<value>[\w:]+)(?P=quote)"
    r"|(?=[\s,;)]|$))"
)


def as_options(message: str) -> str:
    """Settings named as in Python, named as on the command line.

    >>> as_options("name it with format=, or use inputs='sas' (force=True in Python)")
    'name it with --format, or use --inputs sas'
    >>> as_options("or load with label=; got none")
    'or load with --labelled; got none'
    """
    message = _IN_PYTHON.sub("", message)
    return _KEYWORD.sub(_as_option, message)


def _as_option(match: re.Match[str]) -> str:
    option = "--" + _OTHERWISE.get(match["name"], match["name"]).replace("_", "-")
    return f"{option} {match['value']}" if match["value"] else option


def one_line(box: str, program: str, words: Sequence[str] = ()) -> str:
    """What the parser's box says, without frame, explanations and line breaks.

    Args:
        box: What the parser wrote.
        program: The command; its help is named at the end.
        words: What was given; a slip in a needed option's name is pointed out.
    """
    lines = _PLACE.sub(r"\1", _COLOUR.sub("", box)).splitlines()
    framed = any(line.startswith(_CORNERS) for line in lines)
    inner = [_FRAME.sub("", line) for line in lines if not line.startswith(_CORNERS)]
    sections: list[list[str]] = [[]]
    for text in inner:
        if _RULE.fullmatch(text):
            sections.append([])
        elif text.strip():
            sections[-1].append(text)
    # Where the terminal has no line drawing, the title stands above a rule of its own.
    sections = [section for section in sections if section][0 if framed else 1 :]
    sections = [dedent("\n".join(section)).splitlines() for section in sections]
    told = sections[:1] + [s for s in sections[1:] if s[0].startswith(_SUGGESTION)]
    said = [_in_words(_sentence(section)) for section in told]
    if said and said[0].startswith(_MISSING):
        said += _slips(said[0], words)
    return "; ".join([*said, f"see {program} --help"])


def _in_words(sentence: str) -> str:
    """What Python and the parser say of a wrong value, as we say it.

    >>> _in_words("Error parsing --seed: invalid literal for int() with base 10: 'x'")
    "Error parsing --seed: expected a whole number, got 'x'"
    """
    sentence = _OPTIONAL.sub(
        lambda match: f"expected {_KINDS.get(match[1], 'numbers')}, got {match[2]}", sentence
    )
    sentence = _INT.sub("expected a whole number, got ", sentence)
    return _FLOAT.sub("expected a number, got ", sentence)


def _slips(missing: str, words: Sequence[str]) -> list[str]:
    """The parser complains of what is missing before it looks at what it does not know."""
    needed = _OPTION.findall(missing)
    given = [match[0] for word in words if (match := _OPTION.match(word))]
    found = [(word, difflib.get_close_matches(word, needed, n=1, cutoff=0.75)) for word in given]
    return [f"did you mean {near[0]} by {word}?" for word, near in found if near]


def _sentence(section: list[str]) -> str:
    indents = [(len(text) - len(text.lstrip()), text.strip()) for text in section]
    heading = " ".join(text for indent, text in indents if indent < _ITEM)
    items = [text for indent, text in indents if _ITEM <= indent < _EXPLANATION]
    return f"{heading} {', '.join(items)}".strip().rstrip(".")
