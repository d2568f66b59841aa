"""``manage.py create_token NAME PURPOSE``."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from nsqplatform.accounts.models import User
from nsqplatform.accounts.tokens import create_token


class Command(BaseCommand):
    help = "Print a new bearer token for a script; it is shown only once. A token of the same purpose is replaced."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("purpose")

    def handle(self, *, username: str, purpose: str, **_: Any) -> None:
        try:
            user = User.objects.get(username=username)
        except User.DoesNotExist:
            raise CommandError(f"there is no account {username!r}") from None
        self.stdout.write(create_token(user=user, name=purpose))
