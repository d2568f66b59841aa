#!/usr/bin/env python
"""The entry point: Django's management commands, and ``manage.py nsq …``, which imports Django only if it needs it."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def enter_virtual_environment() -> None:
    """Restart with the Python of ``.venv`` if that exists and no virtual environment is active."""
    python = ROOT / ".venv" / "bin" / "python"
    if sys.prefix == sys.base_prefix and python.exists():
        os.execv(python, [str(python), *sys.argv])


def not_installed(error: ModuleNotFoundError) -> str:
    """One line that names the missing package, and how to install it."""
    folder = ROOT / ".venv"
    how = f"remove {folder}, which is incomplete, and run `make setup`" if folder.exists() else "run `make setup`"
    return f"manage.py: the Python package {error.name} is not installed for {sys.executable}: {how}"


def main() -> int:
    try:
        return run()
    except ModuleNotFoundError as error:
        if not error.name or find_spec(error.name.partition(".")[0]) is not None:
            raise  # a mistake in the code, which needs its traceback
        print(not_installed(error), file=sys.stderr)
        return 1


def run() -> int:
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

    from nsqdaemon.variable import InvalidVariable

    try:
        execute_from_command_line(sys.argv)
    except InvalidVariable as error:
        print(f"manage.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
