"""The demo: the whole method at small scale."""
