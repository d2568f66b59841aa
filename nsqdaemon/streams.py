"""The standard streams of a process."""

import io
import sys


def escape_unencodable_output() -> None:
    r"""Write characters that standard output cannot encode as escapes, such as ``\u2713``, instead of failing.

    The terminal's encoding may be ASCII or Latin-1, while names, errors and bodies come from other machines. Standard
    error does so by default.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a caller may have replaced it
        sys.stdout.reconfigure(errors="backslashreplace")
