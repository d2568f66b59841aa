"""``nsq to-file``: archive topics in files, one line per message.

NSQ's nsq_to_file, with its flags and file names. A message is finished once its line is on disk. docs/compatibility.md
lists the differences and their reasons.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import re2

from aionsq.errors import ClientError
from aionsq.lookup import Lookup
from aionsq.options import ConsumerOptions
from aionsq.tools.archive import Archive, ArchiveRules
from aionsq.tools.archive_file import InUse
from aionsq.tools.archiver import Archiver
from aionsq.tools.backlog import Backlog
from aionsq.tools.file_names import DEFAULT_DATETIME, DEFAULT_FORMAT, FileNames
from aionsq.tools.flags import ConsumerFlags, Sources, ToolFailed, WrongUsage, check_timeouts, consumer_options, sources
from aionsq.tools.names import check_names
from aionsq.tools.process import Run, Tool
from aionsq.tools.progress import progress
from nsqdaemon.logs import LogLevel
from nsqdaemon.node_http import HTTPTimeouts
from nsqdaemon.settings import setting
from nsqwire.errors import NSQError

log = logging.getLogger(__name__)

NAME = "nsq_to_file"
DISK_THREADS = 64

_QUIET = re2.Options()
_QUIET.log_errors = False


@dataclass(frozen=True, kw_only=True)
class ToFileFlags(HTTPTimeouts, ConsumerFlags):
    """Flags of nsq_to_file."""

    topic: tuple[str, ...] = setting((), "Topic to archive; may be given several times.")
    topic_pattern: str = setting(
        "", "Archive only topics that contain a match of this regular expression; without --topic, of all topics."
    )
    topic_refresh: timedelta = setting("1m", "Interval of the search for new topics, without --topic.")
    channel: str = setting(NAME, "Channel to consume from each topic.")
    max_in_flight: int = setting(200, "Most messages in flight, and so also between two syncs.", min=1)
    output_dir: str = setting("/tmp", "Folder for the files.")
    work_dir: str = setting("", "Folder for unfinished files, on the same file system.", shown="the output folder")
    filename_format: str = setting(
        DEFAULT_FORMAT,
        "Format of file names, with <TOPIC>, <HOST>, <PID>, <DATETIME> and <REV>; may contain folders. Gzip, rotation "
        "and a work folder require <REV>, a number that distinguishes files of the same name.",
    )
    datetime_format: str = setting(
        DEFAULT_DATETIME, "Format of <DATETIME>, with strftime's %Y %y %m %d %H %I %M %S %p %B %b %A %a %Z %z."
    )
    host_identifier: str = setting(
        "<SHORT_HOST>",
        "Format of <HOST>, in which <SHORT_HOST> is the host name up to the first dot and <HOSTNAME> the full name.",
    )
    gzip: bool = setting(False, "Compress the files.")
    gzip_level: int = setting(6, "Compression level of gzip, 1 to 9.")
    skip_empty_files: bool = setting(False, "Do not create a file before it has a message.")
    rotate_size: int = setting(0, "Start another file after this many bytes, before compression; 0: never.", min=0)
    rotate_interval: timedelta = setting("0s", "Start another file after this time; 0: never.", min="0s")
    sync_interval: timedelta = setting("30s", "Longest time until a message is synced to disk and finished.")
    log_level: LogLevel = setting("info", "Lowest severity to log: debug, info, warn, error or fatal.")


async def to_file(flags: ToFileFlags, run: Run) -> int:
    """Archive until stopped. Raises ToolFailed."""
    where = _checked(flags, run)
    rules = _rules(flags)
    # Never give up: killing this tool also adds to the attempts of a message, and giving up would lose the message.
    # Touch messages, so that they are not redelivered to another consumer while they wait for a slow disk.
    defaults = ConsumerOptions(max_attempts=0, auto_touch=True, lookupd_poll_interval=timedelta(seconds=10))
    options = consumer_options(flags, NAME, defaults)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="disk"))
    archivers = Archivers(flags, where, rules, options, run)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, archivers.reopen)
    async with AsyncExitStack() as stack:
        backlog = await stack.enter_async_context(
            Backlog(where, lambda: [(topic, flags.channel) for topic in archivers.topics])
        )
        await stack.enter_async_context(progress(flags.progress, lambda: archivers.archived, backlog.depth))
        fixed = _matching(flags, dict.fromkeys(flags.topic))
        if flags.topic and not fixed:
            raise WrongUsage("no --topic matches --topic-pattern")
        discovering = asyncio.create_task(_discover(flags, where, archivers)) if not fixed else None
        try:
            for topic in fixed:
                archivers.begin(topic)
            await run.stop.wait()
        finally:
            if discovering is not None:
                discovering.cancel()
            await archivers.finish()
    return 1 if archivers.failed else 0


class Archivers:
    """The archivers of all topics. If one fails, all are stopped and the tool reports the error."""

    def __init__(
        self, flags: ToFileFlags, where: Sources, rules: ArchiveRules, options: ConsumerOptions, run: Run
    ) -> None:
        self.failed = False
        self._flags = flags
        self._where = where
        self._rules = rules
        self._options = options
        self._run = run
        self._archivers: dict[str, Archiver] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def topics(self) -> Iterable[str]:
        """The topics that are being archived."""
        return list(self._archivers)

    @property
    def archived(self) -> int:
        """Number of messages on disk, of all topics."""
        return sum(each.archived for each in self._archivers.values())

    def begin(self, topic: str) -> None:
        """Start archiving a topic, unless it is archived already. Raises ToolFailed if it cannot be archived."""
        if topic in self._archivers or self._run.stop.is_set():
            return
        flags = self._flags
        try:
            consumer = self._where.consumer(topic, flags.channel, self._options)
            names = FileNames(
                flags.filename_format,
                flags.datetime_format,
                topic=topic,
                host=_host(flags.host_identifier),
                pid=os.getpid(),
                revisions=self._rules.needs_revisions,
                gzip=flags.gzip,
            )
        except (NSQError, ValueError) as error:
            raise ToolFailed(str(error)) from None
        archive = Archive(names, self._rules, f"{topic}/{flags.channel}", lambda: datetime.now().astimezone())
        archiver = self._archivers[topic] = Archiver(consumer, archive, flags.sync_interval)
        task = asyncio.create_task(archiver.run())
        task.add_done_callback(partial(self._ended, topic))
        self._tasks.append(task)

    def reopen(self) -> None:
        """Finish every file; the next message opens another one. Called on SIGHUP."""
        for each in self._archivers.values():
            each.reopen()

    async def finish(self) -> None:
        """Write every message that has arrived, and finish the files."""
        for each in self._archivers.values():
            each.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, topic: str, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self.failed = True
        self._run.stop.set()
        text = f"{error.filename or 'write'}: {error.strerror}" if isinstance(error, OSError) else str(error)
        known = isinstance(error, (OSError, InUse, ClientError))
        log.critical("[%s/%s] %s", topic, self._flags.channel, text, exc_info=None if known else error)


async def _discover(flags: ToFileFlags, where: Sources, archivers: Archivers) -> None:
    """Start archiving new topics, now and every ``--topic-refresh``. Registries that do not answer are skipped."""
    logged: set[str] = set()
    async with Lookup(
        where.lookupd_http_addresses,
        timeout=flags.http_client_request_timeout,
        connect_timeout=flags.http_client_connect_timeout,
        tls=where.tls,
    ) as lookup:
        while True:
            answer = await lookup.topics()
            errors = {f"could not retrieve topic list: {error}" for error in answer.errors}
            for topic in _matching(flags, answer.names):
                try:
                    archivers.begin(topic)
                except ToolFailed as error:
                    errors.add(f"couldn't create logger for new topic {topic}: {error}")
            for text in sorted(errors - logged):  # log each error once, not at every refresh
                log.error("%s", text)
            logged = errors
            await asyncio.sleep(flags.topic_refresh.total_seconds())


def _matching(flags: ToFileFlags, topics: Iterable[str]) -> list[str]:
    pattern = re2.compile(flags.topic_pattern, _QUIET)
    found = [topic for topic in topics if pattern.search(topic)]
    for topic in topics:
        if topic not in found:
            log.debug("skipping topic %s (doesn't match pattern %s)", topic, flags.topic_pattern)
    return found


def _host(identifier: str) -> str:
    name = socket.gethostname()
    return identifier.replace("<SHORT_HOST>", name.partition(".")[0]).replace("<HOSTNAME>", name)


def _rules(flags: ToFileFlags) -> ArchiveRules:
    """The archive's rules. Also creates the folders and checks that they are usable. Raises ToolFailed."""
    rules = ArchiveRules(
        output_dir=flags.output_dir,
        work_dir=flags.work_dir or flags.output_dir,
        gzip=flags.gzip,
        gzip_level=flags.gzip_level,
        rotate_size=flags.rotate_size,
        rotate_interval=flags.rotate_interval,
        skip_empty_files=flags.skip_empty_files,
    )
    for flag, folder in (("--output-dir", rules.output_dir), ("--work-dir", rules.work_dir)):
        try:
            os.makedirs(folder, mode=0o770, exist_ok=True)
        except OSError as error:
            raise ToolFailed(f"{flag} {folder}: {error.strerror}") from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ToolFailed(f"{flag} {folder}: not writable")
    if os.stat(rules.work_dir).st_dev != os.stat(rules.output_dir).st_dev:
        raise ToolFailed("--work-dir and --output-dir must be on the same file system")
    return rules


def _checked(flags: ToFileFlags, run: Run) -> Sources:
    """Check the flags as nsq_to_file does, in its order, and return the addresses. Raises ToolFailed."""
    if not flags.channel:
        raise WrongUsage("--channel is required")
    check_names("topic", *flags.topic)
    check_names("channel", flags.channel)
    check_timeouts(flags)
    where = sources(flags, local=run.is_subcommand)
    if not 1 <= flags.gzip_level <= 9:
        raise WrongUsage(f"invalid --gzip-level value ({flags.gzip_level}), should be 1-9")
    if not flags.topic and not flags.topic_pattern:
        raise WrongUsage("--topic or --topic-pattern required")
    if not flags.topic and not where.lookupd_http_addresses:
        raise WrongUsage("--lookupd-http-address must be specified when no --topic specified")
    for flag, duration in (("--sync-interval", flags.sync_interval), ("--topic-refresh", flags.topic_refresh)):
        if duration <= timedelta(0):
            raise WrongUsage(f"{flag} should be positive")
    try:
        re2.compile(flags.topic_pattern, _QUIET)
    except re2.error as error:
        raise WrongUsage(f"--topic-pattern {flags.topic_pattern}: {_words(error)}") from None
    except UnicodeEncodeError:
        raise WrongUsage(f"--topic-pattern {flags.topic_pattern!r}: is not UTF-8") from None
    return where


def _words(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


main = Tool(
    NAME,
    "to-file",
    ToFileFlags,
    to_file,
    "Archive topics in files, one line per message.",
    examples=[
        ("nsq to-file --topic orders --output-dir archive", "a file an hour"),
        ("nsq to-file --topic orders --output-dir archive --gzip", "compressed"),
    ],
)
