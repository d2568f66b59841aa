"""What the ``takeover_`` scripts have in common: numbered bodies, and a line for each thing that happens.

A script prints ``acknowledged BODY``, ``received BODY`` and ``failed ERROR``. It ends when standard input is closed.
"""

import itertools
import sys
import threading

ends = threading.Event()


def bodies():
    """Yield bodies until standard input is closed."""
    for number in itertools.count():
        if ends.is_set():
            return
        yield b"message %d" % number


def acknowledged(body):
    """The broker has answered that it has the message."""
    _print("acknowledged", body.decode())


def received(body):
    """A message was delivered."""
    _print("received", body.decode())


def failed(error):
    """A publish has failed, with this error."""
    _print("failed", f"{type(error).__name__}: {error}".replace("\n", " "))


def when_ended():
    """Return once standard input is closed."""
    sys.stdin.read()
    ends.set()


def _print(what, text):
    print(what, text, flush=True)
