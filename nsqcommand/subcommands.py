"""The subcommands of ``nsq``: name, function, one line of help. Each is imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from nsqdaemon.command_line import CommandParser

Main = Callable[[Sequence[str]], int]


DISTRIBUTIONS = {
    "aionsq": "nsq-client",
    "brokerd": "nsq-daemons",
    "nsqcommand": "nsq-common",
    "nsqlookup": "nsq-daemons",
    "nsqplatform": "nsq-platform",
}
"""The distribution that installs each top-level package."""


class Subcommand(NamedTuple):
    """``target`` is ``module:function``. It is called with the arguments after the name; it returns the exit status.

    Its parser is the result of the function's own ``parser()`` if it has one, and otherwise of its module's.
    """

    target: str
    help: str

    @property
    def package(self) -> str:
        """The top-level package that contains it."""
        return self.target.partition(".")[0]

    @property
    def distribution(self) -> str:
        """The distribution that installs it, as named for pip."""
        return DISTRIBUTIONS[self.package]

    @property
    def is_installed(self) -> bool:
        """True if its package can be imported."""
        return find_spec(self.package) is not None

    def load(self) -> Main:
        """Import the module and return its function. Raises ImportError or AttributeError."""
        module, _, function = self.target.partition(":")
        main: Main = getattr(import_module(module), function)
        return main

    def parser(self) -> CommandParser:
        """Import the module and return its parser, for help, completion and the man page."""
        main = self.load()
        make: Callable[[], CommandParser] = getattr(main, "parser", None) or sys.modules[main.__module__].parser
        return make()


GROUPS: dict[str, dict[str, Subcommand]] = {
    "Run it": {
        "up": Subcommand(
            "nsqplatform.console.nsq.up:main", "run the whole platform on this machine; crashed processes restart"
        ),
        "demo": Subcommand("nsqplatform.console.nsq.demo:main", "send realistic traffic through a running platform"),
        "doctor": Subcommand("nsqplatform.console.nsq.doctor:main", "check this machine and report what is missing"),
        "brokerd": Subcommand("brokerd.__main__:main", "the broker (nsqd)"),
        "lookup": Subcommand("nsqlookup.__main__:main", "the registry (nsqlookupd)"),
        "prepare": Subcommand(
            "nsqplatform.console.nsq.prepare:main", "migrate the database and create the first account, as nsq up does"
        ),
        "web": Subcommand("nsqplatform.console.nsq.web:main", "the operator's web platform (Daphne)"),
        "collector": Subcommand("nsqplatform.console.nsq.collector:main", "read every broker's /stats once a second"),
        "worker": Subcommand("nsqplatform.console.nsq.worker:main", "run reports (Celery worker)"),
        "dispatcher": Subcommand(
            "nsqplatform.console.nsq.dispatcher:main",
            "run jobs, keep the history, queue due reports and send notifications (Celery worker)",
        ),
        "beat": Subcommand(
            "nsqplatform.console.nsq.beat:main", "start due reports and the dispatcher's periodic tasks (Celery beat)"
        ),
    },
    "Publish and consume": {
        "pub": Subcommand("aionsq.tools.pub:main", "publish messages from arguments or standard input (to_nsq)"),
        "tail": Subcommand("aionsq.tools.tail:main", "print a topic's messages as they arrive (nsq_tail)"),
        "to-file": Subcommand("aionsq.tools.to_file:main", "archive topics in files (nsq_to_file)"),
        "to-http": Subcommand("aionsq.tools.to_http:main", "send a channel's messages to an HTTP server (nsq_to_http)"),
        "to-nsq": Subcommand("aionsq.tools.to_nsq:main", "publish a channel's messages to other nsqds (nsq_to_nsq)"),
        "pubsub": Subcommand("aionsq.tools.pubsub:main", "serve a channel's messages to HTTP clients (nsq_pubsub)"),
    },
    "Operate": {
        "stat": Subcommand("aionsq.tools.stat:main", "print a channel's depths and rates, line by line (nsq_stat)"),
        "topics": Subcommand(
            "aionsq.tools.topics:main", "list a cluster's topics; create, pause, empty or delete them"
        ),
        "channels": Subcommand(
            "aionsq.tools.channels:main", "list channels; create, pause, rewind, empty or delete them"
        ),
        "policies": Subcommand(
            "aionsq.tools.policies:main", "list the policies of topics and channels; set, delete or mend them"
        ),
        "messages": Subcommand("aionsq.tools.messages:main", "cancel or defer published messages, by their ids"),
        "dead": Subcommand("aionsq.tools.dead:main", "list dead messages; deliver them again or remove them"),
        "nodes": Subcommand(
            "aionsq.tools.nodes:main", "list a cluster's nodes; tombstone a topic on one; drain; hand over"
        ),
        "repair": Subcommand("brokerd.repair:main", "report and repair damage in a stopped broker's data path"),
        "promote": Subcommand("brokerd.promotion:main", "let a member of a mirrored pair lead that may lack messages"),
        "signin-link": Subcommand(
            "nsqplatform.console.nsq.signin_link:main", "print a one-time link that signs an account in"
        ),
        "manage": Subcommand(
            "nsqplatform.console.nsq.manage:main",
            "run one of Django's commands, such as create_token",
        ),
        "mark": Subcommand(
            "nsqplatform.console.nsq.mark:main",
            "mark a time on charts, such as that of a deployment; list and delete marks",
        ),
        "definitions": Subcommand(
            "nsqplatform.console.nsq.definitions:main",
            "export, review and apply topics, alert rules, schedules and people as one file",
        ),
    },
    "About the command": {
        "completion": Subcommand(
            "nsqcommand.completion:main", "print a script with which bash, zsh or fish completes this command"
        ),
        "man": Subcommand("nsqcommand.manual:main", "show the manual page of nsq or of a subcommand"),
    },
}
"""The subcommands by their heading in ``nsq --help``."""

SUBCOMMANDS: dict[str, Subcommand] = {name: each for group in GROUPS.values() for name, each in group.items()}

# NSQ's to_nsq publishes lines, as our pub does. Without this entry it would find to-nsq, which is NSQ's nsq_to_nsq.
_RENAMED = {"to_nsq": "pub"}


def find(name: str) -> Subcommand | None:
    """The subcommand of that name, or of NSQ's own name: ``nsq_tail`` for ``tail``, ``to_file`` for ``to-file``."""
    dashed = _RENAMED.get(name, name.replace("_", "-"))
    return SUBCOMMANDS.get(dashed) or SUBCOMMANDS.get(dashed.removeprefix("nsq-"))
