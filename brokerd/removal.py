"""Removes the directories of deleted topics in a thread, because a large one takes seconds."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

from brokerd.log.files import remove_log
from brokerd.topic_directories import log_foreign

logger = logging.getLogger("brokerd")


class Removal:
    """Removes directories one after another. If the process ends meanwhile, the next start removes the rest."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Path] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, directory: Path) -> None:
        """Queue a directory for removal. Its name must already mark it as deleted."""
        self._queue.put(directory)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="removal", daemon=True)
            with suppress(RuntimeError):  # no memory for a thread: the next call starts it
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while True:
            directory = self._queue.get()
            try:
                for path in remove_log(directory):
                    log_foreign(path)
            except OSError as error:
                logger.error("cannot remove %s: %s", directory, error)
