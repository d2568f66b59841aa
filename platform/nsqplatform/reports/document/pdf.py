"""A page as PDF, printed by the browser of this machine, if it has one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Lock

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT_S = 90.0
_one_at_a_time = Lock()


class NoPdf(Exception):
    """The PDF cannot be made; the message has the reason, in one line."""


class Printing(NoPdf):
    """Another page is being printed."""


def browser() -> str | None:
    """Return the path of a browser that prints PDF; None if there is none on PATH."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def pdf(page: str) -> bytes:
    """Print a page. Raises NoPdf; Printing if another page is being printed in this process.

    A browser takes some hundred MB, and the caller's thread waits for it for up to TIMEOUT_S. Requests that waited for
    their turn would each take a thread as well, so they are refused instead.
    """
    program = browser()
    if program is None:
        raise NoPdf(f"no browser is on PATH: {', '.join(BROWSERS)}")
    if not _one_at_a_time.acquire(blocking=False):
        raise Printing("another report is being printed")
    try:
        # Its profile is in the folder too, so that nothing of it is left. A killed process may end after the removal.
        with tempfile.TemporaryDirectory(prefix="nsq-pdf-", ignore_cleanup_errors=True) as folder:
            return _printed(program, page, Path(folder))
    finally:
        _one_at_a_time.release()


def _printed(program: str, page: str, folder: Path) -> bytes:
    source, target = folder / "report.html", folder / "report.pdf"
    source.write_text(page, encoding="utf-8")
    command = [program, "--headless", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder / 'profile'}"]
    command += ["--disable-dev-shm-usage", "--disable-background-networking", "--no-pdf-header-footer"]
    if os.geteuid() == 0:  # as root, as in containers, Chromium does not start with its sandbox
        command.append("--no-sandbox")
    command += [f"--print-to-pdf={target}", source.as_uri()]
    try:
        status, errors = _ended(command, folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = f"took longer than {TIMEOUT_S:g} s" if isinstance(error, subprocess.TimeoutExpired) else str(error)
        raise NoPdf(f"{program}: {reason}") from None
    if not target.is_file():
        last = (errors.decode(errors="replace").strip().splitlines() or ["no reason was given"])[-1]
        raise NoPdf(f"{program} ended with {status}: {last}")
    return target.read_bytes()


def _ended(command: list[str], folder: Path) -> tuple[int, bytes]:
    """Run the browser, and return its status and standard error. Raises OSError or subprocess.TimeoutExpired."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "HOME": str(folder)},
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            errors = process.communicate(timeout=TIMEOUT_S)[1]
        finally:
            # A browser has many processes, which would outlive the one that was started.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, errors
