"""Notifications that leave the platform: JSON posted to webhooks, and e-mail, each with a link to a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from smtplib import SMTPException
from typing import Any

import httpx
from django.conf import settings
from django.core.mail import send_mail

from nsqcluster.errors import reason_of

TIMEOUT_S = 10.0
MAX_RESPONSE_BYTES = 300
"""Bytes read of a webhook's error response."""


class Undelivered(Exception):
    """The webhook or mail server did not accept it; the text says why, in one line."""


def post(url: str, *, text: str, fields: Mapping[str, Any]) -> None:
    """Post ``text``, which Slack and compatible services show, and ``fields`` for programs.

    Each step takes at most TIMEOUT_S. Raises Undelivered.
    """
    try:
        with httpx.stream("POST", url, json={"text": _for_slack(text), **fields}, timeout=TIMEOUT_S) as response:
            if not response.is_success:
                response_text = next(response.iter_bytes(MAX_RESPONSE_BYTES), b"").decode(errors="replace")
                raise Undelivered(f"answers {response.status_code} {response_text}".strip())
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Undelivered(_reason(error)) from None


def mail(recipients: Sequence[str], *, title: str, text: str) -> None:
    """Send one e-mail to all recipients. Raises Undelivered."""
    try:
        send_mail(" ".join(title.split())[:200], text, None, recipients)
    except (SMTPException, OSError) as error:
        raise Undelivered(str(error) or type(error).__name__) from None


def address_of(path: str) -> str:
    """The full URL of a page such as ``/alerts``; the path alone if ``NSQ_SITE`` is not set."""
    return f"{settings.NSQ_SITE}{settings.NSQADMIN.base}{path}"


def _reason(error: Exception) -> str:
    return "does not answer in time" if isinstance(error, httpx.TimeoutException) else reason_of(error)


def _for_slack(text: str) -> str:
    """``text`` with the three characters of Slack's markup escaped."""
    return re.sub(r"[&<>]", lambda found: {"&": "&amp;", "<": "&lt;", ">": "&gt;"}[found[0]], text)
