"""The common parts of ``nsq topics``, ``channels``, ``policies``, ``messages``, ``dead`` and ``nodes``: flags, the
confirmation before something is deleted, and the report of an action's results."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from aionsq.tools import process
from aionsq.tools.flags import ToolFailed, lookupds_of_environment, node_tls
from aionsq.tools.process import INTERRUPTED
from aionsq.tools.signal_echo import SignalEcho
from aionsq.tools.tables import Cell
from aionsq.tools.verb_flags import VerbFlag
from nsqcluster import Cluster, ClusterUnreachable, NotInCluster, Result, Survey, outcome_of
from nsqcluster.addresses import base_url
from nsqcluster.policies import Patterns, PolicyRefused
from nsqcluster.survey import Failure
from nsqdaemon.command_line import USAGE, CommandParser
from nsqdaemon.descriptors import occupy_standard_descriptors
from nsqdaemon.node_http import NodeTLSSettings
from nsqdaemon.settings import declarations
from nsqwire.names import is_valid_name

T = TypeVar("T")

DESTRUCTIVE: Final = ("empty", "delete")
"""Actions that ask for confirmation."""
DONE: Final = {
    "pause": "paused",
    "unpause": "unpaused",
    "empty": "emptied",
    "delete": "deleted",
    "create": "created",
    "tombstone": "tombstoned",
    "drain": "draining",
    "undrain": "takes messages again",
    "handover": "handed over",
    "rewind": "rewound",
    "requeue": "requeued",
    "remove": "removed",
    "set": "set",
    "mend": "mended",
}
NAME_RULE: Final = "a name has 1 to 64 characters of .a-zA-Z0-9_-, and may end in #ephemeral"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The parsed command line. ``names`` are the arguments after the verb."""

    prog: str
    verb: str
    names: Sequence[str]
    cluster: Cluster
    json: bool
    yes: bool
    flags: Mapping[str, Any]
    """The values of the command's own flags, by name: read with ``VerbFlag.of``."""


class ClusterParser(CommandParser):
    """The parser of a command, with the flags that only some of its verbs take."""

    flags: Sequence[VerbFlag[Any]] = ()


def parser_of(
    *,
    prog: str,
    description: str,
    verbs: Mapping[str, str],
    names: str,
    epilog: str,
    examples: Sequence[tuple[str, str]],
    confirms: bool,
    flags: Sequence[VerbFlag[Any]] = (),
) -> ClusterParser:
    """The parser of a command; ``verbs`` maps each verb to its help. With ``confirms``, some ask for confirmation."""
    width = max(map(len, verbs))
    listed = "\n".join(f"  {verb:<{width}}  {help}" for verb, help in verbs.items())
    parser = ClusterParser(
        prog=prog,
        usage=f"{prog} {'[VERB]' if 'list' in verbs else 'VERB'} {names} [options]",
        description=f"{description}\n\nverbs:\n{listed}",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        examples=examples,
    )
    parser.verbs, parser.flags = verbs, flags
    parser.add_argument("verb", nargs="?", default="list" if "list" in verbs else "", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument(
        "--lookupd-http-address",
        action="append",
        metavar="HOST:PORT",
        help="nsqlookupd that lists the nodes; may be given several times (default: $NSQLOOKUPD_HTTP_ADDRESSES, or "
        "127.0.0.1:4161)",
    )
    parser.add_argument(
        "--nsqd-http-address",
        action="append",
        metavar="HOST:PORT",
        help="nsqd to use; may be given several times. Without --lookupd-http-address, only the given nsqds are used "
        "(default: $NSQD_HTTP_ADDRESSES)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    if confirms:
        parser.add_argument("--yes", "-y", action="store_true", help="do not ask for confirmation")
    for flag in flags:
        flag.add_to(parser)
    for name, declaration in declarations(NodeTLSSettings).items():
        shape: Mapping[str, Any] = {"metavar": "FILE"} if declaration.kind is str else {"action": "store_true"}
        parser.add_argument(
            f"--{declaration.flag_name}", dest=name, default=declaration.default, help=declaration.help, **shape
        )
    return parser


def main(argv: Sequence[str], parser: ClusterParser, run_verb: Callable[[Options], int]) -> int:
    """Parse a command line and run its verb. Returns the exit status; a ToolFailed is reported in one line."""
    options = parse(argv, parser)
    try:
        return run_verb(options)
    except ToolFailed as error:
        process.note(options.prog, str(error))
        return error.status


def parse(argv: Sequence[str], parser: ClusterParser) -> Options:
    """Parse a command line. Exits with 0 after ``--help``, with 2 on an error."""
    prog, verbs = parser.prog, parser.verbs
    given = parser.parse_intermixed_args(list(argv))
    if not given.verb:
        parser.error(f"a verb is required: {' or '.join(verbs)}")
    if given.verb not in verbs:
        near = get_close_matches(given.verb, verbs, n=1, cutoff=0.5)
        hint = f"the verbs are: {', '.join(verbs)}"
        if near or "list" in verbs:
            hint = f"did you mean {near[0]!r}?" if near else f"to list one name: {prog} list {given.verb}"
        parser.error(f"no verb {given.verb!r}; {hint}")
    return Options(
        prog=prog,
        verb=given.verb,
        names=given.names,
        cluster=_cluster(parser, given),
        json=given.json,
        yes=getattr(given, "yes", False),
        flags={flag.name: flag.value_in(given, parser) for flag in parser.flags},
    )


def _cluster(parser: CommandParser, given: argparse.Namespace) -> Cluster:
    lookupd: Sequence[str] = given.lookupd_http_address or ()
    nsqd: Sequence[str] = given.nsqd_http_address or ()
    if not lookupd and not nsqd:
        nsqd = [part.strip() for part in os.environ.get("NSQD_HTTP_ADDRESSES", "").split(",") if part.strip()]
        if not nsqd or os.environ.get("NSQLOOKUPD_HTTP_ADDRESSES"):
            lookupd = lookupds_of_environment(local=True)
    try:
        for address in (*lookupd, *nsqd):
            base_url(address)
        tls = node_tls(NodeTLSSettings(**{name: getattr(given, name) for name in declarations(NodeTLSSettings)}))
    except (ValueError, ToolFailed) as error:
        parser.error(str(error))
    return Cluster(lookupd=tuple(dict.fromkeys(lookupd)), nsqd=tuple(dict.fromkeys(nsqd)), tls=tls)


def checked_name(kind: str, name: str) -> str:
    """Return the name of a topic or channel (``kind``) if it is valid. Raises ToolFailed."""
    if not is_valid_name(name):
        raise ToolFailed(f"{name!r} is not a valid {kind} name: {NAME_RULE}", status=USAGE)
    return name


def topics(options: Options) -> list[str]:
    """The topics that the arguments name, each once. Raises ToolFailed."""
    return list(dict.fromkeys(checked_name("topic", name) for name in options.names))


def topic_and_channels(options: Options) -> tuple[str, list[str]]:
    """The topic and the channels, each once, of a verb that requires both. Raises ToolFailed."""
    topic = checked_name("topic", options.names[0]) if options.names else ""
    channels = list(dict.fromkeys(checked_name("channel", name) for name in options.names[1:]))
    if not channels:
        raise ToolFailed(f"{options.verb} requires a topic and one or more channels", status=USAGE)
    return topic, channels


def run(prog: str, work: Coroutine[Any, Any, T]) -> T:
    """Run one step of a command and return its result.

    An interrupt or an error is reported in one line and exits, with status 130 for SIGINT and SIGTERM, otherwise with
    1 or ToolFailed's own.
    """
    answers: list[T] = []

    async def step() -> int:
        task = asyncio.ensure_future(work)
        loop, echo = asyncio.get_running_loop(), SignalEcho()

        def interrupted() -> None:
            if not echo.is_echo(loop.time()):  # a second cancellation would end the closing of connections
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupted)
        try:
            answers.append(await task)
        except asyncio.CancelledError:
            process.forget_open_connections(loop)
            raise ToolFailed("interrupted; requests already sent may still be executed", status=INTERRUPTED) from None
        return 0

    occupy_standard_descriptors()
    if status := process.run_reporting_errors(prog, step()):
        raise SystemExit(status)
    return answers[0]


def confirm(options: Options, losses: Sequence[str]) -> None:
    """Print what will be deleted and ask for confirmation, unless ``--yes`` was given. Exits if the answer is no, or if
    standard input is not a terminal."""
    if options.yes:
        return
    if not (sys.stdin and sys.stdin.isatty()):
        for loss in losses:
            process.note(options.prog, f"would {loss}")
        process.note(options.prog, "nothing was done: confirmation requires a terminal; --yes skips it")
        raise SystemExit(USAGE)
    for loss in losses:
        print(f"This will {loss}.", file=sys.stderr)
    print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline().strip().lower()
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    if answer not in ("y", "yes"):
        process.note(options.prog, "nothing was done")
        raise SystemExit(1)


def and_unknown(survey: Survey) -> str:
    """Return the text that a confirmation ends with if some servers did not answer."""
    if not survey.failures:
        return ""
    silent = ", ".join(f"{each['target']} {each['node']} ({each['detail']})" for each in survey.failures)
    return f"; there may be more, because there was no answer from {silent}"


@dataclass(frozen=True, kw_only=True)
class ActionResult:
    """The result for one topic, channel, policy or node: results per server, or the reason why nothing was done."""

    what: Mapping[str, str]
    """``{"topic": …}``, with ``channel`` or ``node`` if the action concerns one; ``node`` alone; ``topic_pattern`` and
    ``channel_pattern`` of a policy."""
    by_server: Sequence[Result] = ()
    refusal: str = ""

    @property
    def name(self) -> str:
        """What the action concerned, as in ``channel c of topic t``."""
        if "topic_pattern" in self.what:
            return f"policy of {Patterns(self.what['topic_pattern'], self.what['channel_pattern'])}"
        (kind, topic), *narrower = self.what.items()
        return f"{kind} {topic}" if not narrower else f"{narrower[0][0]} {narrower[0][1]} of topic {topic}"


async def carry_out(what: Mapping[str, str], work: Coroutine[Any, Any, list[Result]]) -> ActionResult:
    """Await an action. If no node could be asked, the result has the reason."""
    try:
        return ActionResult(what=what, by_server=await work)
    except (NotInCluster, ClusterUnreachable, PolicyRefused) as error:
        return ActionResult(what=what, refusal=str(error))


def report(options: Options, results: Sequence[ActionResult]) -> int:
    """Print the results: successes on standard output, failures on standard error. Returns the exit status."""
    failed = False
    for result in results:
        if result.refusal:
            failed = True
            process.note(options.prog, f"{options.verb} {result.name}: {result.refusal}")
            continue
        done = [_where(each) for each in result.by_server if each["outcome"] == "done"]
        if done and not options.json:
            print(f"{result.name}: {DONE[options.verb]} on {', '.join(done)}")
        for each in result.by_server:
            where = f"{each['target']} {each['node']}"
            if each["outcome"] == "absent":
                if each["target"] == "nsqd":  # a registry need not know every topic
                    process.note(options.prog, f"{options.verb} {result.name}: not on {where}: {each['detail']}")
            elif each["outcome"] != "done":
                failed = True
                process.note(options.prog, f"{options.verb} {result.name}: failed on {where}: {each['detail']}")
    if options.json:
        actions = [
            {
                "action": options.verb,
                **result.what,
                "outcome": outcome_of(result.by_server) if result.by_server else "failed",
                "results": list(result.by_server),
                "error": result.refusal or None,
            }
            for result in results
        ]
        print(json.dumps({"actions": actions}, indent=2), flush=True)
    return int(failed)


def _where(result: Result) -> str:
    return f"{result['node']} ({result['detail']})" if result["detail"] else result["node"]


def report_failures(options: Options, failures: Sequence[Failure]) -> int:
    """Print the servers that did not answer on standard error. Returns the exit status."""
    for each in failures:
        process.note(options.prog, f"{each['target']} {each['node']}: {each['detail']}")
    return int(bool(failures))


def that_answered(failures: Sequence[Failure]) -> str:
    """`` that answered`` for "no node" if servers have failed, which may have what was not found; else empty."""
    return " that answered" if failures else ""


def print_json(key: str, rows: Sequence[Mapping[str, Any]], failures: Sequence[Failure]) -> None:
    """Print ``{key: rows, "errors": failures}``."""
    print(json.dumps({key: rows, "errors": failures}, indent=2), flush=True)


def paused_state(nodes: Sequence[Mapping[str, Any]]) -> Cell:
    """``paused``, ``paused on 1 of 3``, ``on no node``, or an empty text."""
    if not nodes:
        return Cell("on no node", "yellow")
    paused = sum(bool(each["paused"]) for each in nodes)
    if not paused:
        return Cell("")
    return Cell("paused" if paused == len(nodes) else f"paused on {paused} of {len(nodes)}", "yellow")
