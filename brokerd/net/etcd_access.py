"""How etcd is accessed: the authorities that verify its certificate, and a user."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import NamedTuple


class InvalidAccess(ValueError):
    """A file of ``--arbiter-ca-file`` or ``--arbiter-user-file`` cannot be used; the text is for the user."""


class EtcdAccess(NamedTuple):
    """``tls`` is for ``etcds://``; None: the system's authorities. ``user`` is empty for none."""

    tls: ssl.SSLContext | None = None
    user: str = ""
    password: str = ""

    @classmethod
    def of_files(cls, ca_file: str, user_file: str) -> EtcdAccess:
        """Read both files; an empty name is for none. Raises InvalidAccess."""
        return cls(_context(ca_file) if ca_file else None, *(_user(user_file) if user_file else ()))


def _context(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        raise InvalidAccess(f"--arbiter-ca-file: {ca_file}: {reason}") from None
    except OSError as error:
        raise InvalidAccess(f"--arbiter-ca-file: open {ca_file}: {os.strerror(error.errno or 0).lower()}") from None


def _user(user_file: str) -> tuple[str, str]:
    """The name and the password of the file's line ``NAME:PASSWORD``."""
    try:
        name, colon, password = Path(user_file).read_text().strip().partition(":")
    except OSError as error:
        raise InvalidAccess(f"--arbiter-user-file: open {user_file}: {os.strerror(error.errno or 0).lower()}") from None
    except UnicodeDecodeError:
        raise InvalidAccess(f"--arbiter-user-file: {user_file} is not UTF-8") from None
    if not (name and colon and password) or "\n" in password:
        raise InvalidAccess(f"--arbiter-user-file: {user_file} is not one line NAME:PASSWORD")
    return name, password
