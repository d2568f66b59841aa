"""URLs of webhooks, which often contain a key. A file has only their hosts, unless it is exported with secrets."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.core.exceptions import ValidationError

_HIDDEN = "/…"
UNKNOWN = "the file has only the host, and no such URL is stored: write the whole URL, or export with secrets"


def masked(url: str) -> str:
    """The URL's scheme, host and port, followed by ``/…``; empty for an empty one."""
    if not url:
        return ""
    parts = urlsplit(url)
    host_and_port = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host_and_port}{_HIDDEN}"


def unmasked(url: str, *, field: str, stored: str) -> str:
    """The URL of an entry in a file: ``url``, or the ``stored`` one if ``url`` is its masked form.

    Raises ValidationError naming ``field`` if ``url`` is the masked form of another URL.
    """
    if not url.endswith(_HIDDEN):
        return url
    if url != masked(stored):
        raise ValidationError({field: UNKNOWN})
    return stored
