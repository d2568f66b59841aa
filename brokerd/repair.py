"""``nsq repair``: reports damage in the data path of a stopped broker, and repairs it on request."""

from __future__ import annotations

import argparse
import errno
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from brokerd.broker import Broker
from brokerd.data_path import SET_ASIDE, TOPICS, DataPath, DataPathLocked, NotADataPath
from brokerd.file_header import UnsupportedFormat
from brokerd.formats import check_formats
from brokerd.journal.checkpoint import CHECKPOINT
from brokerd.journal.journal import NotCheckpointed
from brokerd.journal.recovery import CorruptState, StateOfOtherVersion, recover
from brokerd.journal.state import NodeState
from brokerd.log.inspection import LogReport, inspect_log
from brokerd.replica import replace_member_id
from brokerd.settings import BrokerSettings
from brokerd.topic_directories import EntryKind, TopicDirectories
from brokerd.topic_log import id_head
from nsqdaemon.command_line import CommandParser
from nsqwire.counted import counted

SOUND, DAMAGED, NOT_DONE = 0, 1, 2
_REMEDIES = {
    errno.EACCES: "run nsq repair as the broker's user, or make that user the owner of the file",
    errno.EPERM: "run nsq repair as the broker's user, or make that user the owner of the file",
    errno.EIO: "the disk is failing: copy the readable files to another disk, and repair the copy",
    errno.ENOSPC: "make room on the disk and try again",
}
_OF_A_PAIR: Final = """\
This is the data path of a member of a pair. What was damaged is missing here, so it counts as a new member, which gets
the other one's files. If the other one is lost, let this one lead: nsq promote --accept-loss."""

EXAMPLES = (
    ("nsq repair /var/lib/nsq", "report contents and damage; changes nothing"),
    ("nsq repair --rebuild /var/lib/nsq", "rebuild indexes from the logs, and write a new checkpoint"),
    ("nsq repair --set-aside /var/lib/nsq", "move unusable files to /var/lib/nsq/set-aside/<time>/"),
)
NOTES = """\
No broker may be using the data path. Only files of topics that were already deleted are removed, by --rebuild.
Exit status: 0 if the data path is undamaged, 1 if damage remains or changes in the journal are lost, 2 for a usage
error, a directory that is not a data path or is in use, or a file that cannot be read or written.
"""


class TopicReport(NamedTuple):
    """A topic's name, its channels' names, its directory and the report on its log."""

    name: str
    channels: list[str]
    directory: Path
    log: LogReport


class Report:
    """The contents and damage of a data path. Paths in its lines are relative to the data path."""

    def __init__(self, data_path: DataPath, skipped_damage: Sequence[str] = ()) -> None:
        """Examine all files without changing any.

        ``skipped_damage`` has a line for each damage in the journals that a rebuild has just skipped. Raises OSError if
        a file cannot be read, and UnsupportedFormat or StateOfOtherVersion if one is of another version.
        """
        self.path = data_path.path
        self.topics: list[TopicReport] = []
        self.damage: list[str] = []
        self.foreign_files = data_path.foreign_files()
        self.unusable: list[Path] = []
        """Checkpoints that prevent the broker from starting."""
        self.orphans: list[Path] = []
        self.unversioned = check_formats(self.path)
        """Files of format 0."""
        self.skipped_damage = [self._without_path(line) for line in skipped_damage]
        state = self._read_state()
        directories = TopicDirectories(self.path / TOPICS)
        for topic in state.topics.values():
            if not directories.path_of(topic.number, topic.name).exists():
                self.damage.append(f"{self._shown(directories.path_of(topic.number, topic.name))}: missing")
        for path, kind, directory, _ in directories.survey(state):
            if kind is EntryKind.FOREIGN or directory is None:
                self.foreign_files.append(path)
            elif kind in (EntryKind.KNOWN, EntryKind.UNRECORDED, EntryKind.NOT_DELETED):
                channels = [each.name for each in state.channels.values() if each.topic == directory.number]
                known = state.topics.get(directory.number)
                log = inspect_log(path, id_head(0, directory.number), [] if known is None else known.holes)
                self._add_topic(TopicReport(directory.name, channels, path, log))
            if kind is EntryKind.UNRECORDED:
                self.damage.append(f"{self._shown(path)}: the record of this topic is lost")

    def _read_state(self) -> NodeState:
        try:
            found = recover(self.path)
        except StateOfOtherVersion:
            raise
        except CorruptState as error:
            self.damage.append(self._without_path(str(error)))
            self.unusable = sorted(self.path.glob(f"{CHECKPOINT}*"))
            return NodeState()
        self.damage += [self._without_path(warning) for warning in found.warnings]
        return found.state

    def _add_topic(self, topic: TopicReport) -> None:
        self.topics.append(topic)
        self.damage += [f"{self._shown(topic.directory)}/{line}" for line in topic.log.damage]
        self.orphans += topic.log.orphans
        self.foreign_files += topic.log.foreign_files

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self.path))

    def _without_path(self, line: str) -> str:
        return line.replace(f"{self.path}/", "")

    @property
    def is_damaged(self) -> bool:
        """True if there is damage, or a rebuild has skipped damage in a journal."""
        return bool(self.damage or self.skipped_damage)

    def lines(self) -> list[str]:
        """The report as text."""
        messages = sum(topic.log.messages for topic in self.topics)
        is_exact = all(topic.log.is_exact for topic in self.topics)
        lines = [f"{self.path}: {counted(len(self.topics), 'topic')}, {_messages(messages, is_exact=is_exact)} on disk"]
        for topic in self.topics:
            log, channels = topic.log, ", ".join(topic.channels) or "none"
            lines.append(
                f"  {topic.name}: {_messages(log.messages, is_exact=log.is_exact)} in "
                f"{counted(log.segments, 'segment')}, {counted(log.bytes, 'byte')}; "
                f"channels: {channels}"
            )
        if self.unversioned:
            lines.append(f"{counted(self.unversioned, 'file')} without a format version, from before release 0.1.0")
        for heading, found in (
            ("damage", self.damage),
            ("skipped by the rebuild", self.skipped_damage),
            ("not the broker's, left alone", [self._shown(path) for path in self.foreign_files]),
        ):
            if found:
                lines += [f"{heading}:", *(f"  {each}" for each in found)]
        if not self.is_damaged:
            lines.append("no damage found")
        if self.unusable:
            lines.append("The broker cannot start: --set-aside moves the checkpoint away, --rebuild recovers the rest.")
        return lines

    def set_aside(self) -> list[str]:
        """Move unusable files, and foreign files in the directory of topics, to ``set-aside/``. Raises OSError.

        Returns a line for each file.
        """
        doomed = [
            *self.unusable,
            *self.orphans,
            *(path for path in self.foreign_files if path.is_relative_to(self.path / TOPICS)),
        ]
        home = self.path / SET_ASIDE / time.strftime("%Y%m%d-%H%M%S")
        lines = []
        for path in doomed:
            place = home / path.relative_to(self.path)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.rename(place)
            lines.append(f"moved {self._shown(path)} to {self._shown(place)}")
        return lines


def _messages(number: int, *, is_exact: bool) -> str:
    if is_exact:
        return counted(number, "message")
    return f"at least {counted(number, 'message')}" if number else "an unknown number of messages"


def rebuild(path: Path) -> list[str]:
    """Start a broker without listeners and close it, which repairs the logs' indexes and writes a checkpoint.

    Returns a line for each damage in the journals that it skipped. Raises CorruptState, DataPathLocked,
    NotCheckpointed, OSError.
    """
    losses = recover(path).losses
    broker = Broker(
        BrokerSettings(data_path=str(path)),
        now=time.monotonic,
        call_soon=lambda run: None,
        call_at=lambda when, run: _Never(),
    )
    broker.close()
    return losses


class _Never:
    """A timer that does not fire."""

    def cancel(self) -> None:
        pass


def parser() -> CommandParser:
    """The parser of the command."""
    made = CommandParser(
        prog="nsq repair",
        description="Report the contents and damage of a stopped broker's data path, and repair it on request.",
        epilog=NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        examples=EXAMPLES,
    )
    made.add_argument("data_path", metavar="DATA_PATH", help="the broker's --data-path")
    made.add_argument("--rebuild", action="store_true", help="rebuild indexes from logs, and write a new checkpoint")
    made.add_argument("--set-aside", action="store_true", help="move unusable files to DATA_PATH/set-aside/")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    options = parser().parse_args(argv)
    try:
        return repair(Path(options.data_path), rebuilds=options.rebuild, sets_aside=options.set_aside)
    except (DataPathLocked, NotADataPath, NotCheckpointed, StateOfOtherVersion, UnsupportedFormat) as error:
        print(f"nsq repair: {error}", file=sys.stderr)
        return NOT_DONE
    except CorruptState as error:
        print(f"nsq repair: {error}", file=sys.stderr)
        return DAMAGED
    except OSError as error:
        print(f"nsq repair: {_explained(error, options.data_path)}", file=sys.stderr)
        return NOT_DONE


def _explained(error: OSError, data_path: str) -> str:
    """The file, the reason, and the remedy if one is known."""
    line = f"cannot read or write {error.filename or data_path}: {error.strerror or error}"
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{line}; {remedy}" if remedy else line


def repair(path: Path, *, rebuilds: bool, sets_aside: bool) -> int:
    """Report, and repair as requested. Returns the exit status.

    Raises CorruptState, DataPathLocked, NotADataPath, NotCheckpointed, UnsupportedFormat, OSError.
    """
    report = _report(path, sets_aside=sets_aside)
    skipped_damage = rebuild(path) if rebuilds else []
    if rebuilds or sets_aside:
        was_damaged = report.is_damaged
        print("\nNow:")
        report = _report(path, skipped_damage=skipped_damage)
        try:
            if was_damaged and replace_member_id(path):
                print(_OF_A_PAIR)
        except ValueError as error:
            print(f"nsq repair: {error}", file=sys.stderr)
            return NOT_DONE
    return DAMAGED if report.is_damaged else SOUND


def _report(path: Path, *, sets_aside: bool = False, skipped_damage: Sequence[str] = ()) -> Report:
    data_path = DataPath(str(path))
    try:
        data_path.require_used()
        report = Report(data_path, skipped_damage)
        print(*report.lines(), sep="\n")
        if sets_aside:
            print(*(report.set_aside() or ["nothing to set aside"]), sep="\n")
        return report
    finally:
        data_path.close()
