"""What a refused command prints: one line of ours, or the option parser's box."""

import re

OURS = "puorl: error: "
_RULE = re.compile(r"[│╭╰╮╯─\s-]*")


def message(err):
    """The text of a refusal, without the parser's frame and line breaks."""
    if err.startswith(OURS):
        assert err.count("\n") == 1
        return err.removeprefix(OURS).rstrip("\n")
    lines = [line.strip("│ ") for line in err.splitlines() if not _RULE.fullmatch(line)]
    assert "For full helptext" in err, err
    return " ".join(" ".join(lines).split())
