"""``manage.py create_account NAME --role operator``."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from nsqplatform.accounts.roles import Role
from nsqplatform.accounts.services import create_account


class Command(BaseCommand):
    help = "Create an account. Without a password, sign in by `nsq signin-link --user NAME`."
    requires_system_checks = []  # the check of the URLs would import the whole API

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--role", choices=Role.values, default=Role.VIEWER.value, help="default: %(default)s")
        parser.add_argument("--password", help="without one, only links sign the account in")

    def handle(self, *, username: str, role: str, password: str | None, **_: Any) -> None:
        try:
            create_account(username=username, role=Role(role), password=password)
        except ValidationError as error:
            raise CommandError("; ".join(error.messages)) from None
        self.stdout.write(f"created {username}, {role}")
