"""What stops a benchmark, in one line fit to be shown to whoever typed the command."""


class BenchError(Exception):
    """The benchmark cannot go on; the text says what was wrong."""
