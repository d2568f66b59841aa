"""``manage.py create_token NAME PURPOSE``."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from nsqdaemon.moments import coming
from nsqplatform.accounts.models import User
from nsqplatform.accounts.roles import Role
from nsqplatform.accounts.tokens import create_token


class Command(BaseCommand):
    help = "Print a new bearer token for a script; it is shown only once. A token of the same purpose is replaced."
    requires_system_checks = []  # the check of the URLs would import the whole API

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("purpose")
        parser.add_argument("--role", choices=Role.values, help="the token's role (default: the account's)")
        parser.add_argument(
            "--expires",
            default="",
            metavar="WHEN",
            help="when it expires: 720h from now, or 2026-11-22T06:30:00Z (default: never)",
        )
        parser.add_argument("--cluster", default="", help="the only cluster in which it is valid (default: all)")

    def handle(self, *, username: str, purpose: str, role: str | None, expires: str, cluster: str, **_: Any) -> None:
        try:
            user = User.objects.get(username=username)
        except User.DoesNotExist:
            raise CommandError(f"there is no account {username!r}") from None
        try:
            expires_at = coming(expires, timezone.now()) if expires else None
        except ValueError as error:
            raise CommandError(f"--expires: {error}") from None
        try:
            self.stdout.write(
                create_token(
                    user=user,
                    name=purpose,
                    role=None if role is None else Role(role),
                    cluster=cluster,
                    expires_at=expires_at,
                )
            )
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from None
