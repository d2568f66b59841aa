"""``manage.py create_token NAME PURPOSE``."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from nsqplatform.accounts.models import User
from nsqplatform.accounts.tokens import create_token


class Command(BaseCommand):
    help = "Print a new bearer token for a script; it is shown only once. A token of the same purpose is replaced."
    requires_system_checks = []  # the check of the URLs would import the whole API

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("purpose")
        parser.add_argument("--cluster", default="", help="the only cluster in which it is valid (default: all)")

    def handle(self, *, username: str, purpose: str, cluster: str, **_: Any) -> None:
        try:
            user = User.objects.get(username=username)
        except User.DoesNotExist:
            raise CommandError(f"there is no account {username!r}") from None
        try:
            self.stdout.write(create_token(user=user, name=purpose, cluster=cluster))
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from None
