"""The errors a user may meet: what was expected, what came, what to do."""


class PuorlError(Exception):
    """Base of every error that puorl raises on purpose; the command line prints it in one line."""


class DataError(PuorlError):
    """The data is not what it must be: a file, a column, a value."""


class ConfigError(PuorlError):
    """A setting is unknown, impossible, or contradicts another."""


class NotFittedError(PuorlError):
    """Something was asked of an object that has not learnt yet."""


class MissingExtraError(PuorlError):
    """An optional package is not installed; the message holds the install line."""
