"""Word to the world outside: a webhook is posted JSON, people are sent e-mail; both with a link to a page of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from smtplib import SMTPException
from typing import Any

import httpx
from django.conf import settings
from django.core.mail import send_mail

from cluster.directory import reason_of

TIMEOUT_S = 10.0
SAID_MOST = 300
"""Bytes that are read of what a webhook answers when it refuses."""


class Undelivered(Exception):
    """Says, in a line, what the webhook or the mail server did instead of taking it."""


def post(url: str, *, text: str, fields: Mapping[str, Any]) -> None:
    """Slack and those that understand its webhooks show ``text``; the rest of the body is for machines.

    Takes some TIMEOUT_S at most. Raises Undelivered.
    """
    try:
        with httpx.stream("POST", url, json={"text": _for_slack(text), **fields}, timeout=TIMEOUT_S) as response:
            if not response.is_success:
                said = next(response.iter_bytes(SAID_MOST), b"").decode(errors="replace")
                raise Undelivered(f"answers {response.status_code} {said}".strip())
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Undelivered(reason_of(error)) from None


def mail(recipients: Sequence[str], *, title: str, text: str) -> None:
    """Send it to all of them at once. Raises Undelivered."""
    try:
        send_mail(" ".join(title.split())[:200], text, None, recipients)
    except (SMTPException, OSError) as error:
        raise Undelivered(str(error) or type(error).__name__) from None


def address_of(path: str) -> str:
    """The whole address of a page, such as ``/alerts``; the path alone where nobody set ``NSQ_SITE``."""
    return f"{settings.NSQ_SITE}{settings.NSQADMIN.base}{path}"


def _for_slack(text: str) -> str:
    """The three characters by which Slack's markup begins."""
    return re.sub(r"[&<>]", lambda found: {"&": "&amp;", "<": "&lt;", ">": "&gt;"}[found[0]], text)
