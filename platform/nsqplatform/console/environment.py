"""The platform's environment variables, which are read once at startup. docs/architecture.md lists them."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nsqplatform.console.checkout import FRONTEND, default_home
from nsqplatform.console.mail import MailServer, mail_server

DEFAULT_LOOKUP = "127.0.0.1:4161"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The settings of one process. Paths are absolute; addresses are ``host:port`` of HTTP listeners."""

    home: Path
    database_url: str
    redis_url: str
    archive: str
    reports: str
    history: Path
    history_days: Mapping[str, int]
    """Days for which the files of each grain of the history are kept."""
    spark_master: str
    secret_key: str
    debug: bool
    https: bool
    allowed_hosts: tuple[str, ...]
    site: str
    mail: MailServer
    mail_from: str
    nsqd_http_addresses: tuple[str, ...]
    lookupd_http_addresses: tuple[str, ...]
    frontend_dist: Path

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Environment:
        """Read the variables; the defaults suit a laptop with no configuration.

        Creates ``$NSQ_HOME`` and, unless a key is given, ``$NSQ_HOME/secret_key``.
        Raises ValueError that names the invalid variable.
        """
        home = default_home(environ)
        home.mkdir(parents=True, exist_ok=True)
        nsqd = _addresses(environ, "NSQD_HTTP_ADDRESSES")
        lookupd = _addresses(environ, "NSQLOOKUPD_HTTP_ADDRESSES")
        if "NSQLOOKUPD_HTTP_ADDRESSES" not in environ and not nsqd:
            lookupd = (DEFAULT_LOOKUP,)
        return cls(
            home=home,
            database_url=environ.get("DATABASE_URL") or f"sqlite:///{home / 'platform.sqlite3'}",
            redis_url=environ.get("REDIS_URL") or f"unix://{home / 'redis.sock'}",
            archive=environ.get("NSQ_ARCHIVE") or str(home / "archive"),
            reports=environ.get("NSQ_REPORTS") or str(home / "reports"),
            history=Path(environ.get("NSQ_HISTORY") or home / "history").absolute(),
            history_days={
                "10s": _days(environ, "NSQ_HISTORY_10S_DAYS", 2),
                "1m": _days(environ, "NSQ_HISTORY_1M_DAYS", 40),
                "1h": _days(environ, "NSQ_HISTORY_1H_DAYS", 460),
            },
            spark_master=environ.get("SPARK_MASTER", ""),
            secret_key=environ.get("NSQ_SECRET_KEY") or kept_secret(home / "secret_key"),
            debug=_flag(environ, "NSQ_DEBUG"),
            https=_flag(environ, "NSQ_HTTPS"),
            allowed_hosts=("localhost", "127.0.0.1", "[::1]", *_names(environ, "NSQ_ALLOWED_HOSTS")),
            site=(environ.get("NSQ_SITE") or "").rstrip("/"),
            mail=mail_server(environ.get("NSQ_EMAIL_URL", "")),
            mail_from=environ.get("NSQ_EMAIL_FROM") or "nsq@localhost",
            nsqd_http_addresses=nsqd,
            lookupd_http_addresses=lookupd,
            frontend_dist=Path(environ.get("NSQ_FRONTEND_DIST") or FRONTEND),
        )


def kept_secret(path: Path) -> str:
    """Return the key in the file ``path``; create it (mode 0600) if it does not exist.

    Several processes may start at once. The first to link its file wins, and none reads an incomplete key.
    """
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f"{path.name}.") as draft:  # has mode 0600
            draft.write(secrets.token_urlsafe(48))
            draft.flush()
            with contextlib.suppress(FileExistsError):
                os.link(draft.name, path)
    return path.read_text().strip()


def _names(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in environ.get(name, "").split(",") if part.strip())


def _addresses(environ: Mapping[str, str], name: str) -> tuple[str, ...]:
    addresses = _names(environ, name)
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{name}: {address!r} is not host:port")
    return addresses


def _days(environ: Mapping[str, str], name: str, default: int) -> int:
    """At least two: the files of a day by minute are made from its files of 10 s, after its end."""
    text = environ.get(name) or str(default)
    if not text.isascii() or not text.isdecimal() or not 2 <= int(text) <= 10_000:
        raise ValueError(f"{name}: {text!r} is not a number of days from 2 to 10000")
    return int(text)


def _flag(environ: Mapping[str, str], name: str) -> bool:
    value = environ.get(name, "").lower()
    if value not in ("", "0", "1", "false", "true", "no", "yes"):
        raise ValueError(f"{name}: {value!r} is neither true nor false")
    return value in ("1", "true", "yes")
