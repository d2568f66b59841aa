"""Notifications that leave the platform: JSON posted to webhooks, and e-mail, each with a link to a page."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from smtplib import SMTPException
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx
from django.conf import settings
from django.core.mail import send_mail

from nsqcluster.errors import reason_of
from nsqplatform.destinations import DestinationRefused, permitted_addresses

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0
MAX_RESPONSE_BYTES = 300
"""Bytes logged of a webhook's error response."""


class Undelivered(Exception):
    """The webhook or mail server did not accept it; the text says why, in one line."""


def post(url: str, *, text: str, fields: Mapping[str, Any]) -> None:
    """Post ``text``, which Slack and compatible services show, and ``fields`` for programs.

    Each step takes at most TIMEOUT_S. Redirects are not followed. The response's body is logged and shown to nobody:
    it may be of a server that only the platform can reach. Raises Undelivered.
    """
    try:
        with _sent(httpx.URL(url), {"text": _for_slack(text), **fields}) as response:
            if not response.is_success:
                status = response.status_code
                body = next(response.iter_bytes(MAX_RESPONSE_BYTES), b"").decode(errors="replace")
                logger.warning(
                    "a webhook refused a notification",
                    extra={"host": httpx.URL(url).host, "status": status, "body": body},
                )
                raise Undelivered(f"answers {status} {httpx.codes.get_reason_phrase(status)}".strip())
    except (httpx.HTTPError, httpx.InvalidURL, DestinationRefused, OSError) as error:
        raise Undelivered(_reason(error)) from None


@contextmanager
def _sent(url: httpx.URL, body: Mapping[str, Any]) -> Iterator[httpx.Response]:
    """Post to the first address of the host that is permitted and reachable.

    The checked address itself is in the request, so a name that resolves differently a second time changes nothing. A
    proxy of the environment (``HTTPS_PROXY``) resolves names itself, so it gets the name.
    """
    host = url.raw_host.decode("ascii")
    port = url.port or {"http": 80}.get(url.scheme, 443)
    proxies = getproxies()
    proxied = bool(proxies.get(url.scheme) or proxies.get("all")) and not proxy_bypass(f"{host}:{port}")
    with httpx.Client(
        verify=httpx.create_ssl_context(), timeout=TIMEOUT_S, trust_env=proxied, follow_redirects=False
    ) as client:
        addresses = _addresses(host, port, proxied=proxied)
        for place, address in enumerate(addresses):
            request = client.build_request(
                "POST",
                url.copy_with(host=address),
                json=body,
                headers={"Host": url.netloc.decode("ascii")},
                extensions={"sni_hostname": host},
            )
            try:
                response = client.send(request, stream=True)
                break
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if place == len(addresses) - 1:
                    raise
        with closing(response):
            yield response


def _addresses(host: str, port: int, *, proxied: bool) -> Sequence[str]:
    """What to connect to, or what a proxy is to connect to: then the name, which only the proxy may be able to resolve.

    Raises DestinationRefused, and OSError if the name cannot be resolved.
    """
    nsqadmin = settings.NSQADMIN
    try:
        addresses = permitted_addresses(host, port, allow=nsqadmin.allowed_webhooks, deny=nsqadmin.denied_webhooks)
    except socket.gaierror:
        if not proxied:
            raise
        return [host]
    return [host] if proxied else addresses


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
    if isinstance(error, DestinationRefused):
        return str(error)
    return "does not answer in time" if isinstance(error, httpx.TimeoutException) else reason_of(error)


def _for_slack(text: str) -> str:
    """``text`` with the three characters of Slack's markup escaped."""
    return re.sub(r"[&<>]", lambda found: {"&": "&amp;", "<": "&lt;", ">": "&gt;"}[found[0]], text)
