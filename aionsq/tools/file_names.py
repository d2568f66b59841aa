"""Names of archive files, built from a format with tokens, and the search for a topic's files."""

from __future__ import annotations

import os
import re
from datetime import datetime
from typing import Final

DEFAULT_FORMAT: Final = "<TOPIC>.<HOST><REV>.<DATETIME>.log"
DEFAULT_DATETIME: Final = "%Y-%m-%d_%H"

_DATE_TOKENS: Final = {
    "Y": r"\d{4}",
    **dict.fromkeys("ymdHIMS", r"\d\d"),
    "p": "[AP]M",
    **dict.fromkeys("BbAaZ", r"[\w+-]+"),
    "z": r"[+-]\d{4}",
    "%": "%",
}
"""The strftime tokens that NSQ's tool supports, each with a pattern for its values."""
_REVISION: Final = r"-\d{6,}"
_DATE_TOKEN: Final = re.compile("%(.)", re.DOTALL)


def date_text(form: str, when: datetime) -> str:
    """Format ``when``, which has a time zone, with a date format. Unknown tokens stay unchanged."""

    def value(match: re.Match[str]) -> str:
        return when.strftime(match[0]) if match[1] in _DATE_TOKENS else match[0]

    return _DATE_TOKEN.sub(value, form)


class FileNames:
    """The names of one topic's files, relative to their folder.

    ``<TOPIC>``, ``<HOST>`` and ``<PID>`` are replaced at construction, ``<DATETIME>`` and ``<REV>`` for each name.
    ``<REV>`` becomes ``-000000``, ``-000001`` and so on if ``revisions`` are needed, otherwise the empty text.
    """

    def __init__(
        self,
        form: str,
        date_form: str,
        *,
        topic: str,
        host: str,
        pid: int,
        revisions: bool = False,
        gzip: bool = False,
    ) -> None:
        """Raises ValueError if revisions are needed and the format lacks ``<REV>``, and for the topics ``.`` and
        ``..``, which would name other folders."""
        if revisions and "<REV>" not in form:
            raise ValueError("missing <REV> in --filename-format when gzip, rotation, or work dir enabled")
        if topic in (".", ".."):
            raise ValueError(f"the topic name {topic!r} cannot be part of a file name")
        if gzip and not form.endswith(".gz"):
            form += ".gz"
        if not revisions:
            form = form.replace("<REV>", "")
        fixed = form.lstrip("/").replace("<TOPIC>", topic).replace("<HOST>", host)
        self._form = fixed.replace("<PID>", str(pid))
        self._date_form = date_form
        self._pattern = _pattern(fixed, date_form)
        self._path_pattern = re.compile("/".join(self._pattern).replace(_REVISION, f"({_REVISION})", 1))

    def dated(self, now: datetime) -> str:
        """Return the name for this moment, without its revision. When it changes, the next file must be started."""
        return self._form.replace("<DATETIME>", date_text(self._date_form, now))

    @staticmethod
    def revised(dated: str, revision: int) -> str:
        """The name with its revision."""
        return dated.replace("<REV>", f"-{revision:06d}")

    def next_revision(self, name: str) -> str:
        """The name with the next revision; ``name`` must have a revision."""
        match = self._path_pattern.fullmatch(name)
        assert match is not None
        return f"{name[: match.start(1)]}-{int(match[1][1:]) + 1:06d}{name[match.end(1) :]}"

    def existing(self, folder: str) -> list[str]:
        """The files below ``folder`` whose names have this format, of any date, revision and process."""
        parts = [re.compile(part) for part in self._pattern]
        found = [""]
        for depth, part in enumerate(parts):
            is_file = depth == len(parts) - 1
            found = [
                os.path.join(parent, entry.name)
                for parent in found
                for entry in _entries(os.path.join(folder, parent))
                if part.fullmatch(entry.name) and (entry.is_file if is_file else entry.is_dir)(follow_symlinks=False)
            ]
        return sorted(found)


def _pattern(form: str, date_form: str) -> list[str]:
    """A regular expression for each path component of this format."""
    tokens = {"<DATETIME>": _date_pattern(date_form), "<REV>": _REVISION, "<PID>": r"\d+"}
    pieces = re.split("(<DATETIME>|<REV>|<PID>)", form)
    whole = "".join(tokens.get(piece) or re.escape(piece) for piece in pieces)
    return [part for part in whole.split("/") if part]


def _date_pattern(form: str) -> str:
    pieces = re.split("(%.)", form, flags=re.DOTALL)
    return "".join(
        _DATE_TOKENS.get(piece[1:], re.escape(piece)) if piece[:1] == "%" else re.escape(piece) for piece in pieces
    )


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []  # does not exist yet
