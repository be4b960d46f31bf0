"""The errors a user may meet: what was expected, what came, what to do."""

_LONGEST = 2000


class PuorlError(Exception):
    """Base of every error that puorl raises on purpose; its text is one line of printable text."""

    def __init__(self, message: str) -> None:
        # Names, values and other libraries' words from a damaged file may be anything.
        line = " ".join(part.strip() for part in message.splitlines())
        plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in line[:_LONGEST])
        super().__init__(plain + (" ..." if len(line) > _LONGEST else ""))


class DataError(PuorlError):
    """The data is not what it must be: a file, a column, a value."""


class ConfigError(PuorlError):
    """A setting is unknown, impossible, or contradicts another."""


class NotFittedError(PuorlError):
    """Something was asked of an object that has not learnt yet."""


class MissingExtraError(PuorlError):
    """An optional package is not installed; the message holds the install line."""


class TrainingError(PuorlError):
    """Training came to no usable end."""
