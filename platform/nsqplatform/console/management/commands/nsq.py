"""``django-admin nsq …``: the ``nsq`` command with Django already loaded. ``manage.py nsq`` does not use this."""

import sys
from typing import Any

from django.core.management.base import BaseCommand

from nsqcommand.command import main


class Command(BaseCommand):
    help = "The broker, the registry, the platform's processes and the tools; nsq --help lists them."

    def run_from_argv(self, argv: list[str]) -> None:
        """Pass the arguments on unparsed, because each subcommand has its own options."""
        sys.exit(main(argv[2:]))

    def handle(self, *args: Any, **options: Any) -> None:
        sys.exit(main([str(argument) for argument in args]))
