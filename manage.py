#!/usr/bin/env python
"""The entry point: Django's management commands, and ``manage.py nsq …``, which imports Django only if it needs it."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def enter_virtual_environment() -> None:
    """Restart with the Python of ``.venv`` if that exists and no virtual environment is active."""
    python = ROOT / ".venv" / "bin" / "python"
    if sys.prefix == sys.base_prefix and python.exists():
        os.execv(python, [str(python), *sys.argv])


def main() -> int:
    enter_virtual_environment()
    # The source roots, for a checkout that is not installed. platform/ is not a package: `import platform` is the
    # standard library's.
    for source_root in (ROOT, ROOT / "platform", ROOT / "lookup", ROOT / "analytics"):
        if str(source_root) not in sys.path:
            sys.path.insert(0, str(source_root))
    if sys.argv[1:2] == ["nsq"]:
        from nsqcommand.command import main as nsq

        return nsq(sys.argv[2:])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nsqplatform.console.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
