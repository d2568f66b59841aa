"""Receivers of notifications: a webhook and a mail server, which keep the messages."""

from __future__ import annotations

import json
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope
from aiosmtpd.smtp import Session as SmtpSession

from bench.ports import free_ports
from tests.platform.go_nsq import Upstream


class Receiver(Upstream):
    """A webhook. ``status["/hook"]`` makes it refuse, ``hold`` makes it hang."""

    takes_bodies = ("/hook",)

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        super().__init__()

    @property
    def url(self) -> str:
        return f"http://{self.address}/hook"

    def publish(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, str]:
        self.bodies.append(json.loads(body))
        return 200, "ok"

    def events(self) -> list[tuple[str, list[str]]]:
        """Event and subjects of each message."""
        return [
            (body["event"], [each["node"] or f"{each['topic']}/{each['channel']}" for each in body["alerts"]])
            for body in self.bodies
        ]


class MailServer:
    """SMTP on a free port."""

    def __init__(self) -> None:
        self.mails: list[tuple[list[str], EmailMessage]] = []
        [self.port] = free_ports(1)
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port)
        self._controller.start()

    async def handle_DATA(self, server: SMTP, session: SmtpSession, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        self.mails.append((envelope.rcpt_tos, BytesParser(EmailMessage, policy=default).parsebytes(envelope.content)))
        return "250 OK"

    def stop(self) -> None:
        self._controller.stop()
