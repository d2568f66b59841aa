"""One environment variable of the platform, and the parsing of its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parseaddr
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from nsqcluster.addresses import base_url
from nsqdaemon.variable import InvalidVariable
from nsqwire.addresses import parse_host_port

T = TypeVar("T")
D = TypeVar("D")

_STORES = ("file", "s3", "s3a", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
"""Schemes of the file systems that Arrow and Spark both read."""
_HOST = re.compile(r"\*|\.?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\[[0-9A-Fa-f:.]+\]")


@dataclass(frozen=True)
class Variable(Generic[T]):
    """An environment variable. An empty value is that of a variable which is not set."""

    name: str
    parse: Callable[[str], T]
    """Raises ValueError or OSError for a value that is not accepted."""
    accepts: str
    """The accepted values, as the end of the sentence that begins with "is not"."""
    meaning: str
    """What it sets, for the table in docs/settings-platform.md."""
    default: str = ""
    """A value with the same effect as none, with ``$NSQ_HOME`` for the data folder; empty if there is no such value."""
    has_password: bool = False
    """Whether the value is a URL that may contain a password, which an error must not show."""
    is_secret: bool = False
    """Whether an error must not show the value at all."""

    def read(self, environ: Mapping[str, str], default: D) -> T | D:
        """Return the parsed value, or ``default`` for an empty one. Raises InvalidVariable."""
        text = environ.get(self.name, "")
        if not text:
            return default
        try:
            text.encode()  # fails for bytes that are not UTF-8
            return self.parse(text)
        except InvalidVariable:  # it says what is wrong inside the value
            raise
        except (ValueError, OSError):
            raise InvalidVariable(self.name, f"{self._shown(text)} is not {self.accepts}") from None

    def _shown(self, text: str) -> str:
        """The value as an error names it."""
        if self.is_secret:
            return "its value"
        return repr(without_password(text) if self.has_password else text)


def without_password(url: str) -> str:
    """Return a URL with ``…`` in place of its password, or without a scheme, of everything before an ``@``."""
    before, at, after = url.rpartition("@")
    if not at:
        return url
    scheme, separator, user = before.partition("://")
    if not separator:
        return f"…@{after}"
    name, colon, _ = user.partition(":")
    return f"{scheme}{separator}{name}{colon and ':…'}@{after}"


def flag(text: str) -> bool:
    value = text.lower()
    if value not in ("0", "1", "false", "true", "no", "yes"):
        raise ValueError(text)
    return value in ("1", "true", "yes")


def one_of(*accepted: str) -> Callable[[str], str]:
    """Accepts these texts only."""

    def parse(text: str) -> str:
        if text not in accepted:
            raise ValueError(text)
        return text

    return parse


def days(text: str) -> int:
    """At least two: the files of a day by minute are made from its files of 10 s, after its end."""
    if not text.isascii() or not text.isdecimal() or not 2 <= int(text) <= 10_000:
        raise ValueError(text)
    return int(text)


def seconds(text: str) -> int:
    """A number from 1 to 3600."""
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 3600:
        raise ValueError(text)
    return int(text)


def idle_seconds(text: str) -> int:
    """A number from 0 to 86400."""
    if not text.isascii() or not text.isdecimal() or int(text) > 86_400:
        raise ValueError(text)
    return int(text)


def names(text: str) -> tuple[str, ...]:
    """Split a list at its commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def addresses(text: str) -> tuple[str, ...]:
    """``host:port`` of HTTP listeners."""
    for address in names(text):
        base_url(f"http://{address}")
        host, port = parse_host_port(address)
        if not host or not 0 < port < 65536:
            raise ValueError(address)
    return names(text)


def hosts(text: str) -> tuple[str, ...]:
    """Host names as in Django's ALLOWED_HOSTS."""
    for host in names(text):
        if _HOST.fullmatch(host) is None:
            raise ValueError(host)
    return names(text)


def site(text: str) -> str:
    """A base URL, without its trailing slash."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(text)
    _ = parts.port  # raises ValueError for a port that is no number
    return text.rstrip("/")


def sender(text: str) -> str:
    """An e-mail address, with or without a name."""
    local, at, domain = parseaddr(text)[1].partition("@")
    if not local or not at or not domain or not text.isprintable():
        raise ValueError(text)
    return text


def database(text: str) -> str:
    """A URL of the databases that the platform is tested with."""
    import dj_database_url

    scheme, separator, _ = text.partition("://")
    if not separator or scheme not in ("sqlite", "postgres", "postgresql"):
        raise ValueError(text)
    dj_database_url.parse(text)
    return text


def redis(text: str) -> str:
    """A URL of redis-py; the path of ``redis://`` is the database's number."""
    from redis.connection import parse_url

    scheme, path = urlsplit(text).scheme, urlsplit(text).path
    if not path.strip("/") if scheme == "unix" else re.fullmatch(r"(/\d*)?", path, re.ASCII) is None:
        raise ValueError(text)
    parse_url(text)
    return text


def celery_broker(text: str) -> str:
    """URLs of the brokers that the platform is tested with, several of NSQ separated by semicolons."""
    scheme, separator, _ = text.partition("://")
    if scheme in ("redis", "rediss"):
        return redis(text)
    if scheme == "redis+socket" and urlsplit(text).path.strip("/"):
        return text
    if scheme not in ("nsq", "nsqs"):
        raise ValueError(text)
    for url in text.split(";"):
        parts = urlsplit(url if "://" in url else f"{scheme}{separator}{url}")
        if parts.scheme != scheme or not parts.hostname:
            raise ValueError(text)
        _ = parts.port  # raises ValueError for a port that is no number
    return text


def store(text: str) -> str:
    """A path, or a URL of a file system that Arrow and Spark read."""
    scheme, separator, _ = text.partition("://")
    if separator and scheme not in _STORES:
        raise ValueError(text)
    if not separator or scheme == "file":
        path = Path(text.removeprefix("file://")).absolute()
        nearest = next(each for each in (path, *path.parents) if each.exists())
        if not nearest.is_dir():
            raise ValueError(text)
    return text


def folder(text: str) -> Path:
    """A folder, which is created if it does not exist."""
    path = Path(text).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


def existing_folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise ValueError(text)
    return path
