"""Notifications that leave the platform: JSON posted to webhooks, and e-mail, each with a link to a page."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.mime.image import MIMEImage
from smtplib import SMTPException
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx
from asgiref.sync import async_to_sync
from django.conf import settings
from django.core.mail import EmailMultiAlternatives

from nsqcluster.errors import reason_of
from nsqplatform.clusters import current
from nsqplatform.destinations import DestinationRefused, permitted_addresses, refuse_denied_name

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0
BODY_WITHIN_S = 1.0
MAX_RESPONSE_BYTES = 300
"""Bytes logged of a webhook's error response."""


class Undelivered(Exception):
    """The webhook or mail server did not accept it; the text says why, in one line."""


def post(url: str, *, text: str, fields: Mapping[str, Any]) -> None:
    """Post ``text``, which Slack and compatible services show, and ``fields`` for programs.

    Takes at most TIMEOUT_S once the name is resolved. Redirects are not followed. The beginning of a
    refusal's body is logged and shown to nobody: it may be of a server that only the platform can reach. Raises
    Undelivered.
    """
    try:
        target = httpx.URL(url)
        host = target.raw_host.decode("ascii")
        port = target.port or {"http": 80}.get(target.scheme, 443)
        proxy = _proxy(target.scheme, f"{host}:{port}")
        addresses = _addresses(host, port, proxied=proxy is not None)
        status, reply = async_to_sync(_answer)(target, {"text": _for_slack(text), **fields}, addresses, proxy)
    except (httpx.HTTPError, httpx.InvalidURL, DestinationRefused, OSError) as error:
        raise Undelivered(_reason(error)) from None
    if not httpx.codes.is_success(status):
        logger.warning("a webhook refused a notification", extra={"host": host, "status": status, "body": reply})
        raise Undelivered(f"answers {status} {httpx.codes.get_reason_phrase(status)}".strip())


def _proxy(scheme: str, address: str) -> str | None:
    """The proxy that the environment names for this address (``HTTPS_PROXY``, ``ALL_PROXY``, ``NO_PROXY``)."""
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(address):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


async def _answer(
    url: httpx.URL, body: Mapping[str, Any], addresses: Sequence[str], proxy: str | None
) -> tuple[int, str]:
    """Post to the first of ``addresses`` that is reachable. Returns the status, and the beginning of a refusal's body.

    The checked address itself is in the request, so a name that resolves differently a second time changes nothing. A
    proxy resolves names itself, so it gets the name.
    """
    async with (
        asyncio.timeout(TIMEOUT_S),
        httpx.AsyncClient(
            verify=httpx.create_ssl_context(), timeout=TIMEOUT_S, proxy=proxy, trust_env=False, follow_redirects=False
        ) as client,
    ):
        for place, address in enumerate(addresses):
            request = client.build_request(
                "POST",
                url.copy_with(host=address),
                json=body,
                headers={"Host": url.netloc.decode("ascii"), "Accept-Encoding": "identity"},
                extensions={"sni_hostname": url.raw_host.decode("ascii")},
            )
            try:
                response = await client.send(request, stream=True)
                break
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if place == len(addresses) - 1:
                    raise
        try:
            return response.status_code, "" if response.is_success else await _beginning(response)
        finally:
            await response.aclose()


async def _beginning(response: httpx.Response) -> str:
    """The first MAX_RESPONSE_BYTES of the body, or what arrives of them within BODY_WITHIN_S."""
    found = b""
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(BODY_WITHIN_S):
            async for part in response.aiter_raw(MAX_RESPONSE_BYTES):
                found += part
                if len(found) >= MAX_RESPONSE_BYTES:
                    break
    return found[:MAX_RESPONSE_BYTES].decode(errors="replace")


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
        refuse_denied_name(host, allow=nsqadmin.allowed_webhooks, deny=nsqadmin.denied_webhooks)
        return [host]
    return [host] if proxied else addresses


@dataclass(frozen=True)
class Rich:
    """HTML of a mail in addition to its text. ``pictures``: content id -> PNG, which the HTML shows as ``cid:…``.

    ``attachments`` are name, content and type.
    """

    html: str
    pictures: Mapping[str, bytes]
    attachments: Sequence[tuple[str, bytes, str]]


def mail(recipients: Sequence[str], *, title: str, text: str, rich: Rich | None = None) -> None:
    """Send one e-mail to all recipients. Raises Undelivered."""
    message = EmailMultiAlternatives(" ".join(title.split())[:200], text, None, recipients)
    if rich is not None:
        message.attach_alternative(rich.html, "text/html")
        for content_id, picture in rich.pictures.items():
            image = MIMEImage(picture, "png")
            image["Content-ID"] = f"<{content_id}>"
            image["Content-Disposition"] = f'inline; filename="{content_id}.png"'
            message.attach(image)
        for name, content, content_type in rich.attachments:
            message.attach(name, content, content_type)
    try:
        message.send()
    except (SMTPException, OSError) as error:
        raise Undelivered(str(error) or type(error).__name__) from None


def address_of(path: str) -> str:
    """The full URL of a page such as ``/alerts``; the path alone if ``NSQ_SITE`` is not set."""
    return f"{settings.NSQ_SITE}{settings.NSQADMIN.base}{current.path()}{path}"


def _reason(error: Exception) -> str:
    if isinstance(error, DestinationRefused):
        return str(error)
    return "does not answer in time" if isinstance(error, httpx.TimeoutException | TimeoutError) else reason_of(error)


def _for_slack(text: str) -> str:
    """``text`` with the three characters of Slack's markup escaped."""
    return re.sub(r"[&<>]", lambda found: {"&": "&amp;", "<": "&lt;", ">": "&gt;"}[found[0]], text)
