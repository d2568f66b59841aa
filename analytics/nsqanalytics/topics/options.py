"""The options of ``spark.read.format("nsq")``, parsed and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from nsqanalytics.parameters import duration
from nsqanalytics.topics.address import Address
from nsqanalytics.topics.errors import BadOption
from nsqwire.names import is_valid_name

NAMES = (
    "topic",
    "nsqd_http_addresses",
    "lookupd_http_addresses",
    "start",
    "end",
    "max_messages",
    "partition_messages",
    "fail_on_data_loss",
    "timeout_s",
    "tls_ca_file",
    "tls_cert_file",
    "tls_key_file",
)
PARTITION_MESSAGES = 250_000
"""Default number of messages that one task reads at most."""
TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class TLSFiles:
    """Paths of PEM files; None: the machine's certificate authorities, and no certificate of the client."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to read, and from where. ``start`` and ``end`` are times as the broker reads them."""

    topic: str
    nodes: tuple[Address, ...] = ()
    registries: tuple[Address, ...] = ()
    start: str | None = None
    end: str | None = None
    max_messages: int | None = None
    partition_messages: int = PARTITION_MESSAGES
    fail_on_data_loss: bool = True
    timeout_s: float = TIMEOUT_S
    tls: TLSFiles = TLSFiles()

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Read the options, whose names may have any case. Raises BadOption with the name of the first wrong one."""
        values = {name.lower(): value for name, value in given.items()}
        for name in values:
            if name not in NAMES:
                raise BadOption(name, f"is unknown; the options are {', '.join(NAMES)}")
        topic = values.get("topic", "")
        if not topic:
            raise BadOption("topic", "is missing")
        if not is_valid_name(topic):
            raise BadOption("topic", f"{topic!r} is not a valid name of a topic")
        nodes, registries = (_addresses(values, name) for name in ("nsqd_http_addresses", "lookupd_http_addresses"))
        if bool(nodes) == bool(registries):
            raise BadOption("nsqd_http_addresses", "give either these or lookupd_http_addresses")
        now = datetime.now(UTC)
        start, end = (_moment(values, name, now) for name in ("start", "end"))
        if start is not None and end is not None and start >= end:
            raise BadOption("end", f"{values['end']!r} is not after the start, {values['start']!r}")
        return cls(
            topic=topic,
            nodes=nodes,
            registries=registries,
            start=None if start is None else start.isoformat(),
            end=None if end is None else end.isoformat(),
            max_messages=_number(values, "max_messages") if "max_messages" in values else None,
            partition_messages=_number(values, "partition_messages", PARTITION_MESSAGES),
            fail_on_data_loss=_flag(values, "fail_on_data_loss", default=True),
            timeout_s=float(_number(values, "timeout_s", int(TIMEOUT_S))),
            tls=_tls(values),
        )


def _addresses(values: Mapping[str, str], name: str) -> tuple[Address, ...]:
    words = [word.strip() for word in values.get(name, "").split(",")]
    try:
        return tuple(dict.fromkeys(Address.parse(word) for word in words if word))
    except ValueError as error:
        raise BadOption(name, str(error)) from None


def _moment(values: Mapping[str, str], name: str, now: datetime) -> datetime | None:
    text = values.get(name)
    if text is None:
        return None
    try:
        return now - duration(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        forms = "a duration such as 90m or 7d, nor a time such as 2026-11-22T06:30:00Z"
        raise BadOption(name, f"{text!r} is neither {forms}") from None
    if moment.tzinfo is None:
        raise BadOption(name, f"the time {text!r} needs its zone, such as Z or +02:00")
    return moment


def _number(values: Mapping[str, str], name: str, default: int = 0) -> int:
    text = values.get(name, str(default))
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**63):
        raise BadOption(name, f"{text!r} is not a whole number above 0")
    return int(text)


def _flag(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = values.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise BadOption(name, f"{text!r} is neither true nor false")
    return text == "true"


def _tls(values: Mapping[str, str]) -> TLSFiles:
    files = TLSFiles(**{name: values.get(f"tls_{name}") for name in ("ca_file", "cert_file", "key_file")})
    if files.key_file is not None and files.cert_file is None:
        raise BadOption("tls_key_file", "needs tls_cert_file")
    return files
