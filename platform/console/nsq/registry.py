"""The subcommands of ``nsq``: name, where it lives, one line of help. Imports nothing it names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

Main = Callable[[Sequence[str]], int]


class Subcommand(NamedTuple):
    """``target`` is ``module:function``; it takes the arguments after the name and returns the exit status."""

    target: str
    help: str

    def load(self) -> Main:
        """Import the module and return its function. Raises ImportError or AttributeError as the import does."""
        module, _, function = self.target.partition(":")
        main: Main = getattr(import_module(module), function)
        return main


SUBCOMMANDS: dict[str, Subcommand] = {
    "up": Subcommand("console.nsq.up:main", "run the whole platform on this machine, and keep it running"),
    "demo": Subcommand("console.nsq.demo:main", "drive believable traffic through a running platform"),
    "doctor": Subcommand("console.nsq.doctor:main", "check this machine, and say what each missing thing costs"),
    "brokerd": Subcommand("brokerd.__main__:main", "the broker (nsqd)"),
    "lookup": Subcommand("lookup.__main__:main", "the registry (nsqlookupd)"),
    "web": Subcommand("console.nsq.web:main", "the operator's web platform (Daphne)"),
    "collector": Subcommand("console.nsq.collector:main", "reads every broker's /stats once a second"),
    "worker": Subcommand("console.nsq.worker:main", "runs reports (Celery worker)"),
    "beat": Subcommand("console.nsq.beat:main", "starts scheduled reports (Celery beat)"),
    "signin-link": Subcommand("console.nsq.signin_link:main", "print a one-time link that signs an account in"),
    "pub": Subcommand("aionsq.tools.pub:main", "publish messages from arguments or standard input"),
    "tail": Subcommand("aionsq.tools.tail:main", "print a topic's messages as they arrive"),
    "stat": Subcommand("aionsq.tools.stat:main", "print a cluster's depths and rates, line by line"),
}
