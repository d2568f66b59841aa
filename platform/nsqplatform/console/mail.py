"""The mail server in ``NSQ_EMAIL_URL``."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """The values of Django's EMAIL_… settings; by default, port 25 of this machine."""

    host: str = "localhost"
    port: int = 25
    user: str = ""
    password: str = ""
    start_tls: bool = False
    tls: bool = False


def mail_server(url: str) -> MailServer:
    """Parse ``smtp://user:password@host:port``; ``smtp+tls://`` starts TLS after connecting, ``smtps://`` at once.

    Raises ValueError without the URL, which may contain a password.
    """
    try:
        parts = urlsplit(url)
        default = {"smtp": 25, "smtp+tls": 587, "smtps": 465}[parts.scheme]
        port = parts.port or default
    except (KeyError, ValueError):
        raise ValueError("is not smtp://, smtp+tls:// or smtps://user:password@host:port") from None
    if not parts.hostname:
        raise ValueError("has no host")
    return MailServer(
        host=parts.hostname,
        port=port,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        start_tls=parts.scheme == "smtp+tls",
        tls=parts.scheme == "smtps",
    )
