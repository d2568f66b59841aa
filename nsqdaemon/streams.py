"""The standard streams of a process."""

import io
import os
import sys


def open_missing_streams() -> None:
    """Give a process that was started without standard streams, as by ``>&-``, streams that lead to nothing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def escape_unencodable_output() -> None:
    r"""Write characters that standard output cannot encode as escapes, such as ``\u2713``, instead of failing.

    The terminal's encoding may be ASCII or Latin-1, while names, errors and bodies come from other machines. Standard
    error does so by default.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # not while a test captures it
        sys.stdout.reconfigure(errors="backslashreplace")
