"""The error that ends a benchmark; its text is one line for the user."""


class BenchError(Exception):
    """The benchmark cannot continue; the text is the reason."""
