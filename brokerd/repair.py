"""``nsq repair``: examines the data path of a stopped broker and repairs what a start does not."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from brokerd.broker import Broker
from brokerd.data_path import SET_ASIDE, TOPICS, DataPath, DataPathLocked
from brokerd.journal.checkpoint import CHECKPOINT
from brokerd.journal.journal import NotCheckpointed
from brokerd.journal.recovery import CorruptState, recover
from brokerd.journal.state import NodeState
from brokerd.log.inspection import LogReport, inspect_log
from brokerd.settings import BrokerSettings
from brokerd.topic_directories import TopicDirectories, Verdict

SOUND, DAMAGED, USAGE = 0, 1, 2

EXAMPLES = """
Examples:
  nsq repair /var/lib/nsq              report contents and damage; changes nothing
  nsq repair --rebuild /var/lib/nsq    rebuild indexes from the logs, and write a new checkpoint
  nsq repair --set-aside /var/lib/nsq  move unusable files to /var/lib/nsq/set-aside/<time>/
  nsq repair --set-aside --rebuild /var/lib/nsq

No broker may be using the data path. Nothing is ever deleted.
Exit status: 0 if the data path is undamaged, 1 if damage was found or remains, 2 for a usage error.
"""


class TopicReport(NamedTuple):
    """A topic's name, its channels' names, its directory and the report on its log."""

    name: str
    channels: list[str]
    directory: Path
    log: LogReport


class Report:
    """The contents and damage of a data path. Paths in its lines are relative to the data path."""

    def __init__(self, data_path: DataPath) -> None:
        """Examine all files without changing any. Raises OSError if one cannot be read."""
        self.path = data_path.path
        self.topics: list[TopicReport] = []
        self.damage: list[str] = []
        self.strangers = data_path.strangers()
        self.unusable: list[Path] = []
        """Files that prevent the broker from starting."""
        state = self._read_state()
        directories = TopicDirectories(self.path / TOPICS)
        for topic in state.topics.values():
            if not directories.path_of(topic.number, topic.name).exists():
                self.damage.append(f"{self._shown(directories.path_of(topic.number, topic.name))}: missing")
        for path, verdict, directory, _ in directories.survey(state):
            if verdict is Verdict.STRANGER or directory is None:
                self.strangers.append(path)
            elif verdict in (Verdict.KNOWN, Verdict.UNRECORDED, Verdict.NOT_DELETED):
                channels = [each.name for each in state.channels.values() if each.topic == directory.number]
                self._add_topic(TopicReport(directory.name, channels, path, inspect_log(path)))
            if verdict is Verdict.UNRECORDED:
                self.damage.append(f"{self._shown(path)}: the record of this topic is lost")

    def _read_state(self) -> NodeState:
        try:
            found = recover(self.path)
        except CorruptState as error:
            self.damage.append(str(error).replace(f"{self.path}/", ""))
            self.unusable = sorted(self.path.glob(f"{CHECKPOINT}*"))
            return NodeState()
        self.damage += [oddity.replace(f"{self.path}/", "") for oddity in found.oddities]
        return found.state

    def _add_topic(self, topic: TopicReport) -> None:
        self.topics.append(topic)
        self.damage += [f"{self._shown(topic.directory)}/{line}" for line in topic.log.damage]
        self.strangers += topic.log.strangers

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self.path))

    def lines(self) -> list[str]:
        """The report as text."""
        messages = sum(topic.log.messages for topic in self.topics)
        lines = [f"{self.path}: {len(self.topics)} topics, {messages:,} messages on disk"]
        for topic in self.topics:
            log, channels = topic.log, ", ".join(topic.channels) or "none"
            lines.append(
                f"  {topic.name}: {log.messages:,} messages in {log.segments} segments, {log.bytes:,} bytes; "
                f"channels: {channels}"
            )
        for heading, found in (
            ("damage", self.damage),
            ("not the broker's, left alone", [self._shown(path) for path in self.strangers]),
        ):
            if found:
                lines += [f"{heading}:", *(f"  {each}" for each in found)]
        if not self.damage:
            lines.append("no damage found")
        if self.unusable:
            lines.append("The broker cannot start: --set-aside moves the checkpoint away, --rebuild recovers the rest.")
        return lines

    def set_aside(self) -> list[str]:
        """Move unusable files, and files in the topics' directory that are not the broker's. Raises OSError."""
        doomed = [*self.unusable, *(path for path in self.strangers if path.is_relative_to(self.path / TOPICS))]
        home = self.path / SET_ASIDE / time.strftime("%Y%m%d-%H%M%S")
        lines = []
        for path in doomed:
            place = home / path.relative_to(self.path)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.rename(place)
            lines.append(f"moved {self._shown(path)} to {self._shown(place)}")
        return lines


def rebuild(path: Path) -> None:
    """Start a broker without a network interface and stop it: it repairs what it can, and writes a checkpoint.

    Raises CorruptState, DataPathLocked, NotCheckpointed, OSError.
    """
    broker = Broker(
        BrokerSettings(data_path=str(path)),
        now=time.monotonic,
        call_soon=lambda run: None,
        call_at=lambda when, run: _Never(),
    )
    broker.close()


class _Never:
    """A timer that does not fire."""

    def cancel(self) -> None:
        pass


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="nsq repair",
        description="Report the contents and damage of a stopped broker's data path, and repair it on request.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data_path", metavar="DATA_PATH", help="the broker's --data-path")
    parser.add_argument("--rebuild", action="store_true", help="rebuild indexes from logs, and write a new checkpoint")
    parser.add_argument("--set-aside", action="store_true", help="move unusable files to DATA_PATH/set-aside/")
    options = parser.parse_args(argv)
    try:
        return repair(Path(options.data_path), rebuilds=options.rebuild, sets_aside=options.set_aside)
    except DataPathLocked as error:
        print(f"nsq repair: {error}", file=sys.stderr)
        return USAGE
    except (CorruptState, NotCheckpointed, OSError) as error:
        print(f"nsq repair: {error}", file=sys.stderr)
        return DAMAGED


def repair(path: Path, *, rebuilds: bool, sets_aside: bool) -> int:
    """Report, and repair on request. Returns the exit status. Raises CorruptState, DataPathLocked, OSError."""
    report = _report(path, sets_aside=sets_aside)
    if rebuilds:
        rebuild(path)
    if rebuilds or sets_aside:
        print("\nNow:")
        report = _report(path)
    return DAMAGED if report.damage else SOUND


def _report(path: Path, *, sets_aside: bool = False) -> Report:
    data_path = DataPath(str(path))
    try:
        report = Report(data_path)
        print(*report.lines(), sep="\n")
        if sets_aside:
            print(*(report.set_aside() or ["nothing to set aside"]), sep="\n")
        return report
    finally:
        data_path.close()
