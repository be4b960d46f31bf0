"""Wrong usage in one line: the option parser explains itself in a box of many."""

import re
from textwrap import dedent

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"^│ ?|\s*│?\s*$")
_CORNERS = ("╭", "╰")
_RULE = re.compile(r"\s*[─-]{4,}")
_ITEM, _EXPLANATION = 4, 8  # how far the parser indents options, and the texts below them
_SUGGESTION = "Perhaps you meant"


def one_line(box: str, program: str) -> str:
    """What the parser's box says, without frame, explanations and line breaks.

    Args:
        box: What the parser wrote.
        program: The command; its help is named at the end.
    """
    lines = _COLOUR.sub("", box).splitlines()
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
    return "; ".join([*map(_sentence, told), f"see {program} --help"])


def _sentence(section: list[str]) -> str:
    indents = [(len(text) - len(text.lstrip()), text.strip()) for text in section]
    heading = " ".join(text for indent, text in indents if indent < _ITEM)
    items = [text for indent, text in indents if _ITEM <= indent < _EXPLANATION]
    return f"{heading} {', '.join(items)}".strip().rstrip(".")
