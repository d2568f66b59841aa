"""The mail server in ``NSQ_EMAIL_URL``."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

NAME = "NSQ_EMAIL_URL"


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """What Django's EMAIL_… settings ask for."""

    host: str = "localhost"
    port: int = 25
    user: str = ""
    password: str = ""
    start_tls: bool = False
    tls: bool = False


def mail_server(url: str) -> MailServer:
    """Read ``smtp://user:password@host:port``; ``smtp+tls://`` begins TLS after connecting, ``smtps://`` at once.

    Empty: this machine's, at port 25. Raises ValueError naming the variable, without the password.
    """
    if not url:
        return MailServer()
    try:
        parts = urlsplit(url)
        default = {"smtp": 25, "smtp+tls": 587, "smtps": 465}[parts.scheme]
        port = parts.port or default
    except (KeyError, ValueError):
        raise ValueError(f"{NAME}: it is smtp://, smtp+tls:// or smtps://user:password@host:port") from None
    if not parts.hostname:
        raise ValueError(f"{NAME}: there is no host in it")
    return MailServer(
        host=parts.hostname,
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        start_tls=parts.scheme == "smtp+tls",
        tls=parts.scheme == "smtps",
    )
